//! The relay protocol between a gateway, which dials, and a connector, which holds the platform credentials.
//!
//! `wire` reads and writes lines and frames, `messages` are their payloads, `auth` finds and authenticates the peer.
//! `machines` holds the decisions of both ends: `channel` (connect, idle, sleep) for the gateway, `session` (queue,
//! window, idle flag) for one instance at the connector.
//!
//! Input from the peer is never fatal: malformed lines are reported and skipped, unknown ones ignored, and everything
//! is bounded.
#![no_std]

extern crate alloc;

mod auth;
mod machines;
mod messages;
mod wire;

pub use auth::{address, token};
pub use machines::{channel, idle, session};
pub use messages::{action, context, descriptor, event, forward};
pub use wire::{field, frame, lines};

pub use action::{Action, Answer, DECLINED, Media, REFUSED};
pub use channel::{Channel, ChannelPolicy};
pub use descriptor::{Descriptor, Descriptors};
pub use event::Event;
pub use forward::Forward;
pub use frame::{FromConnector, FromGateway, Malformed, TooLong};
pub use lines::Lines;
pub use session::Session;

/// Size limit of a line that is read, and of a WebSocket message.
pub const LONGEST_READ: usize = 1 << 20;
/// Size limit of a line that is written.
pub const LONGEST_WRITTEN: usize = 1_000_000;
/// Identities per socket.
pub const MOST_IDENTITIES: usize = 32;

/// Close codes and reasons.
pub mod close {
    pub const GOING_AWAY: u16 = 1001;
    pub const NO_HELLO: u16 = 1008;
    pub const TOO_BIG: u16 = 1009;
    pub const INTERNAL: u16 = 1011;
    pub const UNAUTHORIZED: u16 = 4401;
    pub const UNKNOWN_IDENTITY: u16 = 4404;
    pub const ACK_TIMEOUT: u16 = 4408;
    pub const SUPERSEDED: u16 = 4409;

    /// Reason with `UNAUTHORIZED` if the token was valid once.
    pub const EXPIRED: &str = "expired";
    pub const REFUSED: &str = "unauthorized";
}
