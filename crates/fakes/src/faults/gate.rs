//! Gates stop requests inside a fake until the test releases them.
//!
//! A test waits until a request has arrived, acts (kills the gateway, for example) and opens the gate. A request whose
//! client hangs up at the gate is dropped.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::server::watched::Watched;

/// The test's handle of a gate. Dropping it opens the gate, so that a failed test leaves no request hanging.
#[derive(Debug)]
pub struct Gate(Arc<Barrier>);

impl Gate {
    /// A closed gate that stops no requests yet.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::default())
    }

    /// Waits until `count` requests are at the gate at the same time.
    #[must_use]
    pub fn wait_for(&self, count: u64, timeout: Duration) -> bool {
        self.0.counts.wait_until(timeout, |counts| (counts.waiting >= count).then_some(())).is_some()
    }

    #[must_use]
    pub fn wait(&self, timeout: Duration) -> bool {
        self.wait_for(1, timeout)
    }

    /// Waits until `count` requests have left the gate because their client hung up.
    #[must_use]
    pub fn wait_gone(&self, count: u64, timeout: Duration) -> bool {
        self.0.counts.wait_until(timeout, |counts| (counts.gone >= count).then_some(())).is_some()
    }

    /// The number of requests at the gate now.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.0.counts.read(|counts| counts.waiting)
    }

    /// The number of requests that ever reached the gate.
    #[must_use]
    pub fn arrived(&self) -> u64 {
        self.0.counts.read(|counts| counts.arrived)
    }

    /// Releases one waiting request, or else the next one.
    pub fn pass_one(&self) {
        self.0.counts.change(|counts| counts.permits += 1);
        self.0.moved.notify_waiters();
    }

    /// Releases all requests, now and later.
    pub fn open(&self) {
        self.0.open();
    }

    pub(crate) fn barrier(&self) -> Arc<Barrier> {
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

/// The requests' side of a gate.
#[derive(Debug, Default)]
pub(crate) struct Barrier {
    counts: Watched<Counts>,
    moved: Notify,
}

#[derive(Debug, Default)]
struct Counts {
    open: bool,
    permits: u64,
    waiting: u64,
    arrived: u64,
    gone: u64,
}

impl Barrier {
    pub(crate) fn open(&self) {
        self.counts.change(|counts| counts.open = true);
        self.moved.notify_waiters();
    }

    pub(crate) fn is_open(&self) -> bool {
        self.counts.read(|counts| counts.open)
    }

    pub(crate) async fn pass(&self) {
        self.counts.change(|counts| {
            counts.arrived += 1;
            counts.waiting += 1;
        });
        let mut guard = WaitGuard { barrier: self, passed: false };
        loop {
            let moved = self.moved.notified();
            if self.counts.change(Counts::may_pass) {
                guard.passed = true;
                return;
            }
            moved.await;
        }
    }
}

impl Counts {
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

/// Keeps the counts right when the client hangs up and the waiting future is dropped.
struct WaitGuard<'a> {
    barrier: &'a Barrier,
    passed: bool,
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        let gone = u64::from(!self.passed);
        self.barrier.counts.change(|counts| {
            counts.waiting -= 1;
            counts.gone += gone;
        });
    }
}
