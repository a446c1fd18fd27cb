//! The deciding half of Petasos: types and state machines without clock, socket, file or task.
//!
//! Everything here is a pure function of its arguments. Time and chance are passed in, what should
//! happen is returned as data (`Decision`: writes first, effects afterwards), and the shell in
//! `petasos-gateway` carries it out. `no_std` lets the compiler guard that rule.
#![no_std]

extern crate alloc;

pub mod access;
pub mod admission;
pub mod backoff;
pub mod capability;
pub mod command;
pub mod compaction;
pub mod cron;
pub mod dead;
pub mod directory;
pub mod fault;
pub mod ids;
pub mod journal;
pub mod lane;
pub mod lifecycle;
pub mod link;
pub mod media;
pub mod message;
pub mod net;
pub mod outage;
pub mod outbox;
pub mod pairing;
pub mod person;
pub mod platform;
pub mod provider;
pub mod rate_limit;
pub mod scan;
pub mod secret;
pub mod session;
pub mod target;
pub mod text;
pub mod time;
pub mod transcript;
pub mod turn;

pub use capability::Capabilities;
pub use fault::{Fault, Reached};
pub use ids::{InboxId, OutboxId, SessionId, SessionKey, TurnId};
pub use message::{Inbound, LaneId, LinkId, Route, Source};
pub use platform::Platform;
pub use provider::Provider;
pub use secret::Secret;
pub use time::Millis;
