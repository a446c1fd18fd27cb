//! The gateway: owns all tasks and carries out the decisions of `core`.
//!
//! Not in this crate: HTTP serving (`web`), SQL (`store`), wire formats (`platforms`, `agent`), and policy (`core`).
//!
//! | folder | what it does |
//! |---|---|
//! | `links` | connections to platforms: supervisors, capabilities, outages, sleep and wake |
//! | `inbound` | access check, commit to the inbox, media download |
//! | `sessions` | the router, and one task per session that runs its turns |
//! | `delivery` | one lane per chat that sends the items of the outbox |
//! | `notices` | every text that the gateway sends to chats |
//! | `background` | cron, delegation, processes, hooks, notifications |
//! | `api` | the handle for web, terminal and commands; API runs; status |
//! | `lifecycle` | startup, the accept gate, drain and shutdown |
//! | `storage` | the database thread, files of the home, retention and cleanup |
//! | `runtime` | clock, named tasks, commit points, fault injection |

mod api;
mod background;
mod delivery;
mod inbound;
mod lifecycle;
mod links;
mod notices;
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
pub use sessions::approvals::ApprovalSettings;
/// Parts that the connector shares: the database thread, link supervisors and the shutdown handle.
pub mod shell {
    pub use crate::lifecycle::shutdown::ShutdownHandle;
    pub use crate::links::rate_limits::persist as persist_rate_limits;
    pub use crate::links::supervisor::{AcceptedBatch, LinkHandle, LinkSink, supervisor};
    pub use crate::runtime::tasks::vital;
    pub use crate::storage::database::{Db, FileStatus, Writer, start as open};
    pub use crate::storage::salvage::{log_salvage, paced, pause_before_salvage};
}

pub use api::handle::{Handle, ShutdownTrigger, Submitted};
pub use api::runs::{
    HistoryMessage, IdempotencyKey, NewSession, RunApproval, RunLimits, RunOptions, RunRequest, RunTarget,
    SessionChangeError, StartRunError, StartedRun, fresh_id,
};
pub use api::status::{GatewayStatus, LinkStatus, Salvaged};
pub use background::delegation::DelegationSettings;
pub use background::notifications::output::OutputJob;
pub use background::notifications::{MirrorMode, Notification, NotificationOutcome, NotificationResult};
pub use delivery::{AttachmentPolicy, FileAccess, Streaming, Transport};
pub use inbound::downloads::DownloadSettings;
pub use lifecycle::config::CompactionSettings;
pub use lifecycle::config::{Config, LocalService, Settings, StallLimits, UnavailablePlatform};
pub use lifecycle::gate::{LifecycleSnapshot, ShutdownProgress};
pub use lifecycle::lifetime::{HomeChannel, Lifetime};
pub use lifecycle::shutdown::running::{ExitInfo, RunningGateway};
pub use lifecycle::startup::{DATABASE, StartError, start};
pub use links::idle::{IdleSettings, SuspendMethod};
pub use sessions::view::{LiveTurn, OpenQuestion, SessionView};

pub use petasos_agent::{ToolSpec, Toolset};
pub use petasos_store::{
    RowState, RunEnd, RunRow, SessionRow, SessionSummary, SessionSummaryQuery, TranscriptRow,
};

use petasos_core::admission::AdmissionRefusal;
use petasos_core::lifecycle::NotAccepting;

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Store(petasos_store::Error),
    #[error("{0}")]
    Io(String),
    #[error("there is no such {0}")]
    NotFound(&'static str),
    #[error("the gateway is stopping")]
    Stopping,
    /// A configured platform that cannot be used.
    #[error("{0}")]
    UnavailablePlatform(String),
    #[error("{0} has no home channel; send /sethome in a chat there to set it")]
    NoHome(petasos_core::Platform),
    /// The gate is closed.
    #[error("{}", AdmissionRefusal::NotAccepting(*.0).text())]
    Closed(NotAccepting),
}
