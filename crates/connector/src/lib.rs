//! The relay's connector: holds platform credentials and the queues of gateways that sleep, move or crash.
//!
//! Path of an event: an adapter receives it, `inbound::sink` asks `inbound::routing` for the instance, the task in
//! `instances` appends it to the queue and syncs it, and only then the platform's cursor moves. `socket` sends it to
//! the gateway, whose acknowledgement deletes it. `outbound` performs gateway requests with permissions that stay in
//! `outbound::vault`. `http` serves sockets, files and management. `start` builds the handles that each of them uses.

mod adapters;
mod config;
mod database;
mod http;
mod inbound;
mod instances;
mod outbound;
mod process;
#[cfg(feature = "simulation")]
pub mod simulation;
mod socket;
mod start;

pub use config::{Config, DATABASE};
pub use process::status::ConnectorStatus;
pub use start::{RunningConnector, StartError, StopCause, start};
