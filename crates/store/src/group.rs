//! The one writer, its transactions, and readers.
//!
//! A [`Group`] is one synced transaction shared by many jobs. Each job either happens or leaves no trace;
//! none is durable before `commit` returns. A crash, a panic or a dropped group leaves nothing of it.
//!
//! A commit also verifies that it went into the files at the store's paths. [`Error::Detached`] means that it did
//! not: the jobs are done, but only this connection sees them until [`Store::reattach`] has returned.

use std::cell::Cell;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::config::DbConfig;
use rusqlite::{CachedStatement, Connection};

use crate::error::{Error, OpenError, Result};
use crate::files::{Detached, FileId, Files};
use crate::schema::{self, Schema};
use crate::{open, reattach};

/// The database as it can be asked. Every question is a method here; see the modules by table.
#[derive(Debug)]
pub struct Reads(pub(crate) Connection);

impl Reads {
    pub(crate) const fn of(db: Connection) -> Self {
        Self(db)
    }

    /// Where its tables begin, for a later salvage.
    pub(crate) fn map(&self) -> Result<crate::salvage::Map> {
        crate::salvage::map_of(&self.0)
    }

    pub(crate) fn sql(&self, text: &str) -> Result<CachedStatement<'_>> {
        Ok(self.0.prepare_cached(text)?)
    }
}

/// The connection that writes. There is one, and one thread owns it.
#[derive(Debug)]
pub struct Store {
    db: Reads,
    place: Place,
    files: Files,
    /// The copy of a recovery that went no further.
    unfinished: Option<FileId>,
    unchecked: bool,
}

/// Where a store is, for those who only look.
#[derive(Debug, Clone)]
pub struct Place {
    path: PathBuf,
    schema: &'static Schema,
    generation: Arc<AtomicU64>,
    /// Those of the writer, if it is in this process. Held only to copy or replace them.
    files: Arc<Mutex<Option<Files>>>,
}

impl Place {
    fn new(path: &Path, schema: &'static Schema) -> Self {
        Self { path: path.into(), schema, generation: Arc::default(), files: Arc::default() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Changes whenever another file has taken the place of the database: connections from before show an old state.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Fails with [`Error::Detached`] where the reader would see another log than the writer.
    pub fn reader(&self) -> Result<Reader, OpenError> {
        self.check_files()?;
        let db = open::reader(&self.path, self.schema)?;
        self.check_files()?;
        Ok(Reader(Reads(db)))
    }

    fn check_files(&self) -> Result<(), OpenError> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner).clone();
        files.map_or(Ok(()), |files| files.check()).map_err(|error| open::failed(&self.path, error))
    }

    fn use_files(&self, files: Files) {
        *self.files.lock().unwrap_or_else(PoisonError::into_inner) = Some(files);
    }
}

