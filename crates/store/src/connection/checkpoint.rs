//! WAL checkpoints outside the writer thread.
//!
//! A passive checkpoint blocks neither readers nor the writer, but its two syncs take tens of milliseconds. A
//! [`Checkpointer`] runs it on its own connection, so that no commit waits. Once the whole log is copied, the writer
//! restarts the log and overwrites it in place, which syncs several times faster than a growing file.
//!
//! Under continuous commits a concurrent checkpoint never reaches the end of the log. Above 4,096 pages the writer
//! copies the remainder itself ([`Store::bound_log`]). A store without a checkpointer checkpoints in its own commits,
//! every 1,000 pages.

use rusqlite::Connection;

use crate::connection::files::DatabaseFiles;
use crate::connection::open;
use crate::connection::{Store, StoreLocation};
use crate::error::{OpenError, Result};

/// Uncopied pages that make a checkpoint worth its two syncs.
const DUE_PAGES: u64 = 1000;
/// Log size, in pages, above which the writer makes the log restart.
const RESET_PAGES: u64 = 4096;
/// Remainder that the writer copies itself above [`RESET_PAGES`].
const TAIL_PAGES: u64 = 512;
/// Log size, in pages (64 MB), above which the writer copies everything, however long it takes.
const MAX_PAGES: u64 = 16_384;

/// Fill level of the log, in pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogState {
    /// Pages in use. The file may be larger: it keeps its size when the log restarts.
    pub pages: u64,
    /// Pages already copied into the database.
    pub copied: u64,
}

impl LogState {
    pub const fn waiting(self) -> u64 {
        self.pages.saturating_sub(self.copied)
    }

    pub const fn is_due(self) -> bool {
        self.waiting() >= DUE_PAGES
    }

    /// Whether a long read transaction prevents the log from restarting.
    pub const fn is_held_back(self) -> bool {
        self.pages > MAX_PAGES
    }
}

/// Jobs after which the state of the log is read again. At a few pages each they are a small part of [`DUE_PAGES`].
const JOBS_PER_PROBE: usize = 16;

/// Decides after which commits the writer reads the state of the log: reading takes a measurable part of a small commit.
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
        if self.jobs < JOBS_PER_PROBE && self.last.pages <= RESET_PAGES {
            return Ok(None);
        }
        self.jobs = 0;
        self.last = store.log_state()?;
        Ok(Some(self.last))
    }
}

#[derive(Debug)]
pub struct Checkpointer {
    db: Connection,
    files: DatabaseFiles,
}

impl Checkpointer {
    pub(crate) fn open(location: &StoreLocation) -> Result<Self, OpenError> {
        let db = open::checkpointer(location.path())?;
        let files = DatabaseFiles::in_use(location.path())
            .map_err(|error| open::open_error(location.path(), error))?;
        Ok(Self { db, files })
    }

    pub fn check_files(&self) -> Result<()> {
        self.files.check()
    }

    /// Runs a passive checkpoint. Refused if the open files are not those at their paths.
    pub fn run(&self) -> Result<LogState> {
        self.files.check()?;
        pragma(&self.db, "PRAGMA wal_checkpoint(PASSIVE)")
    }
}

impl Store {
    /// Creates a checkpointer for another thread and disables checkpoints in commits.
    pub fn checkpointer(&self) -> Result<Checkpointer, OpenError> {
        let checkpointer = Checkpointer::open(&self.location())?;
        let own = self.connection().execute_batch("PRAGMA wal_autocheckpoint = 0");
        own.map_err(|error| open::open_error(self.path(), error.into()))?;
        Ok(checkpointer)
    }

    pub fn checkpoint_in_commits(&self) -> Result<()> {
        Ok(self.connection().execute_batch(open::AUTOCHECKPOINT)?)
    }

    pub fn log_state(&self) -> Result<LogState> {
        pragma(self.connection(), "PRAGMA wal_checkpoint(NOOP)")
    }

    /// Copies the part of the log that a checkpointer cannot reach. Call it between commits.
    pub fn bound_log(&self, log: LogState) -> Result<LogState> {
        let almost_done = log.pages > RESET_PAGES && log.waiting() > 0 && log.waiting() <= TAIL_PAGES;
        let too_large = log.pages > MAX_PAGES && log.waiting() > 0;
        if !almost_done && !too_large {
            return Ok(log);
        }
        self.check_files()?;
        pragma(self.connection(), "PRAGMA wal_checkpoint(PASSIVE)")
    }
}

fn pragma(db: &Connection, text: &str) -> Result<LogState> {
    let mut statement = db.prepare_cached(text)?;
    // SQLite returns -1 if there is no log.
    let pages = |found: i64| u64::try_from(found).unwrap_or(0);
    let (pages, copied) = statement.query_row([], |row| Ok((pages(row.get(1)?), pages(row.get(2)?))))?;
    Ok(LogState { pages, copied })
}
