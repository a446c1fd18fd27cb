//! The other end of the relay: it holds the platforms' credentials, and everything that is owed to gateways which may
//! sleep, move or die.
//!
//! The life of an event, by file: an adapter hears it (supervised as in the gateway), `intake` asks `belong` whose it
//! is, `instance` has it appended and synced, and only then the platform is told; `socket` writes it to the gateway,
//! whose acknowledgement deletes it. What a gateway asks of a platform is done in `outbound`, by permissions that never
//! leave `vault`. `queue` is the one way to the queue; `wake` calls whoever sleeps; `routes` is the door, `guests` sees
//! that there is room for everybody, `manage` and `people` do what is asked over HTTP.
//!
//! Absent on purpose: turns and models (`gateway`, `agent`), SQL (`store`), decisions about the queue (`petasos_relay`).

mod belong;
mod config;
mod counts;
mod descriptor;
mod files;
mod guests;
mod instance;
mod intake;
mod limits;
mod manage;
mod outbound;
mod pace;
mod people;
mod proof;
mod queue;
mod requests;
mod routes;
mod say;
mod shell;
#[cfg(feature = "simulation")]
pub mod simulation;
mod socket;
mod start;
mod status;
mod sweep;
mod vault;
mod wake;
mod watch;

pub use config::{Config, DATABASE};
pub use start::{Running, StartError, start};
pub use status::{STATE, Status};
