//! What the connector knows: its queue, its connections, what it heard and what is in the chats.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde_json::{Value, json};

use crate::rules::Saying;

#[derive(Debug)]
pub struct World {
    /// Every frame of the gateway, with the number of its connection.
    pub heard: Vec<(u64, Value)>,
    /// What the gateway wrote that was no line of JSON.
    pub rubbish: usize,
    pub pings: usize,
    /// Connections ever opened, and what each showed of itself.
    pub bearers: Vec<Option<String>>,
    /// Connections whose end was seen.
    pub closed: u64,
    /// Those of them that had been granted to go idle.
    pub closed_idle: u64,
    /// Numbers that were acknowledged, in order.
    pub acks: Vec<String>,
    pub chats: BTreeMap<String, Vec<Message>>,
    /// What people see below messages: chat, message, emoji.
    pub reactions: Vec<(String, String, String)>,
    pub posted: Vec<Posted>,
    pub(super) media: BTreeMap<String, Vec<u8>>,
    pub(super) queue: VecDeque<(String, String)>,
    pub(super) connections: Vec<Connection>,
    pub(super) refusals: VecDeque<(u16, String)>,
    pub(super) short_lives: usize,
    /// Hellos that are not answered.
    pub(super) mute: usize,
    /// The chats that permissions lead to, by conversation and kind.
    pub(super) held: BTreeMap<(String, String), String>,
    pub(super) grants: Option<Duration>,
    pub(super) replies: VecDeque<(Saying, Reply)>,
    /// Replies that met a message.
    pub(super) troubled: u64,
    pub(super) answers: VecDeque<(String, u16, Value)>,
    descriptors: BTreeMap<String, Value>,
    /// Results by the number of their question.
    pub(super) known: BTreeMap<String, Value>,
    numbers: u64,
}

/// A message of the gateway's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub id: String,
    pub text: String,
    pub reply_to: Option<String>,
    pub metadata: Value,
}

/// A request to the HTTP side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posted {
    pub endpoint: String,
    pub bearer: Option<String>,
    pub body: Value,
}

/// What becomes of a message that is sent.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// It is not sent, and this is the result.
    Result(Value),
    /// It is sent, and no result ever comes.
    Nothing,
    /// It is sent, and the connection is gone.
    Drop,
    /// It is sent; the result comes behind that of the next one.
    Later,
    /// It is sent; the result takes its time.
    After(Duration),
    /// It is not sent, and no result ever comes.
    Ignored,
    /// It is not sent, and the connection is gone.
    Cut,
    /// It is not sent, and what comes back is no line of JSON.
    Garbled,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) number: u64,
    pub(super) wishes: VecDeque<Wish>,
    pub(super) greeted: bool,
    pub(super) idle: bool,
    /// Entries of the queue that it was told.
    pub(super) told: usize,
    /// Results that are held back.
    pub(super) late: Vec<String>,
}

#[derive(Debug, Clone)]
pub(super) enum Wish {
    Text(String),
    Bytes(Vec<u8>),
    Close(u16, String),
    Silence,
}

impl Default for World {
    fn default() -> Self {
        Self {
            heard: Vec::new(),
            rubbish: 0,
            pings: 0,
            bearers: Vec::new(),
            closed: 0,
            closed_idle: 0,
            acks: Vec::new(),
            chats: BTreeMap::new(),
            reactions: Vec::new(),
            posted: Vec::new(),
            media: BTreeMap::new(),
            queue: VecDeque::new(),
            connections: Vec::new(),
            refusals: VecDeque::new(),
            short_lives: 0,
            mute: 0,
            held: BTreeMap::new(),
            grants: Some(Duration::ZERO),
            replies: VecDeque::new(),
            troubled: 0,
            answers: VecDeque::new(),
            descriptors: BTreeMap::new(),
            known: BTreeMap::new(),
            numbers: 0,
        }
    }
}

