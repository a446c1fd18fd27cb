//! Lifecycle of the process: startup, the accept gate, heartbeat, drain and shutdown.

pub(crate) mod config;
pub(crate) mod gate;
pub(crate) mod heartbeat;
pub(crate) mod lifetime;
pub(crate) mod marker_watcher;
pub mod sd_notify;
pub(crate) mod shutdown;
pub(crate) mod startup;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use petasos_core::Millis;

use crate::clock;
use crate::links::supervisor::LinkHandle;
use crate::storage::restart_counts::FailureCountsFile;
use gate::AcceptGate;
use lifetime::Lifetime;
use shutdown::ShutdownHandle;
use startup::quarantine::Quarantine;

/// Lifecycle handles of the gateway. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Lifecycle {
    pub(crate) gate: AcceptGate,
    pub(crate) shutdown: ShutdownHandle,
    pub(crate) lifetime: Arc<Lifetime>,
    /// Messages accepted before this belong to the previous process, which promised their answers.
    pub(crate) started_at: Millis,
    /// State of the `.restart_failure_counts` file.
    pub(crate) counts: Arc<FailureCountsFile>,
    pub(crate) quarantine: Arc<Quarantine>,
    pub(crate) links: Arc<OnceLock<Vec<LinkHandle>>>,
}

impl Lifecycle {
    pub(crate) fn age(&self) -> Duration {
        clock::now().since(self.started_at)
    }
}
