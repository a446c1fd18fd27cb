//! The life of the process: startup, the gate for new turns, heartbeat, drain and shutdown.

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
use crate::storage::restart_counts::Counts;
use gate::Gate;
use lifetime::Lifetime;
use shutdown::Stopper;
use startup::quarantine::Quarantine;

/// Whether turns may start and the process goes on, and what the process before this one left. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Lifecycle {
    pub(crate) gate: Gate,
    pub(crate) stopper: Stopper,
    pub(crate) lifetime: Arc<Lifetime>,
    /// Messages accepted before this were promised an answer by the process before us.
    pub(crate) started_at: Millis,
    /// What `.restart_failure_counts` has to follow.
    pub(crate) counts: Arc<Counts>,
    /// Suspects that are not resumed yet.
    pub(crate) quarantine: Arc<Quarantine>,
    /// Every link, once they are there.
    pub(crate) links: Arc<OnceLock<Vec<LinkHandle>>>,
}

impl Lifecycle {
    /// How long this process has been at it.
    pub(crate) fn age(&self) -> Duration {
        clock::now().since(self.started_at)
    }
}
