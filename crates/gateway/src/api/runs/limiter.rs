//! Limits concurrent API runs and reports when a run has ended.
//!
//! A run holds a [`RunPermit`] from before its commit until it is settled. A caller that finds no free permit queues for
//! [`RunLimits::queue_timeout`]; owners take turns, so that one busy client does not starve the others. All state is behind one
//! lock that is never held across an await, and none of it is on disk: a restart begins with every permit free.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use petasos_core::RunId;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLimits {
    pub max_concurrent: usize,
    /// How long a request may wait for a free permit.
    pub queue_timeout: Duration,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self { max_concurrent: 10, queue_timeout: Duration::from_secs(1) }
    }
}

const MAX_QUEUED: usize = 256;

#[derive(Debug, Clone)]
pub(crate) struct RunLimiter(Arc<RunLimiterInner>);

#[derive(Debug)]
struct RunLimiterInner {
    limits: RunLimits,
    state: Mutex<LimiterState>,
}

#[derive(Debug, Default)]
struct LimiterState {
    active: usize,
    /// One queue per owner, in round-robin order; none is empty.
    queues: VecDeque<(String, VecDeque<oneshot::Sender<RunPermit>>)>,
    runs: HashMap<RunId, TrackedRun>,
}

#[derive(Debug)]
struct TrackedRun {
    ended: watch::Sender<bool>,
    stopping: bool,
    permit: Option<RunPermit>,
}

/// The right to run; returned on drop.
#[derive(Debug)]
pub(crate) struct RunPermit {
    limiter: RunLimiter,
    /// Already handed to the next waiter.
    transferred: bool,
}

/// Resolves when a run is settled.
#[derive(Debug)]
pub(crate) struct RunCompletion {
    limiter: RunLimiter,
    run: RunId,
    ended: Option<watch::Receiver<bool>>,
}

impl RunLimiter {
    pub(crate) fn new(limits: RunLimits) -> Self {
        Self(Arc::new(RunLimiterInner { limits, state: Mutex::default() }))
    }

    pub(crate) fn limits(&self) -> RunLimits {
        self.0.limits
    }

    pub(crate) fn active(&self) -> usize {
        self.state().active
    }

    /// `None`: no permit became free within the queue timeout.
    pub(crate) async fn acquire(&self, owner: &str) -> Option<RunPermit> {
        let permit_rx = {
            let mut state = self.state();
            if state.active < self.0.limits.max_concurrent {
                state.active += 1;
                return Some(RunPermit { limiter: self.clone(), transferred: false });
            }
            if state.queues.iter().map(|(_, queue)| queue.len()).sum::<usize>() >= MAX_QUEUED {
                return None;
            }
            let (permit_tx, permit_rx) = oneshot::channel();
            match state.queues.iter_mut().find(|(name, _)| name == owner) {
                Some((_, queue)) => queue.push_back(permit_tx),
                None => state.queues.push_back((owner.to_owned(), VecDeque::from([permit_tx]))),
            }
            permit_rx
        };
        // A permit that arrives after the timeout is dropped, which returns it.
        timeout(self.0.limits.queue_timeout, permit_rx).await.ok()?.ok()
    }

    /// Called before the run is committed, so that a waiter cannot miss its end.
    pub(crate) fn track(&self, run: &RunId, permit: RunPermit) {
        let tracked = TrackedRun { ended: watch::Sender::new(false), stopping: false, permit: Some(permit) };
        self.state().runs.insert(run.clone(), tracked);
    }

    /// The run is settled, or never began.
    pub(crate) fn mark_ended(&self, run: &RunId) {
        let gone = self.state().runs.remove(run);
        // Outside the lock: dropping the permit takes it.
        if let Some(tracked) = gone {
            tracked.ended.send_replace(true);
        }
    }

    pub(crate) fn mark_stopping(&self, run: &RunId) {
        if let Some(tracked) = self.state().runs.get_mut(run) {
            tracked.stopping = true;
        }
    }

    pub(crate) fn is_stopping(&self, run: &RunId) -> bool {
        self.state().runs.get(run).is_some_and(|tracked| tracked.stopping)
    }

    /// `true`: this process started the run and it has not ended.
    pub(crate) fn watch(&self, run: &RunId) -> (RunCompletion, bool) {
        let mut state = self.state();
        let known = state.runs.contains_key(run);
        let fresh = || TrackedRun { ended: watch::Sender::new(false), stopping: false, permit: None };
        let ended = state.runs.entry(run.clone()).or_insert_with(fresh).ended.subscribe();
        (RunCompletion { limiter: self.clone(), run: run.clone(), ended: Some(ended) }, known)
    }

