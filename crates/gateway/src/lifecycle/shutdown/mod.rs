//! Whether the ways in are open, closed, or failed.
//!
//! One value, watched by every task: when it changes, they end. It changes only after turns had their time (see
//! `stop`), or when a part we cannot live without has ended.

pub(crate) mod drain;
pub(crate) mod running;
pub(crate) mod watchdog;

use tokio::sync::watch;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Running,
    Stopping,
    /// Something we cannot live without has ended.
    Failed,
}

/// Watches the phase and can end it.
#[derive(Debug, Clone)]
pub struct Stopper(watch::Sender<Phase>);

impl Default for Stopper {
    fn default() -> Self {
        Self(watch::Sender::new(Phase::Running))
    }
}

impl Stopper {
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
        // The sender lives in `self`, so this cannot end by itself.
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
