//! The few fields we read of Discord's objects. Everything is optional that Discord may leave out, and
//! what we do not know is ignored: the full types of a library refuse a message for a field we never read.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use twilight_model::id::Id;
use twilight_model::id::marker::{ApplicationMarker, ChannelMarker, GuildMarker, MessageMarker, UserMarker};

/// When Discord's numbers begin, in milliseconds since 1970.
const EPOCH: u64 = 1_420_070_400_000;

/// When the thing with this number was made, in milliseconds since 1970.
pub(super) const fn made_at(id: u64) -> u64 {
    (id >> 22) + EPOCH
}

/// The smallest number that something made at `at` can have.
pub(super) const fn first_of(at: u64) -> u64 {
    at.saturating_sub(EPOCH) << 22
}

#[derive(Deserialize)]
pub(super) struct Frame {
    pub(super) op: u8,
    pub(super) s: Option<u64>,
    pub(super) t: Option<String>,
    pub(super) d: Option<Box<RawValue>>,
}

/// What an object calls itself, even one we cannot read.
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
    pub(super) guilds: Vec<Named>,
    pub(super) application: Option<Application>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Named {
    pub(super) id: Id<GuildMarker>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Application {
    pub(super) id: Id<ApplicationMarker>,
}

/// `GET /gateway/bot`.
#[derive(Debug, Deserialize)]
pub(super) struct Gateway {
    pub(super) url: String,
    pub(super) session_start_limit: Option<Starts>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Starts {
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
    pub(super) channels: Vec<Channel>,
    #[serde(default)]
    pub(super) threads: Vec<Channel>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Channel {
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
pub(super) struct Message {
    pub(super) id: Id<MessageMarker>,
    pub(super) channel_id: Id<ChannelMarker>,
    /// Missing in what REST tells, and in private.
    pub(super) guild_id: Option<Id<GuildMarker>>,
    pub(super) author: User,
    #[serde(default)]
    pub(super) content: String,
    #[serde(rename = "type", default)]
    pub(super) kind: u8,
    #[serde(default)]
    pub(super) mentions: Vec<User>,
    #[serde(default)]
    pub(super) attachments: Vec<File>,
    pub(super) referenced_message: Option<Box<Quoted>>,
    /// The author in this server; missing in what REST tells.
    pub(super) member: Option<Member>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Quoted {
    #[serde(default)]
    pub(super) content: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct File {
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
    pub(super) channel: Option<Channel>,
    pub(super) guild_id: Option<Id<GuildMarker>>,
    pub(super) member: Option<Member>,
    pub(super) user: Option<User>,
    pub(super) data: Option<Asked>,
    pub(super) message: Option<Anchor>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Member {
    pub(super) user: Option<User>,
    #[serde(default)]
    pub(super) roles: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Asked {
    /// Of a command.
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) options: Vec<Opt>,
    /// Of a button.
    pub(super) custom_id: Option<String>,
}

/// An option of a command: a value, or a command below the command.
#[derive(Debug, Deserialize)]
pub(super) struct Opt {
    #[serde(default)]
    pub(super) name: String,
    pub(super) value: Option<Value>,
    #[serde(default)]
    pub(super) options: Vec<Opt>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Anchor {
    pub(super) id: Id<MessageMarker>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_tell_the_time() {
        // The example of Discord's own documentation.
        assert_eq!(made_at(175_928_847_299_117_063), 1_462_015_105_796);
        assert_eq!(made_at(first_of(1_462_015_105_796)), 1_462_015_105_796);
        assert_eq!(first_of(5), 0);
    }
}
