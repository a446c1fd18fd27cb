//! Parses bytes as a message or an interaction of the gateway socket.

use petasos_core::Platform;

use super::Config;
use super::inbound::channel_cache::ChannelInfo;
use super::inbound::filter::MessageFilter;
use super::inbound::parse::{self, ChannelContext};
use super::wire::{DiscordMessage, Interaction};
use crate::Secret;

/// Whether it became an event.
pub fn event(bytes: &[u8]) -> bool {
    let Some(platform) = Platform::parse("discord") else { return false };
    let filter = MessageFilter::new(&Config::new(Secret::new("t")));
    let info = ChannelInfo::default();
    let names = ["7".to_owned()];
    let context = ChannelContext { platform, me: 900, info: &info, names: &names, joined: false };
    let message = serde_json::from_slice::<DiscordMessage>(bytes).ok();
    let interaction = serde_json::from_slice::<Interaction>(bytes).ok();
    message.is_some_and(|message| parse::message_event(&message, &context, &filter).is_some())
        || interaction.is_some_and(|it| parse::interaction_event(&it, &context, &filter).is_some())
}
