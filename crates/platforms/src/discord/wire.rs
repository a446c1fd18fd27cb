//! Wire types: the few fields we read. Fields that Discord may omit are optional and unknown ones are
//! ignored; a library's full types would reject a message for a field we never read.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use twilight_model::id::Id;
use twilight_model::id::marker::{ApplicationMarker, ChannelMarker, GuildMarker, MessageMarker, UserMarker};

/// Start of Discord's ids, in milliseconds since 1970.
const EPOCH: u64 = 1_420_070_400_000;

/// Creation time of an id, in milliseconds since 1970.
pub(super) const fn made_at(id: u64) -> u64 {
    (id >> 22) + EPOCH
}

/// The smallest id created at `at`.
pub(super) const fn first_of(at: u64) -> u64 {
    at.saturating_sub(EPOCH) << 22
}

#[derive(Deserialize)]
pub(super) struct GatewayFrame {
    pub(super) op: u8,
    pub(super) s: Option<u64>,
    pub(super) t: Option<String>,
    pub(super) d: Option<Box<RawValue>>,
}

/// The object's id, even if the rest is unreadable.
pub(super) fn id_of(raw: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Identified {
        id: String,
    }
    serde_json::from_str::<Identified>(raw.get()).ok().map(|it| it.id)
}

#[derive(Deserialize)]
pub(super) struct Hello {
    pub(super) heartbeat_interval: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Ready {
    pub(super) user: User,
    pub(super) session_id: String,
    pub(super) resume_gateway_url: Option<String>,
    #[serde(default)]
    pub(super) guilds: Vec<UnavailableGuild>,
    pub(super) application: Option<Application>,
}

#[derive(Debug, Deserialize)]
pub(super) struct UnavailableGuild {
    pub(super) id: Id<GuildMarker>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Application {
    pub(super) id: Id<ApplicationMarker>,
}

/// `GET /gateway/bot`.
#[derive(Debug, Deserialize)]
pub(super) struct GatewayInfo {
    pub(super) url: String,
    pub(super) session_start_limit: Option<SessionStartLimit>,
}

#[derive(Debug, Deserialize)]
pub(super) struct SessionStartLimit {
    pub(super) remaining: u64,
    /// Milliseconds.
    pub(super) reset_after: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Guild {
    pub(super) id: Id<GuildMarker>,
    #[serde(default)]
    pub(super) unavailable: bool,
    #[serde(default)]
    pub(super) channels: Vec<DiscordChannel>,
    #[serde(default)]
    pub(super) threads: Vec<DiscordChannel>,
}

#[derive(Debug, Deserialize)]
pub(super) struct DiscordChannel {
    pub(super) id: Id<ChannelMarker>,
    #[serde(rename = "type", default)]
    pub(super) kind: u8,
    pub(super) guild_id: Option<Id<GuildMarker>>,
    pub(super) parent_id: Option<Id<ChannelMarker>>,
    pub(super) name: Option<String>,
    pub(super) last_message_id: Option<Id<MessageMarker>>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct User {
    pub(super) id: Id<UserMarker>,
    #[serde(default)]
    pub(super) username: String,
    pub(super) global_name: Option<String>,
    #[serde(default)]
    pub(super) bot: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct DiscordMessage {
    pub(super) id: Id<MessageMarker>,
    pub(super) channel_id: Id<ChannelMarker>,
    /// Missing over REST, and in private.
    pub(super) guild_id: Option<Id<GuildMarker>>,
    pub(super) author: User,
    #[serde(default)]
    pub(super) content: String,
    #[serde(rename = "type", default)]
    pub(super) kind: u8,
    #[serde(default)]
    pub(super) mentions: Vec<User>,
    #[serde(default)]
    pub(super) attachments: Vec<DiscordFile>,
    pub(super) referenced_message: Option<Box<Quoted>>,
    /// Missing over REST.
    pub(super) member: Option<Member>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Quoted {
    #[serde(default)]
    pub(super) content: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct DiscordFile {
    #[serde(default)]
    pub(super) filename: String,
    pub(super) content_type: Option<String>,
    pub(super) size: Option<u64>,
    pub(super) url: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Interaction {
    pub(super) id: String,
    pub(super) token: String,
    #[serde(rename = "type")]
    pub(super) kind: u8,
    pub(super) channel_id: Option<Id<ChannelMarker>>,
    pub(super) channel: Option<DiscordChannel>,
    pub(super) guild_id: Option<Id<GuildMarker>>,
    pub(super) member: Option<Member>,
    pub(super) user: Option<User>,
    pub(super) data: Option<InteractionData>,
    pub(super) message: Option<MessageRef>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Member {
    pub(super) user: Option<User>,
    #[serde(default)]
    pub(super) roles: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct InteractionData {
    /// Of a command.
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) options: Vec<CommandOption>,
    /// Of a button.
    pub(super) custom_id: Option<String>,
}

/// An option's value, or a subcommand.
#[derive(Debug, Deserialize)]
pub(super) struct CommandOption {
    #[serde(default)]
    pub(super) name: String,
    pub(super) value: Option<Value>,
    #[serde(default)]
    pub(super) options: Vec<CommandOption>,
}

#[derive(Debug, Deserialize)]
pub(super) struct MessageRef {
    pub(super) id: Id<MessageMarker>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_between_ids_and_timestamps() {
        // The example of Discord's documentation.
        assert_eq!(made_at(175_928_847_299_117_063), 1_462_015_105_796);
        assert_eq!(made_at(first_of(1_462_015_105_796)), 1_462_015_105_796);
        assert_eq!(first_of(5), 0);
    }
}
