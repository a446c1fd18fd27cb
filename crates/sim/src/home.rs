//! The home of a simulated process: its files, and what a crash leaves of them.
//!
//! All file operations below it are recorded (`petasos_power_cut`). `kill -9` leaves every byte; a power cut leaves what was
//! synced, and of the rest nothing or a part by the seed. A crash in the middle of a commit leaves a prefix of the
//! operations of that commit; before the first commit of a process, a prefix of everything since its start.

use std::path::{Path, PathBuf};

use petasos_power_cut::{self as power_cut, LOG, UnsyncedData};
use petasos_runtime::simulation::rng::Rng;

/// How a process ends without a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crash {
    /// `kill -9`.
    Kill,
    PowerCut(UnsyncedData),
}

impl Crash {
    pub(crate) fn by_seed(rng: &mut Rng) -> Self {
        if rng.chance(500) {
            return Self::Kill;
        }
        let unsynced =
            if rng.chance(400) { UnsyncedData::Dropped } else { UnsyncedData::Partial(rng.next_u64()) };
        Self::PowerCut(unsynced)
    }

    pub(crate) const fn is_power_cut(self) -> bool {
        matches!(self, Self::PowerCut(_))
    }

    const fn unsynced(self) -> UnsyncedData {
        match self {
            Self::Kill => UnsyncedData::Kept,
            Self::PowerCut(unsynced) => unsynced,
        }
    }
}

/// Where in the work of a process a crash happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// All operations so far were performed.
    Now,
    /// In the middle of the commit that has just ended; where is decided by this seed.
    InCommit(u64),
}

#[derive(Debug)]
pub(crate) struct Home {
    /// The directory that the process uses.
    path: PathBuf,
    /// Where the files are while no process runs.
    files: PathBuf,
    /// Length of the log before the current commit: what happened until then has been observed.
    observed: u64,
    /// The process has not committed anything yet.
    starting: bool,
    crashes: u32,
}

impl Home {
    pub(crate) fn new(path: PathBuf) -> Self {
        std::fs::create_dir(&path).expect("a home");
        power_cut::record(&path);
        assert!(power_cut::is_recorded(&path), "this program is not linked with the recorder");
        Self { files: path.clone(), path, observed: 0, starting: true, crashes: 0 }
    }

    /// The directory that the running process uses.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory with the files, whether a process runs or not.
    pub(crate) fn files(&self) -> &Path {
        &self.files
    }

    /// A process starts: the files are at the path that it knows.
    pub(crate) fn start(&mut self) {
        if self.files != self.path {
            std::fs::rename(&self.files, &self.path).expect("an image of the home");
            self.files.clone_from(&self.path);
        }
        self.starting = true;
        self.observe();
    }

    /// A commit begins. Nothing outside the process depends on what it did before its first one.
    pub(crate) fn commit_begins(&mut self) {
        if !std::mem::replace(&mut self.starting, false) {
            self.observe();
        }
    }

    /// Writes up to now count as done: an interrupted commit does not undo them.
    pub(crate) fn observe(&mut self) {
        self.observed = power_cut::log_length(&self.files);
    }

    /// The process that uses the home is dead, or there is none. Its files are moved away: a connection that SQLite closes
    /// later removes the log at its path, and there must be none of the next process.
    pub(crate) fn crash(&mut self, crash: Crash, moment: Moment) {
        self.crashes += 1;
        let dead = self.beside("dead");
        let image = self.beside("image");
        std::fs::rename(&self.path, &dead).expect("the home of the dead process");
        copy(&dead, &image);
        // Last, because from here on operations in the image are recorded.
        std::fs::copy(dead.join(LOG), image.join(LOG)).expect("a copy of the log");
        if let Moment::InCommit(seed) = moment {
            power_cut::interrupt(&image, self.observed, seed);
        }
        if crash.is_power_cut() || moment != Moment::Now {
            power_cut::apply(&image, crash.unsynced());
            power_cut::record(&image);
        }
        self.files = image;
    }

    fn beside(&self, what: &str) -> PathBuf {
        let name = self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        self.path.with_file_name(format!("{name}-{what}-{}", self.crashes))
    }
}

/// Copies everything except the log of file operations and shared memory, which lives with its process.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("the home") {
        let entry = entry.expect("an entry");
        let path = entry.path();
        let name = entry.file_name();
        let kind = entry.file_type().expect("a type");
        if kind.is_dir() {
            copy(&path, &to.join(&name));
        } else if kind.is_file() && name != LOG && !name.to_string_lossy().ends_with("-shm") {
            std::fs::copy(&path, to.join(&name)).expect("a copy");
        }
    }
}
