//! Who may start a run now, and who waits for the end of one.
//!
//! Owns the seats: a run holds one from before its commit until it is settled, however that comes about. Whoever
//! finds none waits in line for a moment, and the lines of several owners are served in turn, so that one busy
//! client does not keep out the others. Under one lock that is never held across a wait. Nothing here is on disk:
//! after a crash nobody sits here, and runs that go on are watched anew.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

/// How many runs there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLimits {
    pub at_once: usize,
    /// How long somebody may stand in line.
    pub patience: Duration,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self { at_once: 10, patience: Duration::from_secs(1) }
    }
}

/// Those who may stand in line at the same time.
const LINE: usize = 256;

#[derive(Debug, Clone)]
pub(crate) struct Desk(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limits: RunLimits,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    seated: usize,
    /// One line per owner, in the order in which they are served next; none is empty.
    lines: VecDeque<(String, VecDeque<oneshot::Sender<Seat>>)>,
    runs: HashMap<String, Watched>,
}

#[derive(Debug)]
struct Watched {
    ended: watch::Sender<bool>,
    stopping: bool,
    seat: Option<Seat>,
}

/// The right to run. Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    desk: Desk,
    /// Already handed to the next.
    passed: bool,
}

/// Resolves when a run is settled. Dropping it leaves nothing behind.
#[derive(Debug)]
pub(crate) struct Ending {
    desk: Desk,
    run: String,
    ended: Option<watch::Receiver<bool>>,
}

impl Desk {
    pub(crate) fn new(limits: RunLimits) -> Self {
        Self(Arc::new(Inner { limits, book: Mutex::default() }))
    }

    pub(crate) fn limits(&self) -> RunLimits {
        self.0.limits
    }

    pub(crate) fn seated(&self) -> usize {
        self.book().seated
    }

    /// A seat, at once or after standing in line; `None`: there was none in time.
    pub(crate) async fn seat(&self, owner: &str) -> Option<Seat> {
        let called = {
            let mut book = self.book();
            if book.seated < self.0.limits.at_once {
                book.seated += 1;
                return Some(Seat { desk: self.clone(), passed: false });
            }
            if book.lines.iter().map(|(_, line)| line.len()).sum::<usize>() >= LINE {
                return None;
            }
            let (call, called) = oneshot::channel();
            match book.lines.iter_mut().find(|(name, _)| name == owner) {
                Some((_, line)) => line.push_back(call),
                None => book.lines.push_back((owner.to_owned(), VecDeque::from([call]))),
            }
            called
        };
        // A seat that is called out after we have left comes back by being dropped.
        timeout(self.0.limits.patience, called).await.ok()?.ok()
    }

    /// Before the run is on disk: its end cannot come sooner than somebody looks for it.
    pub(crate) fn open(&self, run: &str, seat: Seat) {
        let watched = Watched { ended: watch::Sender::new(false), stopping: false, seat: Some(seat) };
        self.book().runs.insert(run.to_owned(), watched);
    }

    /// The run is settled, or never began.
    pub(crate) fn ended(&self, run: &str) {
        let gone = self.book().runs.remove(run);
        // Outside the lock: the seat takes it to go back.
        if let Some(watched) = gone {
            watched.ended.send_replace(true);
        }
    }

    pub(crate) fn stopping(&self, run: &str) {
        if let Some(watched) = self.book().runs.get_mut(run) {
            watched.stopping = true;
        }
    }

    pub(crate) fn is_stopping(&self, run: &str) -> bool {
        self.book().runs.get(run).is_some_and(|watched| watched.stopping)
    }

