//! Who is at work, and whether more may start.
//!
//! Owns the lifecycle and the claims of all sessions, under one lock that is never held across a wait. To look
//! whether a turn may start and to claim its place are one act: once somebody was refused, nobody starts until
//! the door opens again, and everybody who starts is counted before they do anything. Nothing here is on disk:
//! after a crash nobody is at work.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use petasos_core::lifecycle::{
    Claim, Closed, Doing, Door, Drain, Event, Holder, Leave, Lifecycle, State, wait_until,
};
use petasos_core::{Millis, SessionKey, TurnId};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock;

#[derive(Debug, Clone)]
pub(crate) struct Gate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    book: Mutex<Book>,
    /// Moves whenever the book changes.
    edition: watch::Sender<u64>,
    cap: Option<usize>,
}

#[derive(Debug, Default)]
struct Book {
    life: Lifecycle,
    holders: BTreeMap<u64, Holder>,
    next: u64,
    /// When running turns are interrupted, once we leave.
    deadline: Option<Millis>,
    /// Somebody does not want to wait for the turns.
    hurried: bool,
    exit_reason: Option<String>,
    /// We lie down, or sleep: the door is open, and whoever comes is heard when we are back.
    dozing: bool,
}

/// What the gateway says of its life.
#[derive(Debug, Clone, PartialEq)]
pub struct Situation {
    pub state: State,
    /// The external drain.
    pub drain: Option<Drain>,
    pub leaving: Option<Leaving>,
    /// We leave, or have left, to come back.
    pub restart_requested: bool,
    pub exit_reason: Option<String>,
    pub holders: Vec<Holder>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaving {
    pub why: Leave,
    pub since: Millis,
    /// Turns that still run then are interrupted.
    pub deadline: Option<Millis>,
}

impl Book {
    fn situation(&self) -> Situation {
        let leaving = self.life.leaving().map(|(why, since)| Leaving { why, since, deadline: self.deadline });
        Situation {
            state: match self.life.state() {
                State::Running if self.dozing => State::Draining,
                state => state,
            },
            drain: self.life.drain().cloned(),
            leaving,
            restart_requested: self.life.door() == Door::Leaving { restart: true },
            exit_reason: self.exit_reason.clone(),
            holders: self.holders.values().cloned().collect(),
        }
    }
}

impl Situation {
    /// Sessions at work, those that are just beginning included.
    pub fn active(&self) -> usize {
        self.holders.len()
    }
}

impl Gate {
    pub(crate) fn new(cap: Option<usize>) -> Self {
        let (book, edition) = (Mutex::new(Book::default()), watch::Sender::new(0));
        Self(Arc::new(Inner { book, edition, cap }))
    }

    /// A place for one turn. It is given back when the slot is dropped, however that comes about.
    pub(crate) fn claim(&self, key: &SessionKey, claim: Claim) -> Result<Slot, Closed> {
        let mut book = self.book();
        book.life.admits(claim, book.holders.len(), self.0.cap)?;
        let id = book.next;
        book.next += 1;
        let (key, since) = (key.clone(), clock::now());
        let holder =
            Holder { key, claim, turn: None, since, doing: Doing::Starting, skipped: false, until: None };
        book.holders.insert(id, holder);
        drop(book);
        self.turn_page();
        Ok(Slot { gate: self.clone(), id })
    }

    /// Tells the lifecycle what happened. Gives back what is to be published.
    pub(crate) fn feed(&self, event: Event) -> Option<State> {
        let mut book = self.book();
        let before = book.life.clone();
        let (life, published) = std::mem::take(&mut book.life).step(clock::now(), event);
        let changed = life != before;
        if before.drain().is_some() && life.drain().is_none() && life.leaving().is_none() {
            // A drain that was taken back leaves no trace.
            for holder in book.holders.values_mut() {
                (holder.skipped, holder.until) = (false, None);
            }
        }
        book.life = life;
        drop(book);
        if changed {
            self.turn_page();
        }
        published
    }

    /// Begins to leave; `reason` is told to whoever asks afterwards. Gives what we leave for now: a stronger wish
    /// may have come before.
    pub(crate) fn leave(&self, why: Leave, reason: Option<String>) -> Option<Leave> {
        self.feed(Event::Leave(why));
        let mut book = self.book();
        let now = book.life.leaving().map(|(why, _)| why);
        if now == Some(why) && book.exit_reason.is_none() {
            book.exit_reason = reason;
        }
        now
    }

    /// The turns have until then.
    pub(crate) fn set_deadline(&self, deadline: Millis) {
        self.book().deadline = Some(deadline);
        self.turn_page();
    }

    /// No more waiting for turns.
    pub(crate) fn hurry(&self) {
        self.book().hurried = true;
        self.turn_page();
    }