    fn state(&self) -> MutexGuard<'_, LimiterState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LimiterState {
    /// Takes the next waiter and moves its owner to the end of the rotation.
    fn next_waiter(&mut self) -> Option<oneshot::Sender<RunPermit>> {
        let (owner, mut queue) = self.queues.pop_front()?;
        let next = queue.pop_front();
        if !queue.is_empty() {
            self.queues.push_back((owner, queue));
        }
        next
    }
}

impl Drop for RunPermit {
    fn drop(&mut self) {
        if self.transferred {
            return;
        }
        loop {
            let mut state = self.limiter.state();
            let Some(next) = state.next_waiter() else {
                state.active -= 1;
                return;
            };
            drop(state);
            match next.send(RunPermit { limiter: self.limiter.clone(), transferred: false }) {
                Ok(()) => return,
                // The waiter timed out: offer the permit to the next one.
                Err(mut back) => back.transferred = true,
            }
        }
    }
}

impl RunCompletion {
    /// Returns when the run has ended, after `within` at the latest. Callers then read the store.
    pub(crate) async fn wait(&mut self, within: Duration) {
        let Some(ended) = &mut self.ended else { return };
        // A timeout and a dropped sender both mean: read the store.
        let _ = timeout(within, ended.wait_for(|ended| *ended)).await;
    }
}

impl Drop for RunCompletion {
    fn drop(&mut self) {
        self.ended = None;
        let mut state = self.limiter.state();
        let idle =
            state.runs.get(&self.run).is_some_and(|it| it.permit.is_none() && it.ended.receiver_count() == 0);
        let gone = if idle { state.runs.remove(&self.run) } else { None };
        drop(state);
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter(max_concurrent: usize, queue_timeout: Duration) -> RunLimiter {
        RunLimiter::new(RunLimits { max_concurrent, queue_timeout })
    }

    #[tokio::test(start_paused = true)]
    async fn refuses_a_run_when_no_permit_becomes_free() {
        let limiter = limiter(2, Duration::from_secs(1));
        let a = limiter.acquire("x").await.unwrap();
        let b = limiter.acquire("x").await.unwrap();
        assert!(limiter.acquire("x").await.is_none(), "a third permit");
        drop(a);
        let c = limiter.acquire("x").await.expect("the returned permit");
        drop((b, c));
        assert_eq!(limiter.active(), 0);
    }

    #[tokio::test]
    async fn serves_the_queues_of_several_owners_in_turn() {
        let limiter = limiter(1, Duration::from_secs(60));
        let first = limiter.acquire("busy").await.unwrap();
        let (order, mut served) = tokio::sync::mpsc::channel(16);
        for owner in ["busy", "busy", "busy", "calm"] {
            let waiter = limiter.clone();
            let order = order.clone();
            let before: usize = limiter.state().queues.iter().map(|(_, queue)| queue.len()).sum();
            petasos_runtime::spawn(async move {
                let permit = waiter.acquire(owner).await.unwrap();
                order.send(owner).await.unwrap();
                drop(permit);
            });
            while limiter.state().queues.iter().map(|(_, queue)| queue.len()).sum::<usize>() == before {
                tokio::task::yield_now().await;
            }
        }
        drop(first);
        let mut seen = vec![];
        for _ in 0..4 {
            seen.push(served.recv().await.unwrap());
        }
        assert_eq!(seen, ["busy", "calm", "busy", "busy"]);
        while limiter.active() > 0 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn run_end_frees_its_permit_and_wakes_every_waiter() {
        let limiter = limiter(1, Duration::ZERO);
        let run = RunId::from("r");
        limiter.track(&run, limiter.acquire("x").await.unwrap());
        let (mut one, known) = limiter.watch(&run);
        let (mut two, _) = limiter.watch(&run);
        assert!(known && limiter.acquire("x").await.is_none());
        limiter.mark_ended(&run);
        one.wait(Duration::from_secs(60)).await;
        two.wait(Duration::from_secs(60)).await;
        assert!(limiter.acquire("x").await.is_some());
    }

    #[tokio::test]
    async fn forgets_an_unknown_run_when_its_watcher_is_dropped() {
        let limiter = limiter(1, Duration::ZERO);
        let (ending, known) = limiter.watch(&"old".into());
        assert!(!known);
        drop(ending);
        assert!(limiter.state().runs.is_empty());
    }
}
