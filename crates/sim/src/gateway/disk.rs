//! The disk: commits that the process does not survive, a disk that takes nothing, and what a crash leaves.

use std::path::Path;

use petasos_gateway::Commit;
use petasos_gateway::simulation::{Commits, Fate};
use petasos_store::Reads;

use super::state::{Event, Outside, Stage, State};

/// What the gateway's commits meet.
#[derive(Debug)]
pub(super) struct Disk(pub(super) Outside);

impl Commits for Disk {
    fn before(&mut self, commits: &[Commit]) -> Fate {
        let mut state = self.0.lock();
        let (most, odds) = (u64::from(state.plan.crashes), state.plan.crash_odds);
        let dies = !state.calm && state.figures.crashes < most && state.deaths.odds(odds);
        let after = state.deaths.odds(500);
        if dies && !after {
            state.note(&format!("  before the commit: {commits:?}"));
            state.crash();
            return Fate::Dies;
        }
        if state.full {
            state.figures.refusals += 1;
            state.note(&format!("  refused: {commits:?}"));
            return Fate::Refused;
        }
        state.dies_after_commit = dies;
        state.figures.commits += 1;
        state.note(&format!("  commit: {commits:?}"));
        Fate::Kept
    }

    fn after(&mut self, commits: &[Commit], store: &Reads) -> Fate {
        let seen = self.0.lock().committed(commits, store);
        self.0.check(seen);
        let mut state = self.0.lock();
        if std::mem::take(&mut state.dies_after_commit) {
            state.note("  after the commit");
            state.crash();
            return Fate::Dies;
        }
        Fate::Kept
    }

    fn queued(&mut self, waiting: usize) {
        let check = self.0.lock().truth.queue(waiting, 0, 0);
        self.0.check(check);
    }
}

impl State {
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
        // A connection that SQLite closes later removes the log at its path: there must be none of the next process.
        let (dead, image) = (self.beside("dead"), self.beside("image"));
        std::fs::rename(&self.home, &dead).expect("the home of the dead process");
        copy(&dead, &image);
        self.files = image;
        self.soon(Event::Boot, 200, 20_000);
    }

    /// The next process finds the files at the path that it knows.
    pub(super) fn put_files_back(&mut self) {
        if self.files != self.home {
            std::fs::rename(&self.files, &self.home).expect("an image of the home");
            self.files = self.home.clone();
        }
    }

    fn beside(&self, what: &str) -> std::path::PathBuf {
        self.home.with_file_name(format!("{what}-{}", self.life))
    }
}

/// Everything but what only lives with its process.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("the home") {
        let entry = entry.expect("an entry");
        let (path, name) = (entry.path(), entry.file_name());
        let kind = entry.file_type().expect("a type");
        if kind.is_dir() {
            copy(&path, &to.join(&name));
        } else if kind.is_file() && !name.to_string_lossy().ends_with("-shm") {
            std::fs::copy(&path, to.join(&name)).expect("a copy");
        }
    }
}
