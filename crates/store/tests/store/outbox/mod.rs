//! The outbox: delivery states and dead chats.

mod dead_chats;
mod delivery;
