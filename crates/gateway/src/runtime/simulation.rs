//! What a simulation does to the gateway of its thread: it meets every commit, and it plants bugs.

use std::cell::RefCell;
use std::fmt;

use petasos_core::Inbound;
use petasos_store::{Error as StoreError, Reads};

use super::commit::Commit;
pub use super::fault_injection::Planted;
use super::fault_injection::planted;

/// What becomes of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Kept,
    /// The disk is full.
    Refused,
    /// The process was killed; it does not get to its next line.
    Dies,
}

/// Meets the commits of one thread.
pub trait Commits: fmt::Debug {
    /// Nothing of it is on disk.
    fn before(&mut self, commits: &[Commit]) -> Fate;

    /// It is on disk, and nobody has been told.
    fn after(&mut self, commits: &[Commit], store: &Reads) -> Fate;

    /// So many messages of people wait in one session.
    fn queued(&mut self, waiting: usize);

    /// The machine is asked to suspend. `false`: it refuses.
    fn suspended(&mut self) -> bool;
}

thread_local! {
    static COMMITS: RefCell<Option<Box<dyn Commits>>> = const { RefCell::new(None) };
    static WROTE_LAST: RefCell<Option<Inbound>> = const { RefCell::new(None) };
}

/// From now on the commits of this thread meet these, and it has this bug.
pub fn install(commits: Box<dyn Commits>, bug: Option<Planted>) {
    COMMITS.set(Some(commits));
    petasos_runtime::simulation::plant(bug);
}

pub fn uninstall() {
    COMMITS.set(None);
    petasos_runtime::simulation::plant(None);
    WROTE_LAST.set(None);
}

pub(super) fn set_current_chat(inbound: &Inbound) {
    if planted(Planted::CurrentChat) {
        WROTE_LAST.set(Some(inbound.clone()));
    }
}

pub(super) fn current_chat() -> Option<Inbound> {
    WROTE_LAST.with_borrow(Clone::clone)
}

pub(crate) fn queued(waiting: usize) {
    COMMITS.with_borrow_mut(|met| {
        if let Some(met) = met {
            met.queued(waiting);
        }
    });
}

/// Whether the machine accepts the command that suspends it.
pub(crate) fn suspended() -> bool {
    COMMITS.with_borrow_mut(|met| met.as_mut().is_some_and(|met| met.suspended()))
}

pub(super) fn before(commits: &[Commit]) -> Result<(), StoreError> {
    match COMMITS.with_borrow_mut(|met| met.as_mut().map(|met| met.before(commits))) {
        None | Some(Fate::Kept) => Ok(()),
        Some(Fate::Refused) => Err(StoreError::Full),
        Some(Fate::Dies) => die(),
    }
}

pub(super) fn after(commits: &[Commit], store: &Reads) {
    match COMMITS.with_borrow_mut(|met| met.as_mut().map(|met| met.after(commits, store))) {
        None | Some(Fate::Kept | Fate::Refused) => {}
        Some(Fate::Dies) => die(),
    }
}

fn die() -> ! {
    match petasos_runtime::simulation::current() {
        Some(simulation) => simulation.end_killed_task(),
        None => std::process::abort(),
    }
}
