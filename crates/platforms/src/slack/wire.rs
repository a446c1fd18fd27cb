//! The few fields we read of Slack's objects. Everything is optional that Slack may leave out, and what we
//! do not know is ignored.

use serde::Deserialize;
use serde_json::value::RawValue;

/// Whatever comes over the socket.
#[derive(Debug, Deserialize)]
pub(super) struct Frame {
    #[serde(rename = "type", default)]
    pub(super) kind: String,
    pub(super) envelope_id: Option<String>,
    /// Of a `disconnect`.
    pub(super) reason: Option<String>,
    pub(super) payload: Option<Box<RawValue>>,
    #[serde(default)]
    pub(super) accepts_response_payload: bool,
}

/// What every envelope has, even one we cannot read.
#[derive(Deserialize)]
pub(super) struct Identified {
    pub(super) envelope_id: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Callback {
    pub(super) team_id: Option<String>,
    pub(super) context_team_id: Option<String>,
    #[serde(default)]
    pub(super) authorizations: Vec<Authorization>,
    pub(super) event: Box<RawValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Authorization {
    pub(super) team_id: Option<String>,
}

/// Enough to see whether an event is for us; those that are not have other shapes.
#[derive(Debug, Deserialize)]
pub(super) struct Typed {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) subtype: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Message {
    pub(super) channel: String,
    pub(super) channel_type: Option<String>,
    pub(super) user: Option<String>,
    pub(super) bot_id: Option<String>,
    /// Of a bot.
    pub(super) username: Option<String>,
    #[serde(default)]
    pub(super) text: String,
    pub(super) ts: String,
    pub(super) thread_ts: Option<String>,
    pub(super) parent_user_id: Option<String>,
    #[serde(default)]
    pub(super) files: Vec<File>,
}

#[derive(Debug, Deserialize)]
pub(super) struct File {
    pub(super) id: String,
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) mimetype: String,
    pub(super) subtype: Option<String>,
    pub(super) size: Option<u64>,
    pub(super) url_private: Option<String>,
    /// Kept elsewhere, at an address of somebody else's choice.
    #[serde(default)]
    pub(super) is_external: bool,
    pub(super) mode: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Command {
    pub(super) team_id: Option<String>,
    pub(super) channel_id: String,
    pub(super) channel_name: Option<String>,
    pub(super) user_id: String,
    pub(super) user_name: Option<String>,
    pub(super) command: String,
    #[serde(default)]
    pub(super) text: String,
    pub(super) response_url: Option<String>,
    pub(super) trigger_id: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Interaction {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) user: User,
    pub(super) team: Option<Numbered>,
    pub(super) channel: Option<Numbered>,
    pub(super) container: Option<Container>,
    pub(super) message: Option<Pressed>,
    #[serde(default)]
    pub(super) actions: Vec<Action>,
    pub(super) trigger_id: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct User {
    pub(super) id: String,
    pub(super) name: Option<String>,
    pub(super) username: Option<String>,
    pub(super) team_id: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Numbered {
    pub(super) id: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Container {
    pub(super) channel_id: Option<String>,
    pub(super) message_ts: Option<String>,
    pub(super) thread_ts: Option<String>,
}

/// The message below which a button was pressed.
#[derive(Debug, Deserialize)]
pub(super) struct Pressed {
    pub(super) thread_ts: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Action {
    pub(super) value: Option<String>,
    pub(super) action_ts: Option<String>,
}

/// `apps.connections.open`
#[derive(Deserialize)]
pub(super) struct Opened {
    pub(super) url: String,
}

/// `auth.test`
#[derive(Deserialize)]
pub(super) struct SignedIn {
    pub(super) team_id: String,
    pub(super) team: Option<String>,
    pub(super) user_id: String,
    pub(super) bot_id: Option<String>,
}

/// `chat.postMessage`
#[derive(Deserialize)]
pub(super) struct Posted {
    pub(super) ts: String,
}

/// `files.getUploadURLExternal`
#[derive(Deserialize)]
pub(super) struct Ticket {
    pub(super) upload_url: String,
    pub(super) file_id: String,
}

/// `conversations.open`
#[derive(Deserialize)]
pub(super) struct Conversation {
    pub(super) channel: Numbered,
}

/// `users.info`
#[derive(Deserialize)]
pub(super) struct Person {
    pub(super) user: Profiled,
}

#[derive(Deserialize)]
pub(super) struct Profiled {
    pub(super) name: Option<String>,
    pub(super) real_name: Option<String>,
    pub(super) profile: Option<Profile>,
}

#[derive(Deserialize)]
pub(super) struct Profile {
    pub(super) display_name: Option<String>,
}

/// `conversations.replies`
#[derive(Deserialize)]
pub(super) struct Replies {
    #[serde(default)]
    pub(super) messages: Vec<Earlier>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Earlier {
    pub(super) ts: String,
    pub(super) user: Option<String>,
    pub(super) bot_id: Option<String>,
    #[serde(default)]
    pub(super) text: String,
}
