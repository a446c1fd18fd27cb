//! Connection limits: in total and per session.
//!
//! At the total limit, the oldest connection that has not authenticated is closed for a new one, so that anonymous connections
//! cannot exhaust the proxy.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{AbortHandle, JoinSet};

/// Protects a connection from eviction once it is set.
#[derive(Debug, Clone, Default)]
pub(super) struct AuthenticationMark(Arc<AtomicBool>);

impl AuthenticationMark {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A place for one connection.
#[derive(Debug)]
pub(super) struct TableSlot {
    pub(super) authenticated: AuthenticationMark,
    permit: OwnedSemaphorePermit,
}

/// The connections of one listener; dropping it closes them.
#[derive(Debug)]
pub(super) struct ConnectionTable {
    free: Arc<Semaphore>,
    tasks: JoinSet<()>,
    /// Oldest first.
    unauthenticated: VecDeque<(AbortHandle, AuthenticationMark)>,
}

impl ConnectionTable {
    pub(super) fn new(free: Arc<Semaphore>) -> Self {
        Self { free, tasks: JoinSet::new(), unauthenticated: VecDeque::new() }
    }

    /// Call with an accepted connection at hand. `None` never occurs, since the semaphore is not closed.
    pub(super) async fn acquire(&mut self) -> Option<TableSlot> {
        while self.tasks.try_join_next().is_some() {}
        self.unauthenticated.retain(|(task, mark)| !task.is_finished() && !mark.is_set());
        if self.free.available_permits() == 0
            && let Some((oldest, _)) = self.unauthenticated.pop_front()
        {
            tracing::debug!("connection limit reached; closing an unauthenticated connection");
            oldest.abort();
        }
        let permit = self.free.clone().acquire_owned().await.ok()?;
        Some(TableSlot { authenticated: AuthenticationMark::default(), permit })
    }

    pub(super) fn spawn(&mut self, slot: TableSlot, connection: impl Future<Output = ()> + Send + 'static) {
        let TableSlot { authenticated, permit } = slot;
        let connection = async move {
            let _permit = permit;
            connection.await;
        };
        let task = petasos_runtime::spawn_into(&mut self.tasks, connection);
        self.unauthenticated.push_back((task, authenticated));
    }
}

#[derive(Debug)]
pub(super) struct SessionSlots {
    limit: usize,
    used: Mutex<BTreeMap<String, usize>>,
}

/// A place of a session, given back when it is dropped.
#[derive(Debug)]
pub(super) struct SessionSlot {
    slots: Arc<SessionSlots>,
    session: String,
}

impl SessionSlots {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, used: Mutex::default() })
    }

    pub(super) fn acquire(self: &Arc<Self>, session: &str) -> Option<SessionSlot> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let count = used.entry(session.to_owned()).or_default();
        if *count >= self.limit {
            return None;
        }
        *count += 1;
        Some(SessionSlot { slots: self.clone(), session: session.to_owned() })
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        let mut used = self.slots.used.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = used.get_mut(&self.session) else { return };
        *count = count.saturating_sub(1);
        if *count == 0 {
            used.remove(&self.session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_has_a_limit_of_its_own() {
        let slots = SessionSlots::new(2);
        let held = [slots.acquire("a"), slots.acquire("a")];
        assert!(held.iter().all(Option::is_some));
        assert!(slots.acquire("a").is_none());
        assert!(slots.acquire("b").is_some(), "another session is not affected");
        drop(held);
        assert!(slots.acquire("a").is_some());
        assert!(slots.used.lock().unwrap().is_empty(), "no entry of an idle session is kept");
    }

    #[tokio::test]
    async fn anonymous_connections_give_way_to_new_ones() {
        let mut table = ConnectionTable::new(Arc::new(Semaphore::new(2)));
        let authenticated = table.acquire().await.unwrap();
        authenticated.authenticated.set();
        table.spawn(authenticated, std::future::pending());
        let anonymous = table.acquire().await.unwrap();
        table.spawn(anonymous, std::future::pending());
        let third = table.acquire().await.unwrap();
        table.spawn(third, std::future::pending());
        let evicted = table.tasks.join_next().await.unwrap();
        assert!(evicted.unwrap_err().is_cancelled());
        assert_eq!(table.tasks.len(), 2, "the authenticated connection and the new one");
    }
}
