//! The decisions of the gateway: types and state machines without clock, socket, file or task.
//!
//! Every function is pure. Time and randomness are arguments; effects are returned as data (`Decision`: writes first,
//! then effects) and carried out by `petasos-gateway`. `no_std` enforces this.
#![no_std]

extern crate alloc;

pub mod admission;
pub mod backoff;
pub mod command;
pub mod compaction;
pub mod cron;
pub mod delivery;
pub mod fault;
pub mod ids;
pub mod journal;
pub mod lifecycle;
pub mod link;
pub mod media;
pub mod message;
pub mod notices;
pub mod platform;
pub mod security;
pub mod session;
pub mod text;
pub mod time;
pub mod transcript;
pub mod turn;

pub use delivery::{dead_chat, directory, lane, outbox, rate_limit, target};
pub use link::outage;
pub use platform::{capability, provider};
pub use security::{access, credentials, net, pairing, person, redaction, scan, secret};

pub use capability::Capabilities;
pub use fault::{Fault, Reached};
pub use ids::{
    DelegationId, GatewayId, InboxId, InstanceId, OutboxId, RunId, SessionId, SessionKey, TenantId, TurnId,
};
pub use message::{Inbound, LaneId, LinkId, Route, Source};
pub use platform::Platform;
pub use provider::Provider;
pub use redaction::Redactor;
pub use secret::Secret;
pub use time::Millis;
