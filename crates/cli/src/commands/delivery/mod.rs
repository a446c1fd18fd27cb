//! Platform links and message delivery.

pub mod channels;
pub mod links;
pub mod outbox;
pub mod send;
