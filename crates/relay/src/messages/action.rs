//! Operations that a gateway requests, and their answers.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use crate::wire::field;
use crate::wire::field::Object;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Action {
    Send {
        #[serde(deserialize_with = "text")]
        chat_id: String,
        #[serde(deserialize_with = "text")]
        content: String,
        #[serde(default, deserialize_with = "maybe")]
        reply_to: Option<String>,
        #[serde(default, deserialize_with = "open")]
        metadata: Object,
    },
    /// Name of a permission that the connector holds (`discord.interaction_token`), never the token.
    FollowUp {
        #[serde(deserialize_with = "text")]
        session_key: String,
        #[serde(deserialize_with = "text")]
        kind: String,
        #[serde(deserialize_with = "text")]
        content: String,
        #[serde(default, deserialize_with = "open")]
        metadata: Object,
    },
    #[serde(rename = "get_chat_info")]
    ChatInfo {
        #[serde(deserialize_with = "text")]
        chat_id: String,
    },
    Edit {
        #[serde(deserialize_with = "text")]
        chat_id: String,
        #[serde(deserialize_with = "text")]
        message_id: String,
        #[serde(deserialize_with = "text")]
        content: String,
        #[serde(default, deserialize_with = "open")]
        metadata: Object,
    },
    /// `None`: typing indicator; empty: clear it; otherwise a status text.
    Typing {
        #[serde(deserialize_with = "text")]
        chat_id: String,
        #[serde(default, deserialize_with = "maybe", skip_serializing_if = "Option::is_none")]
        content: Option<String>,
        #[serde(default, deserialize_with = "open")]
        metadata: Object,
    },
    Delete {
        #[serde(deserialize_with = "text")]
        chat_id: String,
        #[serde(deserialize_with = "text")]
        message_id: String,
        #[serde(default, deserialize_with = "open")]
        metadata: Object,
    },
    React {
        #[serde(deserialize_with = "text")]
        chat_id: String,
        #[serde(deserialize_with = "text")]
        message_id: String,
        #[serde(deserialize_with = "text")]
        emoji: String,
        #[serde(default)]
        remove: bool,
        #[serde(default, deserialize_with = "open")]
        metadata: Object,
    },
    SendMedia {
        #[serde(deserialize_with = "text")]
        chat_id: String,
        media_kind: Media,
        #[serde(deserialize_with = "text")]
        source_url: String,
        #[serde(default, deserialize_with = "text")]
        content: String,
        #[serde(default, deserialize_with = "maybe", skip_serializing_if = "Option::is_none")]
        filename: Option<String>,
        #[serde(default, deserialize_with = "maybe")]
        reply_to: Option<String>,
        #[serde(default, deserialize_with = "open")]
        metadata: Object,
    },
    Prompt {
        #[serde(deserialize_with = "text")]
        chat_id: String,
        #[serde(deserialize_with = "text")]
        content: String,
        #[serde(deserialize_with = "text")]
        prompt_kind: String,
        #[serde(deserialize_with = "text")]
        prompt_id: String,
        options: Vec<Choice>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_s: Option<u64>,
        #[serde(default, deserialize_with = "maybe")]
        reply_to: Option<String>,
        #[serde(default, deserialize_with = "open")]
        metadata: Object,
    },
    ThreadCreate {
        #[serde(deserialize_with = "text")]
        chat_id: String,
        #[serde(deserialize_with = "text")]
        thread_name: String,
        #[serde(default, deserialize_with = "maybe", skip_serializing_if = "Option::is_none")]
        message_id: Option<String>,
        #[serde(default, deserialize_with = "open")]
        metadata: Object,
    },
    Draft {
        #[serde(deserialize_with = "text")]
        chat_id: String,
        draft_id: u64,
        #[serde(deserialize_with = "text")]
        content: String,
        #[serde(rename = "final", default)]
        is_final: bool,
        #[serde(default, deserialize_with = "open")]
        metadata: Object,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Media {
    Image,
    Voice,
    Audio,
    Video,
    Document,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    pub id: String,
    pub label: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub style: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ActionError {
    Unsupported(String),
    /// Known operation, invalid fields.
    Malformed(String),
}

impl fmt::Display for ActionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(op) => write!(f, "unsupported op: {op}"),
            Self::Malformed(op) => write!(f, "malformed op: {op}"),
        }
    }
}