    /// Told to onlookers until what it gives is dropped.
    pub(crate) fn doze(&self) -> Dozing {
        self.book().dozing = true;
        self.turn_page();
        Dozing(self.clone())
    }

    pub(crate) fn door(&self) -> Door {
        self.book().life.door()
    }

    /// Whether what was accepted then waits for the next process instead of being turned away: we leave, were asked
    /// to only afterwards, and will be back.
    pub(crate) fn keeps(&self, received_at: Millis) -> bool {
        let leaving = self.book().life.leaving();
        leaving.is_some_and(|(why, since)| why.comes_back() && received_at < since)
    }

    /// Whether somebody who writes to this session now is heard: the door is open, or a turn is at work there that
    /// their message can wait behind.
    pub(crate) fn hears(&self, key: &SessionKey) -> Result<(), Closed> {
        let book = self.book();
        match book.life.door() {
            Door::Open => Ok(()),
            Door::Draining | Door::Leaving { .. } if book.holders.values().any(|it| it.key == *key) => Ok(()),
            Door::Draining => Err(Closed::Draining),
            Door::Leaving { restart } => Err(Closed::Leaving { restart }),
        }
    }

    /// Does not wait for a session any more. `false`: it is not at work.
    pub(crate) fn skip(&self, key: &SessionKey) -> bool {
        self.change(key, |holder, _| holder.skipped = true).is_some()
    }

    /// Waits longer for a session. `None`: it is not at work.
    pub(crate) fn extend(&self, key: &SessionKey, by: Duration) -> Option<Millis> {
        self.change(key, |holder, deadline| holder.extend(deadline, by))
    }

    pub(crate) fn situation(&self) -> Situation {
        self.book().situation()
    }

    /// For whoever must not wait, not even for a moment.
    pub(crate) fn try_situation(&self) -> Option<Situation> {
        let book = match self.0.book.try_lock() {
            Ok(book) => book,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(book.situation())
    }

    pub(crate) fn has_started(&self) -> bool {
        self.book().life.has_started()
    }

    /// Moves whenever anything here does.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.0.edition.subscribe()
    }

    /// Resolves when everything is in place; `false`: we leave instead.
    pub(crate) async fn started(&self) -> bool {
        let mut editions = self.watch();
        loop {
            let (leaves, started) = {
                let book = self.book();
                (book.life.leaving().is_some(), book.life.has_started())
            };
            if leaves || started {
                return !leaves;
            }
            // The sender lives in `self`.
            let _ = editions.changed().await;
        }
    }

    /// Resolves when we begin to leave.
    pub(crate) async fn leaving(&self) {
        let mut editions = self.watch();
        while self.book().life.leaving().is_none() {
            // The sender lives in `self`.
            let _ = editions.changed().await;
        }
    }

    /// Resolves when nobody is at work any more, or nobody is to be waited for. `step` is called at every change, with
    /// how long that may still take. A clock that is set meanwhile changes nothing: how long we wait is a promise.
    pub(crate) async fn quiet(&self, deadline: Millis, mut step: impl FnMut(usize, Duration)) {
        let (began, wall) = (Instant::now(), clock::now());
        let mut editions = self.watch();
        loop {
            editions.mark_unchanged();
            let now = wall.after(began.elapsed());
            let (until, count) = {
                let book = self.book();
                let until = wait_until(book.holders.values(), deadline, now);
                (until.filter(|_| !book.hurried), book.holders.len())
            };
            let left = until.map(|until| until.since(now));
            step(count, left.unwrap_or_default());
            let Some(left) = left else { return };
            petasos_runtime::select! {
                _ = editions.changed() => {}
                () = tokio::time::sleep(left) => {}
            }
        }
    }

    fn change<T>(&self, key: &SessionKey, change: impl FnOnce(&mut Holder, Millis) -> T) -> Option<T> {
        let mut book = self.book();
        let deadline = book.deadline.unwrap_or_else(clock::now);
        let changed = book.holders.values_mut().find(|it| it.key == *key).map(|it| change(it, deadline));
        drop(book);
        self.turn_page();
        changed
    }

