//! The acting half of Petasos: it owns every task, carries out what `core` decides, and reports back.
//!
//! Absent on purpose: HTTP serving (`web`), SQL (`store`), wire formats (`platforms`, `agent`), and policy
//! (`core`). The life of a message, by file: `supervise` hears it, `ingest` puts it on disk, `router` finds
//! its session, `session` runs its turn, `deliver` takes the answer out. The life of the process: `start` and
//! `boot` take over from the one before, `gate` knows who works and whether more may, `lookout` watches for
//! markers, `stop` and `running` take everything apart.

mod approvals;
mod boot;
mod broken;
mod channels;
pub mod clock;
mod commit;
mod completions;
mod config;
mod connection;
mod counts;
pub mod cron;
mod db;
mod delegation;
mod deliver;
mod directory;
mod doze;
mod echo;
mod errands;
mod fetch;
mod file_loss;
mod gate;
mod handle;
pub mod home;
mod homes;
pub mod hooks;
mod ingest;
mod leftovers;
mod lifetime;
mod links;
mod lookout;
mod marks;
mod mirror;
pub mod network;
mod outages;
mod output;
mod pass_on;
mod post;
mod processes;
mod publish;
mod pulse;
mod quarantine;
mod questions;
mod rate_limits;
mod relay;
mod resume;
pub mod retention;
mod router;
mod running;
mod runs;
mod salvage;
pub mod sd;
mod session;
mod start;
mod status;
mod stop;
mod stopper;
mod supervise;
mod sweep;
mod takeover;
mod tasks;
mod view;
mod watchdog;

pub use approvals::Consent;
pub use commit::{Commit, Side};
/// What a connector is run with as well: the store's thread, supervised links, and how everything ends.
pub mod shell {
    pub use crate::db::{Db, Upkeep, Writer, start as open};
    pub use crate::rate_limits::keep as keep_rate_limits;
    pub use crate::stopper::Stopper;
    pub use crate::supervise::{Kept, LinkHandle, Taker, supervisor};
    pub use crate::tasks::vital;
}

pub use config::Compression;
pub use config::{Config, Page, Settings, Stall, Unbuilt};
pub use delegation::Delegating;
pub use deliver::{Policy, Reach, Streaming, Transport};
pub use doze::{Doze, Lever};
pub use fetch::Inward;
pub use gate::{Leaving, Situation};
pub use handle::{Handle, Leaver, Submitted};
pub use lifetime::{HomeChannel, Lifetime};
pub use output::Job;
pub use post::{Fate, Mirror, Post, Posted};
pub use running::{End, Running};
pub use runs::{
    Approval, NewSession, NotChanged, NotStarted, Once, Place, RunAsk, RunLimits, Started, Told, Wish,
    fresh_id,
};
pub use start::{DATABASE, StartError, start};
pub use status::{LinkStatus, Salvaged, Status};
pub use view::{Asked, Live, View};

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
