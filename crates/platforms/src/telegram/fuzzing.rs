//! Parses bytes as an update.

use petasos_core::Platform;
use serde_json::value::RawValue;

use super::filter::MessageFilter;
use super::wire::BotUser;
use super::{Config, parse};
use crate::Secret;

/// Whether it became an event.
pub fn update(bytes: &[u8]) -> bool {
    let Ok(raw) = serde_json::from_slice::<Box<RawValue>>(bytes) else { return false };
    let Ok(filter) = MessageFilter::new(&Config::new(Secret::new("1:a"))) else { return false };
    let me = BotUser { id: 42, username: "petasos_bot".into() };
    let _id = parse::update_id(&raw);
    let event =
        Platform::parse("telegram").and_then(|platform| parse::inbound(&raw, platform, &me, &filter).ok());
    event.flatten().is_some()
}
