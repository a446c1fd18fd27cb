//! A connection limit that strangers cannot use up, for every listener.
//!
//! When it is reached, the oldest connection that has not authenticated is closed for the new one. When all have
//! authenticated, new connections wait.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

/// The place of one connection; it is among the extensions of its requests.
#[derive(Debug, Clone, Default)]
pub struct Seat(Arc<AtomicBool>);

impl Seat {
    /// The connection has authenticated: it is not closed for another one any more.
    pub fn keep(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_kept(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The connections of one listener.
#[derive(Debug)]
pub struct Seats {
    free: Arc<Semaphore>,
    /// No more than there are permits, but for those that are just ending; the oldest first.
    taken: VecDeque<(AbortHandle, Seat)>,
}

impl Seats {
    pub fn new(limit: usize) -> Self {
        Self::of(Arc::new(Semaphore::new(limit)))
    }

    pub(crate) fn of(free: Arc<Semaphore>) -> Self {
        Self { free, taken: VecDeque::new() }
    }

    /// To be called with a connection at hand, whose task then drops the permit at its end. `None`: never, since the
    /// semaphore is not closed.
    pub async fn take(&mut self) -> Option<OwnedSemaphorePermit> {
        self.displace();
        self.free.clone().acquire_owned().await.ok()
    }

    pub fn occupy(&mut self, task: AbortHandle, seat: Seat) {
        self.taken.push_back((task, seat));
    }

    fn displace(&mut self) {
        self.taken.retain(|(task, _)| !task.is_finished());
        if self.free.available_permits() > 0 {
            return;
        }
        if let Some(at) = self.taken.iter().position(|(_, seat)| !seat.is_kept())
            && let Some((task, _)) = self.taken.remove(at)
        {
            tracing::debug!("connection limit reached; an unauthenticated connection is closed");
            task.abort();
        }
    }
}