/// Prefix in place of a message id: the answer uses a permission that the connector holds for the conversation.
const HELD: &str = "held:";

/// Builds the id that names this kind of permission.
pub fn held(kind: &str) -> String {
    format!("{HELD}{kind}")
}

/// The kind of permission; `None`: a plain message id.
pub fn held_kind(message: &str) -> Option<&str> {
    message.strip_prefix(HELD)
}

const OPS: [&str; 11] = [
    "send",
    "follow_up",
    "get_chat_info",
    "edit",
    "typing",
    "delete",
    "react",
    "send_media",
    "prompt",
    "thread_create",
    "draft",
];
const LONGEST_OP: usize = 64;

impl Action {
    pub fn read(value: &Value) -> Result<Self, ActionError> {
        let op = value.get("op").and_then(Value::as_str).unwrap_or_default();
        let named = || op.chars().take(LONGEST_OP).collect();
        if !OPS.contains(&op) {
            return Err(ActionError::Unsupported(named()));
        }
        Self::deserialize(value).map_err(|_| ActionError::Malformed(named()))
    }

    pub fn value(&self) -> Value {
        // Cannot fail: text, numbers and maps with text keys.
        serde_json::to_value(self).unwrap_or_default()
    }

    pub const fn op(&self) -> &'static str {
        match self {
            Self::Send { .. } => "send",
            Self::FollowUp { .. } => "follow_up",
            Self::ChatInfo { .. } => "get_chat_info",
            Self::Edit { .. } => "edit",
            Self::Typing { .. } => "typing",
            Self::Delete { .. } => "delete",
            Self::React { .. } => "react",
            Self::SendMedia { .. } => "send_media",
            Self::Prompt { .. } => "prompt",
            Self::ThreadCreate { .. } => "thread_create",
            Self::Draft { .. } => "draft",
        }
    }

    pub fn chat(&self) -> Option<&str> {
        match self {
            Self::Send { chat_id, .. }
            | Self::ChatInfo { chat_id }
            | Self::Edit { chat_id, .. }
            | Self::Typing { chat_id, .. }
            | Self::Delete { chat_id, .. }
            | Self::React { chat_id, .. }
            | Self::SendMedia { chat_id, .. }
            | Self::Prompt { chat_id, .. }
            | Self::ThreadCreate { chat_id, .. }
            | Self::Draft { chat_id, .. } => Some(chat_id),
            Self::FollowUp { .. } => None,
        }
    }

    pub const fn metadata(&self) -> Option<&Object> {
        match self {
            Self::Send { metadata, .. }
            | Self::FollowUp { metadata, .. }
            | Self::Edit { metadata, .. }
            | Self::Typing { metadata, .. }
            | Self::Delete { metadata, .. }
            | Self::React { metadata, .. }
            | Self::SendMedia { metadata, .. }
            | Self::Prompt { metadata, .. }
            | Self::ThreadCreate { metadata, .. }
            | Self::Draft { metadata, .. } => Some(metadata),
            Self::ChatInfo { .. } => None,
        }
    }

    /// The platform of the permission; `None`: sent to a chat.
    pub fn named_platform(&self) -> Option<&str> {
        match self {
            Self::FollowUp { kind, .. } => kind.split('.').next(),
            _said_in_a_chat => None,
        }
    }

    pub fn thread(&self) -> Option<String> {
        field::given(self.metadata()?, "thread_id")
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answer {
    pub success: bool,
    pub message_id: Option<String>,
    pub error: Option<String>,
    pub code: Option<String>,
    /// Unknown outcome: only the answer is missing.
    pub ambiguous: bool,
    /// Rate limit of the platform in seconds. Extension; other implementations ignore it.
    pub retry_after: Option<u64>,
    pub more: Object,
}

/// This gateway may not write to the chat, by any operation.
pub const DECLINED: &str = "egress_declined";

/// This request is refused for good.
pub const REFUSED: &str = "refused";

impl Answer {
    pub fn read(object: &Object) -> Self {
        let own = ["success", "message_id", "error", "code", "ambiguous", "retry_after"];
        Self {
            success: field::truth(object, "success"),
            message_id: field::given(object, "message_id"),
            error: field::given(object, "error"),
            code: field::given(object, "code"),
            ambiguous: field::truth(object, "ambiguous"),
            retry_after: object.get("retry_after").and_then(Value::as_u64),
            more: object.iter().filter(|(name, _)| !own.contains(&name.as_str())).map(both).collect(),
        }
    }

    pub fn value(&self) -> Value {
        let mut object = self.more.clone();
        object.insert("success".into(), Value::Bool(self.success));
        for (name, value) in [
            ("message_id", self.message_id.clone().map(Value::String)),
            ("error", self.error.clone().map(Value::String)),
            ("code", self.code.clone().map(Value::String)),
            ("ambiguous", self.ambiguous.then_some(Value::Bool(true))),
            ("retry_after", self.retry_after.map(Value::from)),
        ] {
            if let Some(value) = value {
                object.insert(name.into(), value);
            }
        }
        Value::Object(object)
    }

    pub fn sent(message_id: Option<String>) -> Self {
        Self { success: true, message_id, ..Self::default() }
    }

    pub fn failed(error: impl Into<String>) -> Self {
        Self { error: Some(error.into()), ..Self::default() }
    }

    /// Retrying is useless.
    pub fn refused(error: impl Into<String>) -> Self {
        Self { code: Some(REFUSED.into()), ..Self::failed(error) }
    }

    pub fn doubtful(error: impl Into<String>) -> Self {
        Self { ambiguous: true, ..Self::failed(error) }
    }

    pub fn declined() -> Self {
        Self { code: Some(DECLINED.into()), ..Self::failed("egress declined: not a chat of this gateway") }
    }

    pub fn is_declined(&self) -> bool {
        self.code.as_deref() == Some(DECLINED)
            || self.error.as_deref().is_some_and(|error| error.contains("egress declined:"))
    }

    /// Name and type of the requested chat.
    pub fn chat_info(&self, chat_id: &str) -> (String, String) {
        let info =
            field::object(&self.more, "chat_info").filter(|info| !info.is_empty()).unwrap_or(&self.more);
        let name = field::given(info, "name").unwrap_or_else(|| chat_id.into());
        (name, field::given(info, "type").unwrap_or_else(|| "dm".into()))
    }
}

fn both((name, value): (&String, &Value)) -> (String, Value) {
    (name.clone(), value.clone())
}

fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let value = Value::deserialize(deserializer)?;
    field::scalar(&value).ok_or_else(|| serde::de::Error::custom("not a text"))
}

