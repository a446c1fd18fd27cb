//! The state of the fake: its queue, its connections, received frames, and the chats.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde_json::{Value, json};

use crate::faults::rules::TextPredicate;

#[derive(Debug)]
pub struct State {
    /// Every frame of the gateway, with the number of its connection.
    pub frames: Vec<(u64, Value)>,
    /// Received lines that were not JSON, or not terminated.
    pub malformed_lines: usize,
    pub pings: usize,
    /// The `Authorization` header of every connection ever opened.
    pub bearers: Vec<Option<String>>,
    pub closed: u64,
    /// Those of them that ended while idle.
    pub closed_idle: u64,
    /// Acknowledged buffer ids, in order.
    pub acks: Vec<String>,
    pub chats: BTreeMap<String, Vec<ConnectorMessage>>,
    pub reactions: Vec<(String, String, String)>,
    pub posted: Vec<PostedRequest>,
    pub(super) media: BTreeMap<String, Vec<u8>>,
    pub(super) queue: VecDeque<(String, String)>,
    pub(super) connections: Vec<SocketState>,
    pub(super) close_frames: VecDeque<(u16, String)>,
    pub(super) closes_after_descriptor: usize,
    /// How many hellos get no descriptor.
    pub(super) ignored_hellos: usize,
    /// The chats of follow-up permissions, by session and kind.
    pub(super) permissions: BTreeMap<(String, String), String>,
    /// The delay before `going_idle` is acknowledged; `None`: never.
    pub(super) idle_after: Option<Duration>,
    pub(super) faults: VecDeque<(TextPredicate, OutboundFault)>,
    pub(super) faults_applied: u64,
    pub(super) responses: VecDeque<(String, u16, Value)>,
    descriptors: BTreeMap<String, Value>,
    pub(super) results: BTreeMap<String, Value>,
    last_number: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectorMessage {
    pub id: String,
    pub text: String,
    pub reply_to: Option<String>,
    pub metadata: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostedRequest {
    pub endpoint: String,
    pub bearer: Option<String>,
    pub body: Value,
}

/// A fault of one outbound message.
#[derive(Debug, Clone, PartialEq)]
pub enum OutboundFault {
    /// Not sent; this is the result.
    Refuse(Value),
    /// Sent, without a result.
    HangAfter,
    /// Sent, then the connection is reset.
    ResetAfter,
    /// Sent; the result follows that of the next message.
    ResultReordered,
    /// Sent; the result is delayed.
    DelayAfter(Duration),
    /// Not sent, without a result.
    Hang,
    /// Not sent; the connection is reset.
    ResetBefore,
    /// Not sent; the response is not JSON.
    Garbage,
}

#[derive(Debug)]
pub(super) struct SocketState {
    pub(super) number: u64,
    pub(super) commands: VecDeque<SocketCommand>,
    pub(super) greeted: bool,
    pub(super) idle: bool,
    /// How many entries of the queue were sent.
    pub(super) sent: usize,
    /// Results to send after the next one.
    pub(super) delayed: Vec<String>,
}

#[derive(Debug, Clone)]
pub(super) enum SocketCommand {
    Text(String),
    Bytes(Vec<u8>),
    Close(u16, String),
    Silence,
}

impl Default for State {
    fn default() -> Self {
        Self {
            frames: Vec::new(),
            malformed_lines: 0,
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
            close_frames: VecDeque::new(),
            closes_after_descriptor: 0,
            ignored_hellos: 0,
            permissions: BTreeMap::new(),
            idle_after: Some(Duration::ZERO),
            faults: VecDeque::new(),
            faults_applied: 0,
            responses: VecDeque::new(),
            descriptors: BTreeMap::new(),
            results: BTreeMap::new(),
            last_number: 0,
        }
    }
}

impl State {
    #[must_use]
    pub fn frames(&self, kind: &str) -> Vec<&Value> {
        self.frames.iter().map(|(_, frame)| frame).filter(|frame| frame["type"] == kind).collect()
    }

    #[must_use]
    pub fn connections(&self) -> usize {
        self.bearers.len()
    }

    /// Open connections that have sent a hello.
    #[must_use]
    pub fn open(&self) -> usize {
        self.connections.iter().filter(|it| it.greeted).count()
    }

    #[must_use]
    pub fn backlog(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    pub(super) fn push(&mut self, kind: &str, name: &str, value: Value) -> String {
        let id = format!("buf-{}", self.next_number());
        let mut frame = json!({"type": kind, "bufferId": id});
        frame[name] = value;
        self.queue.push_back((id.clone(), format!("{frame}\n")));
        id
    }

    /// Takes the fault of this action, if it is a message that matches one.
    pub(super) fn take_fault(&mut self, action: &Value) -> Option<OutboundFault> {
        if !matches!(action["op"].as_str(), Some("send" | "send_media" | "edit")) {
            return None;
        }
        let text = action["content"].as_str().unwrap_or_default();
        let at = self.faults.iter().position(|(matches, _)| matches(text))?;
        self.faults_applied += 1;
        self.faults.remove(at).map(|(_, fault)| fault)
    }

    pub(super) fn command_all(&mut self, command: &SocketCommand) {
        self.connections.iter_mut().for_each(|it| it.commands.push_back(command.clone()));
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
            if at < connection.sent {
                connection.sent -= 1;
            }
        }
    }

    /// Performs an action as a platform would.
    pub(super) fn perform(&mut self, action: &Value) -> Value {
        let text = |name: &str| action[name].as_str().unwrap_or_default().to_owned();
        let op = action["op"].as_str().unwrap_or_default();
        let chat = match (op, self.permissions.get(&(text("session_key"), text("kind")))) {
            ("follow_up", Some(chat)) => chat.clone(),
            ("follow_up", None) => {
                return json!({"success": false, "error": "no permission for this follow-up"});
            }
            (_in_chat, _) => text("chat_id"),
        };
        match op {
            "send" | "send_media" | "follow_up" => {
                let id = format!("out-{}", self.next_number());
                let message = ConnectorMessage {
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
                let reaction = (chat, text("message_id"), text("emoji"));
                self.reactions.retain(|known| *known != reaction);
                if action["remove"] != true {
                    self.reactions.push(reaction);
                }
                json!({"success": true})
            }
            "typing" => json!({"success": true}),
            other => json!({"success": false, "error": format!("unsupported op: {other}")}),
        }
    }
}
