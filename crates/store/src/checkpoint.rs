//! Moving the log into the database file away from the thread that commits.
//!
//! A passive checkpoint holds back neither readers nor the writer: it copies what no reader needs and syncs twice,
//! which takes tens of milliseconds. A [`Checkpointer`] does that on a connection of its own, so that no commit
//! waits for it. Once the whole log is in the file the writer starts it over from its beginning: it is overwritten
//! in place, which syncs several times faster than a log that grows.
//!
//! While commits never pause, a checkpoint beside them never reaches the end of the log. Above 4,096 pages the
//! writer therefore copies the little that is left by itself ([`Store::bound_log`]).
//!
//! A store without a checkpointer checkpoints in its own commits, every 1,000 pages.
//!
//! Reading the state of the log takes a few microseconds, a measurable part of a small commit. [`LogProbe`] therefore
//! leaves it out after most commits.

use rusqlite::Connection;

use crate::error::{OpenError, Result};
use crate::files::Files;
use crate::group::{Place, Store};
use crate::open;

/// Pages that wait in the log before a checkpoint is worth its two syncs.
const DUE: u64 = 1000;
/// Pages in the log above which the writer makes sure that it starts over.
const RESET: u64 = 4096;
/// Pages the writer copies by itself above [`RESET`].
const LITTLE: u64 = 512;
/// Pages in the log (64 MB) above which the writer copies all there are, however long that takes.
const MOST: u64 = 16_384;

/// How full the log is, in pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogState {
    /// In use. The file may be larger: it keeps its size when it is started over.
    pub pages: u64,
    /// Of these, copied into the database.
    pub copied: u64,
}

impl LogState {
    pub const fn waiting(self) -> u64 {
        self.pages.saturating_sub(self.copied)
    }

    pub const fn is_due(self) -> bool {
        self.waiting() >= DUE
    }

    /// A reader that does not end its transaction keeps the log from starting over.
    pub const fn is_held_back(self) -> bool {
        self.pages > MOST
    }
}

/// Jobs after which the state of the log is read again. At a few pages each they are a small part of [`DUE`].
const JOBS_PER_PROBE: usize = 16;

/// Decides after which commits the writer reads the state of the log.
#[derive(Debug, Default)]
pub struct LogProbe {
    jobs: usize,
    last: LogState,
}

impl LogProbe {
    /// The state of the log if it is worth reading after a commit of so many jobs. A log near its bound is read after
    /// every commit, because one job may write many pages.
    pub fn read(&mut self, store: &Store, jobs: usize) -> Result<Option<LogState>> {
        self.jobs += jobs;
        if self.jobs < JOBS_PER_PROBE && self.last.pages <= RESET {
            return Ok(None);
        }
        self.jobs = 0;
        self.last = store.log_state()?;
        Ok(Some(self.last))
    }
}

/// A connection that only moves the log into the file.
#[derive(Debug)]
pub struct Checkpointer {
    db: Connection,
    files: Files,
}

impl Checkpointer {
    pub(crate) fn open(place: &Place) -> Result<Self, OpenError> {
        let db = open::checkpointer(place.path())?;
        let files = Files::in_use(place.path()).map_err(|error| open::failed(place.path(), error))?;
        Ok(Self { db, files })
    }

    /// Whether the files in use still are the ones at their paths.
    pub fn check_files(&self) -> Result<()> {
        self.files.check()
    }

    /// Passive checkpoint: does not wait for readers. Refused if the files in use are not the linked ones.
    pub fn run(&self) -> Result<LogState> {
        self.files.check()?;
        pragma(&self.db, "PRAGMA wal_checkpoint(PASSIVE)")
    }
}

impl Store {
    /// A checkpointer for another thread. From now on commits do not checkpoint.
    pub fn checkpointer(&self) -> Result<Checkpointer, OpenError> {
        let checkpointer = Checkpointer::open(&self.place())?;
        let own = self.connection().execute_batch("PRAGMA wal_autocheckpoint = 0");
        own.map_err(|error| open::failed(self.path(), error.into()))?;
        Ok(checkpointer)
    }

    /// Commits checkpoint again, as in a store that never had a checkpointer.
    pub fn checkpoint_in_commits(&self) -> Result<()> {
        Ok(self.connection().execute_batch(open::AUTOCHECKPOINT)?)
    }

    pub fn log_state(&self) -> Result<LogState> {
        pragma(self.connection(), "PRAGMA wal_checkpoint(NOOP)")
    }

    /// Keeps the log within its bound: copies what a checkpointer could not reach. To be called between commits.
    pub fn bound_log(&self, log: LogState) -> Result<LogState> {
        let almost_done = log.pages > RESET && log.waiting() > 0 && log.waiting() <= LITTLE;
        let too_large = log.pages > MOST && log.waiting() > 0;
        if !almost_done && !too_large {
            return Ok(log);
        }
        self.check_files()?;
        pragma(self.connection(), "PRAGMA wal_checkpoint(PASSIVE)")
    }
}

fn pragma(db: &Connection, text: &str) -> Result<LogState> {
    let mut asked = db.prepare_cached(text)?;
    // -1: there is no log.
    let pages = |found: i64| u64::try_from(found).unwrap_or(0);
    let (pages, copied) = asked.query_row([], |row| Ok((pages(row.get(1)?), pages(row.get(2)?))))?;
    Ok(LogState { pages, copied })
}
