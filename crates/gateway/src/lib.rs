//! The acting half of Petasos: it owns every task, carries out what `core` decides, and reports back.
//!
//! Absent on purpose: HTTP serving (`web`), SQL (`store`), wire formats (`platforms`, `agent`), and policy (`core`).
//!
//! | folder | what it does |
//! |---|---|
//! | `links` | connections to platforms: supervisors, capabilities, outages, sleep and wake |
//! | `inbound` | access check, commit to the inbox, media download |
//! | `sessions` | the router, and one task per conversation that runs its turns |
//! | `delivery` | one lane per chat that sends what the outbox holds |
//! | `background` | cron, delegation, processes, hooks, notifications |
//! | `api` | the handle for web, terminal and commands; API runs; status |
//! | `lifecycle` | startup, the gate for new turns, drain and shutdown |
//! | `storage` | the database thread, files of the home, retention and cleanup |
//! | `runtime` | clock, named tasks, commit points |

mod api;
mod background;
mod delivery;
mod inbound;
mod lifecycle;
mod links;
mod runtime;
mod sessions;
mod storage;

pub use background::{cron, hooks};
pub use lifecycle::sd_notify as sd;
pub use links::network;
pub use runtime::clock;
#[cfg(feature = "simulation")]
pub use runtime::simulation;
pub use storage::{home, retention};

pub use runtime::commit::{Commit, Side};
pub use sessions::approvals::Consent;
/// What a connector is run with as well: the store's thread, supervised links, and how everything ends.
pub mod shell {
    pub use crate::lifecycle::shutdown::Stopper;
    pub use crate::links::rate_limits::keep as keep_rate_limits;
    pub use crate::links::supervisor::{Kept, LinkHandle, Taker, supervisor};
    pub use crate::runtime::tasks::vital;
    pub use crate::storage::database::{Db, Upkeep, Writer, start as open};
}

pub use api::handle::{Handle, Leaver, Submitted};
pub use api::runs::{
    Approval, NewSession, NotChanged, NotStarted, Once, Place, RunAsk, RunLimits, Started, Told, Wish,
    fresh_id,
};
pub use api::status::{LinkStatus, Salvaged, Status};
pub use background::delegation::Delegating;
pub use background::notifications::output::Job;
pub use background::notifications::{Fate, Mirror, Post, Posted};
pub use delivery::{Policy, Reach, Streaming, Transport};
pub use inbound::downloads::Inward;
pub use lifecycle::config::Compression;
pub use lifecycle::config::{Config, Page, Settings, Stall, Unbuilt};
pub use lifecycle::gate::{Leaving, Situation};
pub use lifecycle::lifetime::{HomeChannel, Lifetime};
pub use lifecycle::shutdown::running::{End, Running};
pub use lifecycle::startup::{DATABASE, StartError, start};
pub use links::idle::{Doze, Lever};
pub use sessions::view::{Asked, Live, View};

pub use petasos_agent::{ToolSpec, Toolset};
pub use petasos_store::{CardQuery, RowState, RunEnd, RunRow, Said, SessionCard, SessionRow};

use petasos_core::admission::Refusal;
use petasos_core::lifecycle::Closed;

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
    /// A platform that cannot be spoken as it is configured.
    #[error("{0}")]
    Unbuilt(String),
    #[error("{0} has no home yet: say /sethome in a chat there")]
    NoHome(petasos_core::Platform),
    /// No turn may start now.
    #[error("{}", Refusal::Closed(*.0).text())]
    Closed(Closed),
}
