//! The relay protocol between a gateway, which dials, and a connector, which holds the platform credentials. Input from
//! the peer is never fatal: malformed lines are reported and skipped, unknown ones ignored, and everything is bounded.
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

/// Of a line that is read, and of a WebSocket message.
pub const LONGEST_READ: usize = 1 << 20;
pub const LONGEST_WRITTEN: usize = 1_000_000;
pub const MOST_IDENTITIES: usize = 32;

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