impl World {
    /// Frames of this type.
    #[must_use]
    pub fn frames(&self, kind: &str) -> Vec<&Value> {
        self.heard.iter().map(|(_, frame)| frame).filter(|frame| frame["type"] == kind).collect()
    }

    #[must_use]
    pub fn connections(&self) -> usize {
        self.bearers.len()
    }

    /// Connections that said hello and are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.connections.iter().filter(|it| it.greeted).count()
    }

    #[must_use]
    pub fn backlog(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn push(&mut self, kind: &str, name: &str, value: Value) -> String {
        let id = format!("buf-{}", self.number());
        let mut frame = json!({"type": kind, "bufferId": id});
        frame[name] = value;
        self.queue.push_back((id.clone(), format!("{frame}\n")));
        id
    }

    /// What this action is to meet, if it is a message.
    pub(super) fn reply(&mut self, action: &Value) -> Option<Reply> {
        if !matches!(action["op"].as_str(), Some("send" | "send_media" | "edit")) {
            return None;
        }
        let text = action["content"].as_str().unwrap_or_default();
        let at = self.replies.iter().position(|(saying, _)| saying(text))?;
        self.troubled += 1;
        self.replies.remove(at).map(|(_, reply)| reply)
    }

    pub(super) fn wish(&mut self, wish: &Wish) {
        self.connections.iter_mut().for_each(|it| it.wishes.push_back(wish.clone()));
    }

    pub(super) fn descriptor(&mut self, platform: &str) -> &mut Value {
        self.descriptors.entry(platform.to_owned()).or_insert_with(|| {
            json!({
                "contract_version": 1, "platform": platform, "label": platform, "max_message_length": 2000,
                "supports_draft_streaming": false, "supports_edit": true, "supports_threads": true,
                "markdown_dialect": "discord", "len_unit": "chars",
            })
        })
    }

    pub(super) fn ack(&mut self, id: &str) {
        self.acks.push(id.to_owned());
        let Some(at) = self.queue.iter().position(|(known, _)| known == id) else { return };
        self.queue.remove(at);
        for connection in &mut self.connections {
            if at < connection.told {
                connection.told -= 1;
            }
        }
    }

    /// Carries an action out, as a platform would.
    pub(super) fn perform(&mut self, action: &Value) -> Value {
        let text = |name: &str| action[name].as_str().unwrap_or_default().to_owned();
        let op = action["op"].as_str().unwrap_or_default();
        let chat = match (op, self.held.get(&(text("session_key"), text("kind")))) {
            ("follow_up", Some(chat)) => chat.clone(),
            ("follow_up", None) => return json!({"success": false, "error": "nothing is held for it"}),
            (_said_in_a_chat, _) => text("chat_id"),
        };
        match op {
            "send" | "send_media" | "follow_up" => {
                let id = format!("out-{}", self.number());
                let message = Message {
                    id: id.clone(),
                    text: text("content"),
                    reply_to: action["reply_to"].as_str().map(str::to_owned),
                    metadata: action["metadata"].clone(),
                };
                self.chats.entry(chat).or_default().push(message);
                json!({"success": true, "message_id": id})
            }
            "edit" => {
                let known =
                    self.chats.entry(chat).or_default().iter_mut().find(|it| it.id == text("message_id"));
                match known {
                    Some(message) => message.text = text("content"),
                    None => return json!({"success": false, "error": "message not found"}),
                }
                json!({"success": true})
            }
            "delete" => {
                let messages = self.chats.entry(chat).or_default();
                let before = messages.len();
                messages.retain(|it| it.id != text("message_id"));
                if messages.len() == before {
                    return json!({"success": false, "error": "message not found"});
                }
                json!({"success": true})
            }
            "react" => {
                let mark = (chat, text("message_id"), text("emoji"));
                self.reactions.retain(|known| *known != mark);
                if action["remove"] != true {
                    self.reactions.push(mark);
                }
                json!({"success": true})
            }
            "typing" => json!({"success": true}),
            other => json!({"success": false, "error": format!("unsupported op: {other}")}),
        }
    }
}
