//! The shutdown handle: one value that every task watches, and that ends them when it changes.
//!
//! It changes after the drain (see `drain`), or when a vital task has failed.

pub(crate) mod drain;
pub(crate) mod running;
pub(crate) mod watchdog;

use tokio::sync::watch;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Running,
    Stopping,
    Failed,
}

/// Watches the phase, and starts the stop.
#[derive(Debug, Clone)]
pub struct ShutdownHandle(watch::Sender<Phase>);

impl Default for ShutdownHandle {
    fn default() -> Self {
        Self(watch::Sender::new(Phase::Running))
    }
}

impl ShutdownHandle {
    pub fn phase(&self) -> Phase {
        *self.0.borrow()
    }

    pub fn stopping(&self) -> bool {
        self.phase() != Phase::Running
    }

    pub fn failed(&self) -> bool {
        self.phase() == Phase::Failed
    }

    pub fn stop(&self) {
        self.end(Phase::Stopping);
    }

    pub fn fail(&self) {
        self.end(Phase::Failed);
    }

    /// Resolves when stopping begins.
    pub async fn stopped(&self) {
        // Cannot fail: the sender lives in `self`.
        let _ = self.0.subscribe().wait_for(|phase| *phase != Phase::Running).await;
    }

    fn end(&self, phase: Phase) {
        self.0.send_if_modified(|now| {
            let first = *now == Phase::Running;
            if first {
                *now = phase;
            }
            first
        });
    }
}
