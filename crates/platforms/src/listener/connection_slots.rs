//! Connection limit that unauthenticated clients cannot exhaust.
//!
//! At the limit, the oldest unauthenticated connection is closed for a new one. If all have authenticated,
//! new connections wait.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

/// One connection; stored in the extensions of its requests.
#[derive(Debug, Clone, Default)]
pub struct ConnectionSlot(Arc<AtomicBool>);

impl ConnectionSlot {
    /// Protects the connection from eviction.
    pub fn mark_authenticated(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_authenticated(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub struct ConnectionSlots {
    free: Arc<Semaphore>,
    /// Oldest first; includes connections that are just ending.
    connections: VecDeque<(AbortHandle, ConnectionSlot)>,
}

impl ConnectionSlots {
    pub fn new(limit: usize) -> Self {
        Self::with_semaphore(Arc::new(Semaphore::new(limit)))
    }

    pub(crate) fn with_semaphore(free: Arc<Semaphore>) -> Self {
        Self { free, connections: VecDeque::new() }
    }

    /// Call with a connection at hand; its task drops the permit when it ends. `None` never occurs, since the
    /// semaphore is not closed.
    pub async fn acquire(&mut self) -> Option<OwnedSemaphorePermit> {
        self.evict_unauthenticated();
        self.free.clone().acquire_owned().await.ok()
    }

    pub fn register(&mut self, task: AbortHandle, slot: ConnectionSlot) {
        self.connections.push_back((task, slot));
    }

    fn evict_unauthenticated(&mut self) {
        self.connections.retain(|(task, _)| !task.is_finished());
        if self.free.available_permits() > 0 {
            return;
        }
        if let Some(at) = self.connections.iter().position(|(_, slot)| !slot.is_authenticated())
            && let Some((task, _)) = self.connections.remove(at)
        {
            tracing::debug!("connection limit reached; closing an unauthenticated connection");
            task.abort();
        }
    }
}
