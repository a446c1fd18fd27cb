//! Gates: a place inside a fake where requests stop until the test lets them go on.
//!
//! A test waits until a request has arrived, does its deed (kills the gateway, say) and opens the gate.
//! A request whose client hangs up while it waits leaves the gate and goes no further.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::watched::Watched;

/// The test's side of a gate. Dropping it opens the gate for good, so that a failed test hangs nobody.
#[derive(Debug)]
pub struct Gate(Arc<Door>);

impl Gate {
    /// A closed gate that stands nowhere yet.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::default())
    }

    /// Waits until `count` requests stand at the gate at the same time.
    #[must_use]
    pub fn wait_for(&self, count: u64, timeout: Duration) -> bool {
        self.0.crowd.wait_until(timeout, |crowd| (crowd.waiting >= count).then_some(())).is_some()
    }

    /// Waits until a request stands at the gate.
    #[must_use]
    pub fn wait(&self, timeout: Duration) -> bool {
        self.wait_for(1, timeout)
    }

    /// Waits until `count` requests have left the gate because their client hung up.
    #[must_use]
    pub fn wait_gone(&self, count: u64, timeout: Duration) -> bool {
        self.0.crowd.wait_until(timeout, |crowd| (crowd.gone >= count).then_some(())).is_some()
    }

    /// How many stand at the gate now.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.0.crowd.read(|crowd| crowd.waiting)
    }

    /// How many ever came to the gate.
    #[must_use]
    pub fn arrived(&self) -> u64 {
        self.0.crowd.read(|crowd| crowd.arrived)
    }

    /// Lets one request pass: one that waits, else the next that comes.
    pub fn pass_one(&self) {
        self.0.crowd.change(|crowd| crowd.permits += 1);
        self.0.moved.notify_waiters();
    }

    /// Lets everybody pass, now and later.
    pub fn open(&self) {
        self.0.open();
    }

    pub(crate) fn door(&self) -> Arc<Door> {
        self.0.clone()
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

/// The fake's side of a gate.
#[derive(Debug, Default)]
pub(crate) struct Door {
    crowd: Watched<Crowd>,
    moved: Notify,
}

#[derive(Debug, Default)]
struct Crowd {
    open: bool,
    permits: u64,
    waiting: u64,
    arrived: u64,
    gone: u64,
}

impl Door {
    pub(crate) fn open(&self) {
        self.crowd.change(|crowd| crowd.open = true);
        self.moved.notify_waiters();
    }

    pub(crate) fn is_open(&self) -> bool {
        self.crowd.read(|crowd| crowd.open)
    }

    pub(crate) async fn pass(&self) {
        self.crowd.change(|crowd| {
            crowd.arrived += 1;
            crowd.waiting += 1;
        });
        let mut visit = Visit { door: self, passed: false };
        loop {
            let moved = self.moved.notified();
            if self.crowd.change(Crowd::may_pass) {
                visit.passed = true;
                return;
            }
            moved.await;
        }
    }
}

impl Crowd {
    fn may_pass(&mut self) -> bool {
        if self.open {
            return true;
        }
        let Some(left) = self.permits.checked_sub(1) else {
            return false;
        };
        self.permits = left;
        true
    }
}

/// Dropped unfinished when the client hangs up: the crowd must not count ghosts.
struct Visit<'a> {
    door: &'a Door,
    passed: bool,
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let gone = u64::from(!self.passed);
        self.door.crowd.change(|crowd| {
            crowd.waiting -= 1;
            crowd.gone += gone;
        });
    }
}