    fn turn_page(&self) {
        self.0.edition.send_modify(|edition| *edition += 1);
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // Nothing in here can panic half way through a change.
        self.0.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// We lie down, or sleep.
#[derive(Debug)]
pub(crate) struct Dozing(Gate);

impl Drop for Dozing {
    fn drop(&mut self) {
        self.0.book().dozing = false;
        self.0.turn_page();
    }
}

/// The place of one turn.
#[derive(Debug)]
pub(crate) struct Slot {
    gate: Gate,
    id: u64,
}

impl Slot {
    /// The turn is on disk.
    pub(crate) fn began(&self, turn: TurnId) {
        self.note(|holder| holder.turn = Some(turn));
    }

    pub(crate) fn doing(&self, doing: Doing) {
        self.note(|holder| holder.doing = doing);
    }

    fn note(&self, change: impl FnOnce(&mut Holder)) {
        if let Some(holder) = self.gate.book().holders.get_mut(&self.id) {
            change(holder);
        }
        self.gate.turn_page();
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.gate.book().holders.remove(&self.id);
        self.gate.turn_page();
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

    fn open() -> Gate {
        let gate = Gate::new(None);
        gate.feed(Event::Started);
        gate
    }

    fn drain(gate: &Gate) {
        gate.feed(Event::Marker(Some(Marker::default())));
    }

    #[test]
    fn a_drain_leaves_those_at_work_alone_and_their_places_are_given_back() {
        let gate = open();
        let slot = gate.claim(&key("a"), Claim::User).unwrap();
        drain(&gate);
        assert_eq!(gate.situation().active(), 1);
        assert_eq!(gate.claim(&key("b"), Claim::User).unwrap_err(), Closed::Draining);
        assert!(gate.hears(&key("a")).is_ok() && gate.hears(&key("b")).is_err());
        assert!(gate.skip(&key("a")));
        gate.feed(Event::Marker(None));
        assert!(!gate.situation().holders[0].skipped, "a trace of the drain");
        drain(&gate);
        drop(slot);
        assert_eq!(gate.situation().active(), 0);
        gate.feed(Event::Marker(None));
        assert!(gate.claim(&key("b"), Claim::User).is_ok());
    }

    #[test]
    fn nobody_starts_after_the_first_refusal_however_many_race() {
        let gate = open();
        let (started, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let late = AtomicUsize::new(0);
        let slots = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for runner in 0..8 {
                let (gate, started, refused, late, slots) = (&gate, &started, &refused, &late, &slots);
                scope.spawn(move || {
                    for at in 0..500 {
                        let seen = refused.load(Ordering::SeqCst);
                        match gate.claim(&key(&format!("{runner}:{at}")), Claim::User) {
                            Ok(slot) => {
                                late.fetch_add(usize::from(seen > 0), Ordering::SeqCst);
                                started.fetch_add(1, Ordering::SeqCst);
                                slots.lock().unwrap().push(slot);
                            }
                            Err(Closed::Draining) => drop(refused.fetch_add(1, Ordering::SeqCst)),
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
        assert_eq!(gate.situation().active(), started.load(Ordering::SeqCst));
        assert_eq!(started.into_inner() + refused.into_inner(), 8 * 500);
    }

    #[tokio::test]
    async fn quiet_comes_with_the_last_one_or_when_nobody_is_waited_for() {
        let gate = open();
        let far = clock::now().after(Duration::from_secs(600));
        let (a, b) =
            (gate.claim(&key("a"), Claim::User).unwrap(), gate.claim(&key("b"), Claim::User).unwrap());
        let waiting = tokio::spawn({
            let gate = gate.clone();
            async move { gate.quiet(far, |_, _| {}).await }
        });
        drop(a);
        assert!(gate.skip(&key("b")) && !gate.skip(&key("a")));
        waiting.await.unwrap();
        assert_eq!(gate.situation().active(), 1);
        gate.set_deadline(clock::now());
        assert!(gate.extend(&key("b"), Duration::from_secs(60)).is_some());
        gate.hurry();
        gate.quiet(far, |_, _| {}).await;
        drop(b);
    }

    static SET_BACK: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_set_back_makes_no_stop_longer() {
        let wall = |ms: u64| Millis(1_790_000_000_000 - ms);
        clock::replace(|| Millis(1_790_000_000_000 - SET_BACK.load(Ordering::SeqCst)));
        let gate = open();
        let _works = gate.claim(&key("a"), Claim::User).unwrap();
        let other = gate.claim(&key("b"), Claim::User).unwrap();
        let began = Instant::now();
        let waiting = tokio::spawn({
            let gate = gate.clone();
            let mut longest = Duration::ZERO;
            async move {
                gate.quiet(wall(0).after(Duration::from_secs(60)), |_, left| longest = longest.max(left))
                    .await;
                longest
            }
        });
        tokio::time::sleep(Duration::from_secs(10)).await;
        SET_BACK.store(3_600_000, Ordering::SeqCst);
        drop(other);
        let longest = waiting.await.unwrap();
        let took = began.elapsed();
        assert!(took >= Duration::from_secs(60) && took < Duration::from_secs(61), "{took:?}");
        assert!(longest <= Duration::from_secs(60), "{longest:?}");
    }

    #[test]
    fn the_reason_belongs_to_the_leave_that_counts() {
        let gate = open();
        assert_eq!(gate.leave(Leave::Stop, Some("asked".into())), Some(Leave::Stop));
        assert_eq!(gate.leave(Leave::Signal, Some("SIGTERM".into())), Some(Leave::Stop));
        assert_eq!(gate.situation().exit_reason.as_deref(), Some("asked"));
    }
}
