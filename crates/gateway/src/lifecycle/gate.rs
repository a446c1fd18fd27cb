//! The accept gate: decides whether a turn may start, and tracks the running turns.
//!
//! Owns the lifecycle state and the slots of all sessions, under one lock that is never held across an await. Checking the
//! gate and claiming a slot are atomic: after the first refusal no turn starts until the gate opens again, and every
//! started turn is counted. Nothing is persisted; after a crash there are no running turns.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use petasos_core::lifecycle::{
    ActiveTurn, Drain, Event, GateState, Lifecycle, NotAccepting, ShutdownReason, State, TurnActivity,
    TurnOrigin, wait_until,
};
use petasos_core::{Millis, SessionKey, TurnId};
use tokio::sync::watch;

use crate::clock;

#[derive(Debug, Clone)]
pub(crate) struct AcceptGate(Arc<GateInner>);

#[derive(Debug)]
struct GateInner {
    data: Mutex<GateData>,
    version: watch::Sender<u64>,
    cap: Option<usize>,
}

#[derive(Debug, Default)]
struct GateData {
    life: Lifecycle,
    holders: BTreeMap<u64, ActiveTurn>,
    next: u64,
    /// During shutdown: when running turns are interrupted.
    deadline: Option<Millis>,
    /// Interrupt the running turns without waiting.
    skip_all: bool,
    exit_reason: Option<String>,
    /// The gateway sleeps or is about to; the gate stays open.
    sleeping: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LifecycleSnapshot {
    pub state: State,
    pub drain: Option<Drain>,
    pub leaving: Option<ShutdownProgress>,
    /// The shutdown is part of a restart.
    pub restart_requested: bool,
    pub exit_reason: Option<String>,
    pub holders: Vec<ActiveTurn>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShutdownProgress {
    pub why: ShutdownReason,
    pub since: Millis,
    /// When turns that still run are interrupted.
    pub deadline: Option<Millis>,
}

impl GateData {
    fn snapshot(&self) -> LifecycleSnapshot {
        let leaving =
            self.life.shutdown().map(|(why, since)| ShutdownProgress { why, since, deadline: self.deadline });
        LifecycleSnapshot {
            state: match self.life.state() {
                State::Running if self.sleeping => State::Draining,
                state => state,
            },
            drain: self.life.drain().cloned(),
            leaving,
            restart_requested: self.life.gate() == GateState::ShuttingDown { restart: true },
            exit_reason: self.exit_reason.clone(),
            holders: self.holders.values().cloned().collect(),
        }
    }
}

impl LifecycleSnapshot {
    pub fn active(&self) -> usize {
        self.holders.len()
    }
}

impl AcceptGate {
    pub(crate) fn new(cap: Option<usize>) -> Self {
        let data = Mutex::new(GateData::default());
        let version = watch::Sender::new(0);
        Self(Arc::new(GateInner { data, version, cap }))
    }

    pub(crate) fn claim(&self, key: &SessionKey, claim: TurnOrigin) -> Result<GateSlot, NotAccepting> {
        let mut data = self.data();
        data.life.admits(claim, data.holders.len(), self.0.cap)?;
        let id = data.next;
        data.next += 1;
        let key = key.clone();
        let since = clock::now();
        let holder = ActiveTurn {
            key,
            origin: claim,
            turn: None,
            since,
            activity: TurnActivity::Starting,
            skipped: false,
            until: None,
        };
        data.holders.insert(id, holder);
        drop(data);
        self.notify_watchers();
        Ok(GateSlot { gate: self.clone(), id })
    }

    /// Applies an event to the lifecycle. Returns the new state if it must be published.
    pub(crate) fn apply(&self, event: Event) -> Option<State> {
        let mut data = self.data();
        let before = data.life.clone();
        let (life, published) = std::mem::take(&mut data.life).step(clock::now(), event);
        let changed = life != before;
        if before.drain().is_some() && life.drain().is_none() && life.shutdown().is_none() {
            // A cancelled drain leaves no per-turn settings behind.
            for holder in data.holders.values_mut() {
                (holder.skipped, holder.until) = (false, None);
            }
        }
        data.life = life;
        drop(data);
        if changed {
            self.notify_watchers();
        }
        published
    }

    /// Begins the shutdown; `reason` is reported in the status. Returns the shutdown reason in force, because a stronger
    /// request may have come before.
    pub(crate) fn shut_down(&self, why: ShutdownReason, reason: Option<String>) -> Option<ShutdownReason> {
        self.apply(Event::Shutdown(why));
        let mut data = self.data();
        let now = data.life.shutdown().map(|(why, _)| why);
        if now == Some(why) && data.exit_reason.is_none() {
            data.exit_reason = reason;
        }
        now
    }

    /// When the running turns are interrupted.
    pub(crate) fn set_deadline(&self, deadline: Millis) {
        self.data().deadline = Some(deadline);
        self.notify_watchers();
    }

    /// Stops waiting for running turns.
    pub(crate) fn skip_all(&self) {
        self.data().skip_all = true;
        self.notify_watchers();
    }

    /// Reports the gateway as draining until the guard is dropped.
    pub(crate) fn mark_sleeping(&self) -> SleepGuard {
        self.data().sleeping = true;
        self.notify_watchers();
        SleepGuard(self.clone())
    }

    pub(crate) fn state(&self) -> GateState {
        self.data().life.gate()
    }

    /// Whether a message received at this time waits for the next process instead of being refused: it arrived before
    /// the shutdown began, and the shutdown is part of a restart.
    pub(crate) fn defers_to_next_process(&self, received_at: Millis) -> bool {
        let shutdown = self.data().life.shutdown();
        shutdown.is_some_and(|(why, since)| why.expects_restart() && received_at < since)
    }

    /// Whether a message for this session is accepted: the gate is open, or the message can wait behind a running turn of
    /// the session.
    pub(crate) fn accepts(&self, key: &SessionKey) -> Result<(), NotAccepting> {
        let data = self.data();
        match data.life.gate() {
            GateState::Open => Ok(()),
            GateState::Draining | GateState::ShuttingDown { .. }
                if data.holders.values().any(|it| it.key == *key) =>
            {
                Ok(())
            }
            GateState::Draining => Err(NotAccepting::Draining),
            GateState::ShuttingDown { restart } => Err(NotAccepting::ShuttingDown { restart }),
        }
    }

    /// Stops waiting for a session. `false`: it has no running turn.
    pub(crate) fn skip(&self, key: &SessionKey) -> bool {
        self.change(key, |holder, _| holder.skipped = true).is_some()
    }

    /// Extends the wait for a session. `None`: it has no running turn.
    pub(crate) fn extend(&self, key: &SessionKey, by: Duration) -> Option<Millis> {
        self.change(key, |holder, deadline| holder.extend(deadline, by))
    }

    pub(crate) fn snapshot(&self) -> LifecycleSnapshot {
        self.data().snapshot()
    }

    /// Like `snapshot`, but never blocks.
    pub(crate) fn try_snapshot(&self) -> Option<LifecycleSnapshot> {
        let data = match self.0.data.try_lock() {
            Ok(data) => data,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(data.snapshot())
    }

    pub(crate) fn has_started(&self) -> bool {
        self.data().life.has_started()
    }

    /// Changes on every change of the gate.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.0.version.subscribe()
    }

    /// Resolves when the start is complete. `false`: the gateway shuts down instead.
    pub(crate) async fn started(&self) -> bool {
        let mut versions = self.watch();
        loop {
            let (leaves, started) = {
                let data = self.data();
                (data.life.shutdown().is_some(), data.life.has_started())
            };
            if leaves || started {
                return !leaves;
            }
            // The sender lives in `self`.
            let _ = versions.changed().await;
        }
    }

    /// Resolves when the shutdown begins.
    pub(crate) async fn leaving(&self) {
        let mut versions = self.watch();
        while self.data().life.shutdown().is_none() {
            // The sender lives in `self`.
            let _ = versions.changed().await;
        }
    }

    /// Resolves when no turn is running, or no running turn is waited for any more. Calls `step` at every change with the
    /// number of turns and the remaining time. Setting the wall clock does not change the wait.
    pub(crate) async fn drained(&self, deadline: Millis, mut step: impl FnMut(usize, Duration)) {
        let began = clock::monotonic();
        let wall = clock::now();
        let mut versions = self.watch();
        loop {
            versions.mark_unchanged();
            let now = wall.after(began.elapsed());
            let (until, count) = {
                let data = self.data();
                let until = wait_until(data.holders.values(), deadline, now);
                (until.filter(|_| !data.skip_all), data.holders.len())
            };
            let left = until.map(|until| until.since(now));
            step(count, left.unwrap_or_default());
            let Some(left) = left else { return };
            petasos_runtime::select! {
                _ = versions.changed() => {}
                () = clock::sleep(left) => {}
            }
        }
    }

    fn change<T>(&self, key: &SessionKey, change: impl FnOnce(&mut ActiveTurn, Millis) -> T) -> Option<T> {
        let mut data = self.data();
        let deadline = data.deadline.unwrap_or_else(clock::now);
        let changed = data.holders.values_mut().find(|it| it.key == *key).map(|it| change(it, deadline));
        drop(data);
        self.notify_watchers();
        changed
    }

    fn notify_watchers(&self) {
        self.0.version.send_modify(|version| *version += 1);
    }

    fn data(&self) -> MutexGuard<'_, GateData> {
        // No code under this lock can panic during a change.
        self.0.data.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Marks the gateway as sleeping; see [`AcceptGate::mark_sleeping`].
#[derive(Debug)]
pub(crate) struct SleepGuard(AcceptGate);

impl Drop for SleepGuard {
    fn drop(&mut self) {
        self.0.data().sleeping = false;
        self.0.notify_watchers();
    }
}

#[derive(Debug)]
pub(crate) struct GateSlot {
    gate: AcceptGate,
    id: u64,
}

impl GateSlot {
    /// Called when the turn is stored.
    pub(crate) fn set_turn(&self, turn: TurnId) {
        self.update(|holder| holder.turn = Some(turn));
    }

    pub(crate) fn set_activity(&self, activity: TurnActivity) {
        self.update(|holder| holder.activity = activity);
    }

    fn update(&self, change: impl FnOnce(&mut ActiveTurn)) {
        if let Some(holder) = self.gate.data().holders.get_mut(&self.id) {
            change(holder);
        }
        self.gate.notify_watchers();
    }
}

impl Drop for GateSlot {
    fn drop(&mut self) {
        self.gate.data().holders.remove(&self.id);
        self.gate.notify_watchers();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use petasos_core::lifecycle::marker::Marker;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn key(name: &str) -> SessionKey {
        SessionKey(name.into())
    }

    fn open_gate() -> AcceptGate {
        let gate = AcceptGate::new(None);
        gate.apply(Event::Started);
        gate
    }

    fn drain(gate: &AcceptGate) {
        gate.apply(Event::Marker(Some(Marker::default())));
    }

    #[test]
    fn drain_keeps_running_turns_and_releases_their_slots() {
        let gate = open_gate();
        let slot = gate.claim(&key("a"), TurnOrigin::User).unwrap();
        drain(&gate);
        assert_eq!(gate.snapshot().active(), 1);
        assert_eq!(gate.claim(&key("b"), TurnOrigin::User).unwrap_err(), NotAccepting::Draining);
        assert!(gate.accepts(&key("a")).is_ok() && gate.accepts(&key("b")).is_err());
        assert!(gate.skip(&key("a")));
        gate.apply(Event::Marker(None));
        assert!(!gate.snapshot().holders[0].skipped, "still skipped after the drain");
        drain(&gate);
        drop(slot);
        assert_eq!(gate.snapshot().active(), 0);
        gate.apply(Event::Marker(None));
        assert!(gate.claim(&key("b"), TurnOrigin::User).is_ok());
    }

    #[test]
    fn no_turn_starts_after_first_refusal_under_concurrency() {
        let gate = open_gate();
        let started = AtomicUsize::new(0);
        let refused = AtomicUsize::new(0);
        let late = AtomicUsize::new(0);
        let slots = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for runner in 0..8 {
                let gate = &gate;
                let started = &started;
                let refused = &refused;
                let late = &late;
                let slots = &slots;
                scope.spawn(move || {
                    for at in 0..500 {
                        let seen = refused.load(Ordering::SeqCst);
                        match gate.claim(&key(&format!("{runner}:{at}")), TurnOrigin::User) {
                            Ok(slot) => {
                                late.fetch_add(usize::from(seen > 0), Ordering::SeqCst);
                                started.fetch_add(1, Ordering::SeqCst);
                                slots.lock().unwrap().push(slot);
                            }
                            Err(NotAccepting::Draining) => drop(refused.fetch_add(1, Ordering::SeqCst)),
                            Err(other) => panic!("{other:?}"),
                        }
                        if runner == 0 && at == 250 {
                            drain(gate);
                        }
                    }
                });
            }
        });
        assert_eq!(late.into_inner(), 0, "started after a refusal");
        assert_eq!(gate.snapshot().active(), started.load(Ordering::SeqCst));
        assert_eq!(started.into_inner() + refused.into_inner(), 8 * 500);
    }

    #[tokio::test]
    async fn drained_resolves_after_last_turn_or_skip() {
        let gate = open_gate();
        let far = clock::now().after(Duration::from_secs(600));
        let a = gate.claim(&key("a"), TurnOrigin::User).unwrap();
        let b = gate.claim(&key("b"), TurnOrigin::User).unwrap();
        let waiting = petasos_runtime::spawn({
            let gate = gate.clone();
            async move { gate.drained(far, |_, _| {}).await }
        });
        drop(a);
        assert!(gate.skip(&key("b")) && !gate.skip(&key("a")));
        waiting.await.unwrap();
        assert_eq!(gate.snapshot().active(), 1);
        gate.set_deadline(clock::now());
        assert!(gate.extend(&key("b"), Duration::from_secs(60)).is_some());
        gate.skip_all();
        gate.drained(far, |_, _| {}).await;
        drop(b);
    }

    static SET_BACK: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

    #[tokio::test(start_paused = true)]
    async fn setting_clock_back_does_not_extend_shutdown() {
        let wall = |ms: u64| Millis(1_790_000_000_000 - ms);
        clock::replace(|| Millis(1_790_000_000_000 - SET_BACK.load(Ordering::SeqCst)));
        let gate = open_gate();
        let _works = gate.claim(&key("a"), TurnOrigin::User).unwrap();
        let other = gate.claim(&key("b"), TurnOrigin::User).unwrap();
        let began = clock::monotonic();
        let waiting = petasos_runtime::spawn({
            let gate = gate.clone();
            let mut longest = Duration::ZERO;
            async move {
                gate.drained(wall(0).after(Duration::from_secs(60)), |_, left| longest = longest.max(left))
                    .await;
                longest
            }
        });
        clock::sleep(Duration::from_secs(10)).await;
        SET_BACK.store(3_600_000, Ordering::SeqCst);
        drop(other);
        let longest = waiting.await.unwrap();
        let took = began.elapsed();
        assert!(took >= Duration::from_secs(60) && took < Duration::from_secs(61), "{took:?}");
        assert!(longest <= Duration::from_secs(60), "{longest:?}");
    }

    #[test]
    fn keeps_reason_of_the_shutdown_in_force() {
        let gate = open_gate();
        assert_eq!(gate.shut_down(ShutdownReason::Stop, Some("asked".into())), Some(ShutdownReason::Stop));
        assert_eq!(
            gate.shut_down(ShutdownReason::Signal, Some("SIGTERM".into())),
            Some(ShutdownReason::Stop)
        );
        assert_eq!(gate.snapshot().exit_reason.as_deref(), Some("asked"));
    }
}
