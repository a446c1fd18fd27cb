//! The relay: the wire between a gateway, which dials, and a connector, which holds the platforms' credentials.
//!
//! Both ends decide here. `lines` and `frame` are the wire; `descriptor`, `event`, `forward`, `action` and `context`
//! what the frames carry; `token` and `address` how a gateway finds its connector and proves itself. `channel` is the
//! gateway's machine (dial, serve, go idle, sleep, dial again), `session` the connector's for one instance (queue,
//! window, flip).
//!
//! Nothing that comes over the wire can do worse than be skipped: what is malformed is named by an error and left
//! out, what is unknown is ignored, and everything has a limit.
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
pub use channel::{Channel, Terms};
pub use descriptor::{Descriptor, Descriptors};
pub use event::Event;
pub use forward::Forward;
pub use frame::{FromConnector, FromGateway, Malformed, TooLong};
pub use lines::Lines;
pub use session::Session;

/// The longest line that is read, and the longest message of the socket.
pub const LONGEST_READ: usize = 1 << 20;
/// The longest line that is written.
pub const LONGEST_WRITTEN: usize = 1_000_000;
/// Platforms that one socket may front.
pub const MOST_IDENTITIES: usize = 32;

/// How a connection is closed, and by whom it is understood.
pub mod close {
    pub const GOING_AWAY: u16 = 1001;
    pub const NO_HELLO: u16 = 1008;
    pub const TOO_BIG: u16 = 1009;
    pub const INTERNAL: u16 = 1011;
    pub const UNAUTHORIZED: u16 = 4401;
    pub const UNKNOWN_IDENTITY: u16 = 4404;
    pub const ACK_TIMEOUT: u16 = 4408;
    pub const SUPERSEDED: u16 = 4409;

    /// The reason that goes with `UNAUTHORIZED` when the token was good once.
    pub const EXPIRED: &str = "expired";
    pub const REFUSED: &str = "unauthorized";
}