impl Store {
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_as(path.as_ref(), &schema::GATEWAY)
    }

    /// A connector's; see the module of that name.
    pub fn open_connector(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_as(path.as_ref(), &schema::CONNECTOR)
    }

    fn open_as(path: &Path, schema: &'static Schema) -> Result<Self, OpenError> {
        crate::salvage::announce(path, schema)?;
        let open::Writer { db, unchecked } = open::writer(path, schema)?;
        let db = Reads(db);
        crate::salvage::note_map(&db, path)?;
        let files = Files::in_use(path).map_err(|error| open::failed(path, error))?;
        let place = Place::new(path, schema);
        place.use_files(files.clone());
        Ok(Self { db, place, files, unfinished: None, unchecked })
    }

    /// Its pages should be checked while it is in use ([`Reads::check_pieces`]): it was not closed, and is large.
    pub const fn is_unchecked(&self) -> bool {
        self.unchecked
    }

    /// A start of the gateway salvages its damaged database; a connector's is left to a person.
    pub fn is_salvageable(&self) -> bool {
        std::ptr::eq(self.place.schema, &raw const schema::GATEWAY)
    }

    /// Whether the files in use still are the ones at their paths.
    pub fn check_files(&self) -> Result<()> {
        self.files.check()
    }

    /// Puts everything this connection sees into a new file at the store's path and goes on with that. If it fails,
    /// nothing is changed for this connection, and it may be called again.
    pub fn reattach(&mut self) -> Result<()> {
        let path = self.place.path.clone();
        reattach::prepare(&self.db.0, &path, &self.files, self.unfinished)?;
        let opened = open::writer(&path, self.place.schema);
        self.unfinished = FileId::of(&path)?;
        let db = opened.map_err(|error| Error::Io(error.to_string()))?.db;
        self.files = Files::in_use(&path)?;
        self.place.use_files(self.files.clone());
        self.unfinished = None;
        let old = std::mem::replace(&mut self.db, Reads(db));
        // The old log goes with its last descriptor; it must not be folded into anything.
        old.0.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        self.place.generation.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.db.0
    }

    pub fn path(&self) -> &Path {
        &self.place.path
    }

    pub fn place(&self) -> Place {
        self.place.clone()
    }

    /// Starts a transaction.
    pub fn group(&mut self) -> Result<Group<'_>> {
        self.db.sql("BEGIN IMMEDIATE")?.execute([])?;
        Ok(Group { db: &self.db, files: &self.files, jobs: Cell::new(0), state: Cell::new(Health::Sound) })
    }

    /// A group of one job.
    pub fn write<T>(&mut self, job: impl FnOnce(&Tx<'_>) -> Result<T>) -> Result<T> {
        let group = self.group()?;
        let answer = group.job(job)?;
        group.commit()?;
        Ok(answer)
    }

    /// Copies what readers allow from the log into the file, without waiting for anyone.
    pub fn checkpoint_passive(&self) -> Result<()> {
        Ok(self.db.0.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?)
    }

    /// Folds the log into the file, if that is the one at its path. Open readers do not keep it from that, unless they are in the middle of a
    /// question; then the log stays, and the next start reads it.
    pub fn fold(&self) -> Result<()> {
        self.files.check()?;
        Ok(self.db.0.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
    }

    /// Last resort of a process that ends: copies a log that was removed into the database, through the open
    /// descriptors. Refused if the database itself is not the one at its path, or if another program has made a log of
    /// its own: both would write to the database without a lock between them.
    pub fn fold_removed_log(&self) -> Result<()> {
        match self.files.check() {
            Ok(()) | Err(Error::Detached(Detached::Log | Detached::SharedMemory)) => {}
            Err(error) => return Err(error),
        }
        if !self.files.replacements()?.is_empty() {
            return Err(Error::Detached(Detached::Log));
        }
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        let busy: bool = self.db.0.query_row(checkpoint, [], |row| row.get(0))?;
        if busy { Err(Error::Busy) } else { Ok(()) }
    }

    /// Closes the file, and folds the log into it if nobody else has it open. Dropping hides failures.
    pub fn close(self) -> Result<()> {
        if self.files.check().is_err() {
            // The paths may lead to another database, whose log must be neither folded nor removed.
            self.db.0.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        }
        self.db.0.close().map_err(|(_, error)| error.into())
    }

    /// Counts the steps of SQLite's virtual machine from now on: for tests of what a statement costs.
    pub fn count_steps(&self) -> Arc<AtomicU64> {
        let steps = Arc::new(AtomicU64::new(0));
        let counter = steps.clone();
        let count = move || {
            counter.fetch_add(1, Ordering::Relaxed);
            false
        };
        // Fails only on a connection that we do not own.
        let _ = self.db.0.progress_handler(1, Some(count));
        steps
    }

    /// Bounds the file to this many pages; beyond, writes fail with [`Error::Full`].
    pub fn limit_pages(&self, pages: u32) -> Result<()> {
        Ok(self.db.0.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?)
    }
}

impl Deref for Store {
    type Target = Reads;

    fn deref(&self) -> &Reads {
        &self.db
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Sound,
    /// A job is running; if it is still so afterwards, the job panicked.
    Inside,
    /// SQLite gave the transaction up, or a job was left halfway.
    Broken,
}

/// One transaction. Dropping it without `commit` undoes it.
#[derive(Debug)]
pub struct Group<'a> {
    db: &'a Reads,
    files: &'a Files,
    /// Jobs whose writes this transaction holds.
    jobs: Cell<u32>,
    state: Cell<Health>,
}

impl Group<'_> {
    /// Runs one job. If it fails, only its own writes are undone.
    pub fn job<T>(&self, job: impl FnOnce(&Tx<'_>) -> Result<T>) -> Result<T> {
        if self.state.replace(Health::Inside) != Health::Sound {
            self.state.set(Health::Broken);
            return Err(Error::Broken);
        }
        // The first job needs no savepoint: undoing it is undoing the transaction.
        let answer = if self.jobs.get() == 0 { self.first(job) } else { self.nested(job) };
        if answer.is_ok() {
            self.jobs.set(self.jobs.get() + 1);
        }
        let alive = !self.db.0.is_autocommit();
        self.state.set(if alive { Health::Sound } else { Health::Broken });
        answer
    }

    pub fn commit(self) -> Result<()> {
        if self.state.replace(Health::Broken) != Health::Sound {
            return Err(Error::Broken);
        }
        self.run("COMMIT")?;
        match self.files.check() {
            Err(detached @ Error::Detached(_)) => Err(detached),
            // The commit is durable. If the files could not be looked at, the next check tells.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn first<T>(&self, job: impl FnOnce(&Tx<'_>) -> Result<T>) -> Result<T> {
        job(&Tx { db: self.db }).inspect_err(|_| {
            if !self.db.0.is_autocommit() && self.run("ROLLBACK").is_err() {
                return;
            }
            // Failing here leaves no transaction, which the caller sees as a broken group.
            let _ = self.run("BEGIN IMMEDIATE");
        })
    }

    fn nested<T>(&self, job: impl FnOnce(&Tx<'_>) -> Result<T>) -> Result<T> {
        self.run("SAVEPOINT job")?;
        match job(&Tx { db: self.db }) {
            Ok(answer) => self.run("RELEASE job").map(|()| answer),
            Err(error) => {
                if !self.db.0.is_autocommit() {
                    self.run("ROLLBACK TO job")?;
                    self.run("RELEASE job")?;
                }
                Err(error)
            }
        }
    }

    fn run(&self, text: &str) -> Result<()> {
        self.db.sql(text)?.execute([])?;
        Ok(())
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        if !self.db.0.is_autocommit() {
            // Nothing can be done about a failure here; SQLite undoes the rest when the file is next opened.
            let _ = self.db.0.execute_batch("ROLLBACK");
        }
    }
}

/// The inside of one job: every write is a method here, and every question too.
#[derive(Debug)]
pub struct Tx<'a> {
    db: &'a Reads,
}

impl Deref for Tx<'_> {
    type Target = Reads;

    fn deref(&self) -> &Reads {
        self.db
    }
}

/// A connection that only reads, for other threads and other processes.
#[derive(Debug)]
pub struct Reader(Reads);

impl Reader {
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Place::new(path.as_ref(), &schema::GATEWAY).reader()
    }

    pub fn open_connector(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Place::new(path.as_ref(), &schema::CONNECTOR).reader()
    }

    /// Everything the question reads is of one moment. Asking within a question keeps its moment.
    pub fn ask<T>(&self, question: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        if !self.0.0.is_autocommit() {
            return question(self);
        }
        self.0.sql("BEGIN DEFERRED")?.execute([])?;
        let moment = Moment(&self.0);
        let answer = question(self)?;
        moment.end()?;
        Ok(answer)
    }
}

impl Deref for Reader {
    type Target = Reads;

    fn deref(&self) -> &Reads {
        &self.0
    }
}

/// A read transaction. Dropping it ends it, so that a failed or panicking question does not hold the log back.
struct Moment<'a>(&'a Reads);

impl Moment<'_> {
    fn end(&self) -> Result<()> {
        self.0.sql("COMMIT")?.execute([])?;
        Ok(())
    }
}

impl Drop for Moment<'_> {
    fn drop(&mut self) {
        if !self.0.0.is_autocommit() {
            // A transaction that only read has nothing to lose.
            let _ = self.0.0.execute_batch("ROLLBACK");
        }
    }
}