fn maybe<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(field::scalar(&Value::deserialize(deserializer)?))
}

/// A value that is not an object counts as empty.
fn open<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Object, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Object(object) => Ok(object),
        _other => Ok(json!({}).as_object().cloned().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn actions_survive_the_wire() {
        let send = Action::Send {
            chat_id: "c1".into(),
            content: "hi".into(),
            reply_to: None,
            metadata: json!({"scope_id": "g1"}).as_object().unwrap().clone(),
        };
        let want = json!({"op": "send", "chat_id": "c1", "content": "hi", "reply_to": null, "metadata": {"scope_id": "g1"}});
        assert_eq!(send.value(), want);
        assert_eq!(Action::read(&want), Ok(send));
        let draft = json!({"op": "draft", "chat_id": "c", "draft_id": 7, "content": "x", "final": true, "metadata": {}});
        assert_eq!(Action::read(&draft).unwrap().value(), draft);
    }

    #[test]
    fn reads_every_known_operation() {
        let all = json!({
            "chat_id": 5, "content": "x", "session_key": "k", "kind": "discord.interaction_token", "message_id": 9,
            "emoji": "e", "media_kind": "voice", "source_url": "u", "prompt_kind": "choice", "prompt_id": "p",
            "options": [{"id": "a", "label": "A"}], "thread_name": "t", "draft_id": 1, "metadata": null,
        });
        for op in OPS {
            let mut action = all.clone();
            action["op"] = op.into();
            assert_eq!(Action::read(&action).map(|action| action.op()), Ok(op), "{op}");
        }
    }

    #[test]
    fn reports_unknown_operations() {
        let said = |value| Action::read(&value).unwrap_err().to_string();
        assert_eq!(said(json!({"op": "fly"})), "unsupported op: fly");
        assert_eq!(said(json!({})), "unsupported op: ");
        assert_eq!(said(json!(null)), "unsupported op: ");
        assert_eq!(said(json!({"op": "send", "chat_id": []})), "malformed op: send");
    }

    #[test]
    fn answers_survive_the_wire() {
        let result = json!({"success": true, "message_id": 7, "thread_id": "t"});
        let answer = Answer::read(result.as_object().unwrap());
        assert_eq!((answer.success, answer.message_id.as_deref()), (true, Some("7")));
        assert_eq!(answer.value(), json!({"success": true, "message_id": "7", "thread_id": "t"}));
        assert!(Answer::declined().is_declined());
        assert!(Answer::failed("x egress declined: y").is_declined());
        assert!(!Answer::failed("no").is_declined());
    }

    #[test]
    fn exposes_chat_thread_and_metadata() {
        let action = |op: &str| {
            let value = json!({
                "op": op, "chat_id": "c1", "content": "x", "session_key": "k", "kind": "discord.interaction_token",
                "message_id": "9", "emoji": "e", "media_kind": "voice", "source_url": "u", "prompt_kind": "choice",
                "prompt_id": "p", "options": [], "thread_name": "t", "draft_id": 1, "reply_to": 4,
                "metadata": {"thread_id": 77},
            });
            Action::read(&value).unwrap()
        };
        for op in OPS {
            let (chat, thread, platform) = match op {
                "get_chat_info" => (Some("c1"), None, None),
                "follow_up" => (None, Some("77"), Some("discord")),
                _all_others => (Some("c1"), Some("77"), None),
            };
            let action = action(op);
            assert_eq!((action.chat(), action.thread().as_deref()), (chat, thread), "{op}");
            assert_eq!(
                (action.named_platform(), action.metadata().is_some()),
                (platform, thread.is_some()),
                "{op}"
            );
        }
        assert!(matches!(action("send"), Action::Send { reply_to: Some(id), .. } if id == "4"));
    }

    #[test]
    fn named_permission_replaces_message_id() {
        let held = held("discord.interaction_token");
        assert_eq!(
            (held.as_str(), held_kind(&held)),
            ("held:discord.interaction_token", Some("discord.interaction_token"))
        );
        assert_eq!(held_kind("12345"), None);
    }

    #[test]
    fn encodes_every_kind_of_answer() {
        for (answer, want) in [
            (Answer::sent(Some("7".into())), json!({"success": true, "message_id": "7"})),
            (Answer::sent(None), json!({"success": true})),
            (Answer::failed("no"), json!({"success": false, "error": "no"})),
            (Answer::refused("no"), json!({"success": false, "error": "no", "code": "refused"})),
            (Answer::doubtful("late"), json!({"success": false, "error": "late", "ambiguous": true})),
        ] {
            assert_eq!(answer.value(), want);
        }
        assert_eq!(Answer::declined().value()["code"], "egress_declined");
    }

    #[test]
    fn names_chat_by_id_without_metadata() {
        let info = |value: Value| Answer::read(value.as_object().unwrap()).chat_info("c1");
        assert_eq!(info(json!({"chat_info": {"name": "n", "type": "group"}})), ("n".into(), "group".into()));
        assert_eq!(info(json!({"name": "n", "chat_info": {}})), ("n".into(), "dm".into()));
        assert_eq!(info(json!({})), ("c1".into(), "dm".into()));
    }
}
