//! Simulation hooks, per thread: observes and fails commits, and plants bugs.

use std::cell::RefCell;
use std::fmt;

use petasos_core::Inbound;
use petasos_store::{Error as StoreError, Reads};

use super::commit::Commit;
pub use super::fault_injection::PlantedBug;
use super::fault_injection::planted;

/// The fault to inject into a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitFault {
    None,
    /// The disk is full.
    Refuse,
    /// The process is killed at this point.
    Kill,
}

/// Observes the commits of one thread.
pub trait CommitObserver: fmt::Debug {
    /// Called before the commit is on disk.
    fn before(&mut self, commits: &[Commit]) -> CommitFault;

    /// Called when the commit is on disk, before its callers resume.
    fn after(&mut self, commits: &[Commit], store: &Reads) -> CommitFault;

    /// Reports the queue length of a session.
    fn queued(&mut self, waiting: usize);

    /// The machine is asked to suspend. `false`: it refuses.
    fn suspended(&mut self) -> bool;
}

thread_local! {
    static OBSERVER: RefCell<Option<Box<dyn CommitObserver>>> = const { RefCell::new(None) };
    static LAST_INBOUND: RefCell<Option<Inbound>> = const { RefCell::new(None) };
}

pub fn install(commits: Box<dyn CommitObserver>, bug: Option<PlantedBug>) {
    OBSERVER.set(Some(commits));
    petasos_runtime::simulation::plant(bug);
}

pub fn uninstall() {
    OBSERVER.set(None);
    petasos_runtime::simulation::plant(None);
    LAST_INBOUND.set(None);
}

pub(super) fn set_current_chat(inbound: &Inbound) {
    if planted(PlantedBug::CurrentChat) {
        LAST_INBOUND.set(Some(inbound.clone()));
    }
}

pub(super) fn current_chat() -> Option<Inbound> {
    LAST_INBOUND.with_borrow(Clone::clone)
}

pub(crate) fn queued(waiting: usize) {
    OBSERVER.with_borrow_mut(|observer| {
        if let Some(observer) = observer {
            observer.queued(waiting);
        }
    });
}

/// The machine is asked to suspend. `false`: it refuses.
pub(crate) fn suspended() -> bool {
    OBSERVER.with_borrow_mut(|observer| observer.as_mut().is_some_and(|observer| observer.suspended()))
}

pub(super) fn before(commits: &[Commit]) -> Result<(), StoreError> {
    match OBSERVER.with_borrow_mut(|observer| observer.as_mut().map(|observer| observer.before(commits))) {
        None | Some(CommitFault::None) => Ok(()),
        Some(CommitFault::Refuse) => Err(StoreError::Full),
        Some(CommitFault::Kill) => die(),
    }
}

pub(super) fn after(commits: &[Commit], store: &Reads) {
    match OBSERVER
        .with_borrow_mut(|observer| observer.as_mut().map(|observer| observer.after(commits, store)))
    {
        None | Some(CommitFault::None | CommitFault::Refuse) => {}
        Some(CommitFault::Kill) => die(),
    }
}

fn die() -> ! {
    match petasos_runtime::simulation::current() {
        Some(simulation) => simulation.end_killed_task(),
        None => std::process::abort(),
    }
}
