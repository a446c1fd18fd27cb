//! The acting half of Petasos: it owns every task, carries out what `core` decides, and reports back.
//!
//! Absent on purpose: HTTP serving (`web`), SQL (`store`), wire formats (`platforms`, `agent`), and policy
//! (`core`). The life of a message, by file: `supervise` hears it, `ingest` puts it on disk, `router` finds
//! its session, `session` runs its turn, `deliver` takes the answer out.

mod channels;
pub mod clock;
mod config;
mod db;
mod deliver;
mod handle;
mod ingest;
mod lifecycle;
mod mirror;
mod router;
mod session;
mod start;
mod status;
mod supervise;
mod tasks;
mod view;

pub use config::{Config, Settings};
pub use deliver::Streaming;
pub use handle::{Handle, Submitted};
pub use lifecycle::Phase;
pub use start::{DATABASE, Running, StartError, start};
pub use status::{LinkStatus, Status};
pub use view::{Live, View};

/// Why something asked of the gateway did not happen.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Store(petasos_store::Error),
    #[error("{0}")]
    Io(String),
    #[error("no such {0}")]
    NotFound(&'static str),
    #[error("the gateway is stopping")]
    Stopping,
}
