//! The fields that the adapter reads of Slack's objects. Fields that Slack may leave out are optional;
//! unknown fields are ignored.

use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Debug, Deserialize)]
pub(super) struct SocketFrame {
    #[serde(rename = "type", default)]
    pub(super) kind: String,
    pub(super) envelope_id: Option<String>,
    /// Of a `disconnect`.
    pub(super) reason: Option<String>,
    pub(super) payload: Option<Box<RawValue>>,
    #[serde(default)]
    pub(super) accepts_response_payload: bool,
}

/// Even an unreadable envelope has an id.
#[derive(Deserialize)]
pub(super) struct EnvelopeId {
    pub(super) envelope_id: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct EventCallback {
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

/// Read before the event itself: other types have other fields.
#[derive(Debug, Deserialize)]
pub(super) struct EventType {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) subtype: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct SlackMessage {
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
    pub(super) files: Vec<SlackFile>,
}

#[derive(Debug, Deserialize)]
pub(super) struct SlackFile {
    pub(super) id: String,
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) mimetype: String,
    pub(super) subtype: Option<String>,
    pub(super) size: Option<u64>,
    pub(super) url_private: Option<String>,
    /// Stored outside Slack, at an address chosen by its author.
    #[serde(default)]
    pub(super) is_external: bool,
    pub(super) mode: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct SlashCommand {
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
    pub(super) user: SlackUser,
    pub(super) team: Option<ObjectId>,
    pub(super) channel: Option<ObjectId>,
    pub(super) container: Option<MessageContainer>,
    pub(super) message: Option<PressedMessage>,
    #[serde(default)]
    pub(super) actions: Vec<BlockAction>,
    pub(super) trigger_id: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct SlackUser {
    pub(super) id: String,
    pub(super) name: Option<String>,
    pub(super) username: Option<String>,
    pub(super) team_id: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ObjectId {
    pub(super) id: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct MessageContainer {
    pub(super) channel_id: Option<String>,
    pub(super) message_ts: Option<String>,
    pub(super) thread_ts: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct PressedMessage {
    pub(super) thread_ts: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct BlockAction {
    pub(super) value: Option<String>,
    pub(super) action_ts: Option<String>,
}

/// `apps.connections.open`
#[derive(Deserialize)]
pub(super) struct SocketUrl {
    pub(super) url: String,
}

/// `auth.test`
#[derive(Deserialize)]
pub(super) struct AuthTest {
    pub(super) team_id: String,
    pub(super) team: Option<String>,
    pub(super) user_id: String,
    pub(super) bot_id: Option<String>,
}

/// `chat.postMessage`
#[derive(Deserialize)]
pub(super) struct PostedMessage {
    pub(super) ts: String,
}

/// `files.getUploadURLExternal`
#[derive(Deserialize)]
pub(super) struct UploadTicket {
    pub(super) upload_url: String,
    pub(super) file_id: String,
}

/// `conversations.open`, `conversations.info`
#[derive(Deserialize)]
pub(super) struct ConversationInfo {
    pub(super) channel: ObjectId,
}

/// `users.info`
#[derive(Deserialize)]
pub(super) struct UserInfo {
    pub(super) user: UserDetails,
}

#[derive(Deserialize)]
pub(super) struct UserDetails {
    pub(super) name: Option<String>,
    pub(super) real_name: Option<String>,
    pub(super) profile: Option<UserProfile>,
}

#[derive(Deserialize)]
pub(super) struct UserProfile {
    pub(super) display_name: Option<String>,
}

/// `conversations.replies`
#[derive(Deserialize)]
pub(super) struct RepliesResponse {
    #[serde(default)]
    pub(super) messages: Vec<ThreadMessage>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ThreadMessage {
    pub(super) ts: String,
    pub(super) user: Option<String>,
    pub(super) bot_id: Option<String>,
    #[serde(default)]
    pub(super) text: String,
}
