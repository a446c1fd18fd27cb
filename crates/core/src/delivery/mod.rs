//! Delivery of messages to chats: outbox items, lanes, rate limits, dead chats and targets.

pub mod dead_chat;
pub mod directory;
pub mod lane;
pub mod outbox;
pub mod rate_limit;
pub mod target;
