//! The disk: commits that the process does not survive, a disk that takes nothing, and what a crash leaves.

use petasos_gateway::Commit;
use petasos_gateway::simulation::{CommitFault, CommitObserver};
use petasos_store::{Reader, Reads};

use crate::home::{Crash, Home, Moment};
use crate::truth::Check;

use super::state::{Event, Outside, Stage, State};

/// Faults of the gateway's commits.
#[derive(Debug)]
pub(super) struct Disk(pub(super) Outside);

impl CommitObserver for Disk {
    fn before(&mut self, commits: &[Commit]) -> CommitFault {
        let mut state = self.0.lock();
        let most = u64::from(state.plan.crashes);
        let odds = state.plan.crash_odds;
        let dies = !state.calm && state.figures.crashes < most && state.deaths.chance(odds);
        let after = state.deaths.chance(500);
        if dies && !after {
            state.note(&format!("  before the commit: {commits:?}"));
            state.crash_running(Moment::Now);
            return CommitFault::Kill;
        }
        if state.disk_is_full() {
            state.figures.refusals += 1;
            state.note(&format!("  refused: {commits:?}"));
            return CommitFault::Refuse;
        }
        state.dies_after_commit = dies;
        state.running_home().commit_begins();
        state.figures.commits += 1;
        state.note(&format!("  commit: {commits:?}"));
        CommitFault::None
    }

    fn after(&mut self, commits: &[Commit], store: &Reads) -> CommitFault {
        let mut state = self.0.lock();
        let dies = std::mem::take(&mut state.dies_after_commit);
        if dies && state.crashes.chance(500) {
            let check = state.crash_in_commit(commits);
            drop(state);
            self.0.check(check);
            return CommitFault::Kill;
        }
        let check = state.observe_commit(commits, store);
        if dies {
            state.note("  after the commit");
            state.crash_running(Moment::Now);
        }
        drop(state);
        self.0.check(check);
        if dies { CommitFault::Kill } else { CommitFault::None }
    }

    fn queued(&mut self, waiting: usize) {
        let check = self.0.lock().truth.queue(waiting);
        self.0.check(check);
    }

    fn suspended(&mut self) -> bool {
        let mut state = self.0.lock();
        state.figures.sleeps += 1;
        state.note("the machine is asked to suspend");
        state.luck.chance(500)
    }
}

impl State {
    /// The process whose commit is under way dies.
    fn crash_running(&mut self, moment: Moment) {
        if self.in_connector() { self.crash_connector(moment) } else { self.crash(moment) }
    }

    /// The process dies in the middle of a commit, which may be on disk or not.
    fn crash_in_commit(&mut self, commits: &[Commit]) -> Check {
        self.note("  in the middle of the commit");
        let seed = self.crashes.next_u64();
        let connector = self.in_connector();
        self.crash_running(Moment::InCommit(seed));
        let files = if connector { self.relay().home.files() } else { self.home.files() };
        let opened = if connector {
            Reader::open_connector(files.join(petasos_connector::DATABASE))
        } else {
            Reader::open(files.join(petasos_gateway::DATABASE))
        };
        // Without a readable database nothing was committed, or the next start fails.
        let Ok(reader) = opened else { return Ok(()) };
        if connector { self.connector_committed(&reader) } else { self.committed(commits, &reader) }
    }

    fn observe_commit(&mut self, commits: &[Commit], store: &Reads) -> Check {
        if self.in_connector() { self.connector_committed(store) } else { self.committed(commits, store) }
    }

    fn running_home(&mut self) -> &mut Home {
        if self.in_connector() { &mut self.relay().home } else { &mut self.home }
    }

    /// Of the process whose commit is under way.
    fn disk_is_full(&mut self) -> bool {
        if self.in_connector() { self.relay().full } else { self.full }
    }

    /// `kill -9` or a power cut: the process is frozen.
    pub(super) fn crash(&mut self, moment: Moment) {
        let crash = self.next_crash();
        self.note(&format!("the process dies: {crash:?}"));
        let process = self.process();
        self.simulation.kill(process);
        if let Stage::Up(handle) = std::mem::replace(&mut self.stage, Stage::Down) {
            self.left_behind.push(handle);
        }
        self.leaving = None;
        self.close_wires_of(process, crash);
        self.home.crash(crash, moment);
        self.soon(Event::Boot, 200, 20_000);
    }

    /// The machine loses its power while no process runs.
    pub(super) fn crash_while_down(&mut self) {
        // An earlier crash has left nothing that could be lost.
        if self.home.files() != self.home.path() {
            return;
        }
        let crash = self.next_crash();
        self.note(&format!("the machine of no process: {crash:?}"));
        self.home.crash(crash, Moment::Now);
    }

    /// Counts a crash and decides its kind.
    pub(crate) fn next_crash(&mut self) -> Crash {
        let crash = Crash::by_seed(&mut self.crashes);
        self.figures.crashes += 1;
        self.figures.power_cuts += u64::from(crash.is_power_cut());
        crash
    }
}
