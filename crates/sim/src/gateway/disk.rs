//! The disk: commits that the process does not survive, a disk that takes nothing, and what a crash leaves.

use std::path::{Path, PathBuf};

use petasos_gateway::Commit;
use petasos_gateway::simulation::{CommitFault, CommitObserver};
use petasos_store::Reads;

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
            state.crash_running();
            return CommitFault::Kill;
        }
        if state.disk_is_full() {
            state.figures.refusals += 1;
            state.note(&format!("  refused: {commits:?}"));
            return CommitFault::Refuse;
        }
        state.dies_after_commit = dies;
        state.figures.commits += 1;
        state.note(&format!("  commit: {commits:?}"));
        CommitFault::None
    }

    fn after(&mut self, commits: &[Commit], store: &Reads) -> CommitFault {
        let seen = {
            let mut state = self.0.lock();
            if state.in_connector() {
                state.connector_committed(store)
            } else {
                state.committed(commits, store)
            }
        };
        self.0.check(seen);
        let mut state = self.0.lock();
        if std::mem::take(&mut state.dies_after_commit) {
            state.note("  after the commit");
            state.crash_running();
            return CommitFault::Kill;
        }
        CommitFault::None
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
    fn crash_running(&mut self) {
        if self.in_connector() { self.crash_connector() } else { self.crash() }
    }

    /// Of the process whose commit is under way.
    fn disk_is_full(&mut self) -> bool {
        if self.in_connector() { self.relay().full } else { self.full }
    }

    /// `kill -9`: the process is frozen, and its files are as they are now.
    pub(super) fn crash(&mut self) {
        self.figures.crashes += 1;
        self.note("the process dies");
        let process = self.process();
        self.simulation.kill(process);
        if let Stage::Up(handle) = std::mem::replace(&mut self.stage, Stage::Down) {
            self.left_behind.push(handle);
        }
        self.leaving = None;
        self.close_wires_of(process);
        self.files = freeze(&self.home, self.life);
        self.soon(Event::Boot, 200, 20_000);
    }

    /// The next process finds the files at the path that it knows.
    pub(super) fn put_files_back(&mut self) {
        put_back(&mut self.files, &self.home);
    }
}

/// Where the files of a dead process are as it has left them. Its home is moved away: a connection that SQLite closes later
/// removes the log at its path, and there must be none of the next process.
pub(crate) fn freeze(home: &Path, life: u32) -> PathBuf {
    let name = home.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let beside = |what: &str| home.with_file_name(format!("{name}-{what}-{life}"));
    let dead = beside("dead");
    let image = beside("image");
    std::fs::rename(home, &dead).expect("the home of the dead process");
    copy(&dead, &image);
    image
}

/// The files of a process are at the path that the next one knows.
pub(crate) fn put_back(files: &mut PathBuf, home: &Path) {
    if files != home {
        std::fs::rename(&*files, home).expect("an image of the home");
        *files = home.to_path_buf();
    }
}

/// Everything but what only lives with its process.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("the home") {
        let entry = entry.expect("an entry");
        let path = entry.path();
        let name = entry.file_name();
        let kind = entry.file_type().expect("a type");
        if kind.is_dir() {
            copy(&path, &to.join(&name));
        } else if kind.is_file() && !name.to_string_lossy().ends_with("-shm") {
            std::fs::copy(&path, to.join(&name)).expect("a copy");
        }
    }
}