    /// `true`: it was under way in this process already, so its end has not come yet.
    pub(crate) fn watch(&self, run: &str) -> (Ending, bool) {
        let mut book = self.book();
        let known = book.runs.contains_key(run);
        let fresh = || Watched { ended: watch::Sender::new(false), stopping: false, seat: None };
        let ended = book.runs.entry(run.to_owned()).or_insert_with(fresh).ended.subscribe();
        (Ending { desk: self.clone(), run: run.to_owned(), ended: Some(ended) }, known)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // Nothing in here can panic half way through a change.
        self.0.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    /// The next one in line, of the owner whose turn it is.
    fn next(&mut self) -> Option<oneshot::Sender<Seat>> {
        let (owner, mut line) = self.lines.pop_front()?;
        let next = line.pop_front();
        if !line.is_empty() {
            self.lines.push_back((owner, line));
        }
        next
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if self.passed {
            return;
        }
        loop {
            let mut book = self.desk.book();
            let Some(next) = book.next() else {
                book.seated -= 1;
                return;
            };
            drop(book);
            match next.send(Seat { desk: self.desk.clone(), passed: false }) {
                Ok(()) => return,
                // Left the line. The seat is still ours to give.
                Err(mut back) => back.passed = true,
            }
        }
    }
}

impl Ending {
    /// Returns when it has ended, at the latest after `within`: whoever waits looks again.
    pub(crate) async fn came(&mut self, within: Duration) {
        let Some(ended) = &mut self.ended else { return };
        // Out of time, or its owner is gone: either way the store knows.
        let _ = timeout(within, ended.wait_for(|ended| *ended)).await;
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.ended = None;
        let mut book = self.desk.book();
        let idle =
            book.runs.get(&self.run).is_some_and(|it| it.seat.is_none() && it.ended.receiver_count() == 0);
        let gone = if idle { book.runs.remove(&self.run) } else { None };
        drop(book);
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desk(at_once: usize, patience: Duration) -> Desk {
        Desk::new(RunLimits { at_once, patience })
    }

    #[tokio::test(start_paused = true)]
    async fn who_finds_no_seat_waits_a_moment_and_is_told_the_truth() {
        let desk = desk(2, Duration::from_secs(1));
        let (a, b) = (desk.seat("x").await.unwrap(), desk.seat("x").await.unwrap());
        assert!(desk.seat("x").await.is_none(), "a third seat");
        drop(a);
        let c = desk.seat("x").await.expect("a seat that was given back");
        drop((b, c));
        assert_eq!(desk.seated(), 0);
    }

    #[tokio::test]
    async fn lines_of_several_owners_are_served_in_turn() {
        let desk = desk(1, Duration::from_secs(60));
        let first = desk.seat("busy").await.unwrap();
        let (order, mut served) = tokio::sync::mpsc::channel(16);
        for owner in ["busy", "busy", "busy", "calm"] {
            let (standing, order) = (desk.clone(), order.clone());
            let before: usize = desk.book().lines.iter().map(|(_, line)| line.len()).sum();
            tokio::spawn(async move {
                let seat = standing.seat(owner).await.unwrap();
                order.send(owner).await.unwrap();
                drop(seat);
            });
            while desk.book().lines.iter().map(|(_, line)| line.len()).sum::<usize>() == before {
                tokio::task::yield_now().await;
            }
        }
        drop(first);
        let mut seen = vec![];
        for _ in 0..4 {
            seen.push(served.recv().await.unwrap());
        }
        assert_eq!(seen, ["busy", "calm", "busy", "busy"]);
        while desk.seated() > 0 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn an_end_frees_the_seat_and_wakes_everybody_who_waits() {
        let desk = desk(1, Duration::ZERO);
        desk.open("r", desk.seat("x").await.unwrap());
        let ((mut one, known), (mut two, _)) = (desk.watch("r"), desk.watch("r"));
        assert!(known && desk.seat("x").await.is_none());
        desk.ended("r");
        one.came(Duration::from_secs(60)).await;
        two.came(Duration::from_secs(60)).await;
        assert!(desk.seat("x").await.is_some());
    }

    #[tokio::test]
    async fn whoever_watches_a_run_from_before_leaves_nothing_behind() {
        let desk = desk(1, Duration::ZERO);
        let (ending, known) = desk.watch("old");
        assert!(!known);
        drop(ending);
        assert!(desk.book().runs.is_empty());
    }
}
