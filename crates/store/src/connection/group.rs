//! The single writer, its transactions, and readers.
//!
//! A [`Group`] is one synced transaction shared by many jobs. Each job is atomic; none is durable before `commit`
//! returns. A crash, a panic or a dropped group rolls back the whole group.
//!
//! A commit also verifies that it went into the files at the store's paths. After [`Error::Detached`] the jobs are
//! visible only to this connection, until [`Store::reattach`] succeeds.

use std::cell::Cell;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::config::DbConfig;
use rusqlite::{CachedStatement, Connection};

use crate::connection::files::{DatabaseFiles, DetachedFile, FileId};
use crate::connection::{open, reattach};
use crate::error::{Error, OpenError, Result};
use crate::schema::{self, Schema};

/// Read access. Every query is a method here, defined in the module of its table.
#[derive(Debug)]
pub struct Reads(pub(crate) Connection);

impl Reads {
    pub(crate) const fn new(db: Connection) -> Self {
        Self(db)
    }

    /// Root pages of the tables, for a later salvage.
    pub(crate) fn root_map(&self) -> Result<crate::salvage::RootMap> {
        crate::salvage::root_map_of(&self.0)
    }

    pub(crate) fn sql(&self, text: &str) -> Result<CachedStatement<'_>> {
        Ok(self.0.prepare_cached(text)?)
    }
}

/// The write connection. There is one, owned by one thread.
#[derive(Debug)]
pub struct Store {
    db: Reads,
    location: StoreLocation,
    files: DatabaseFiles,
    /// Copy left by a recovery that failed halfway.
    unfinished_copy: Option<FileId>,
    unchecked: bool,
}

/// Location of a store; opens readers for other threads.
#[derive(Debug, Clone)]
pub struct StoreLocation {
    path: PathBuf,
    schema: &'static Schema,
    generation: Arc<AtomicU64>,
    /// Files of the writer, if it is in this process.
    files: Arc<Mutex<Option<DatabaseFiles>>>,
}

impl StoreLocation {
    fn new(path: &Path, schema: &'static Schema) -> Self {
        Self { path: path.into(), schema, generation: Arc::default(), files: Arc::default() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Increases when another file replaces the database: readers opened before show an old state.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns [`Error::Detached`] if the reader would see another log than the writer.
    pub fn reader(&self) -> Result<Reader, OpenError> {
        self.check_files()?;
        let db = open::reader(&self.path, self.schema)?;
        self.check_files()?;
        Ok(Reader(Reads(db)))
    }

    fn check_files(&self) -> Result<(), OpenError> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner).clone();
        files.map_or(Ok(()), |files| files.check()).map_err(|error| open::open_error(&self.path, error))
    }

    fn set_files(&self, files: DatabaseFiles) {
        *self.files.lock().unwrap_or_else(PoisonError::into_inner) = Some(files);
    }
}

impl Store {
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_as(path.as_ref(), &schema::GATEWAY)
    }

    /// Opens the database of a connector.
    pub fn open_connector(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_as(path.as_ref(), &schema::CONNECTOR)
    }

    pub(crate) fn open_as(path: &Path, schema: &'static Schema) -> Result<Self, OpenError> {
        crate::salvage::announce_migration(path, schema)?;
        let open::Writer { db, unchecked } = open::writer(path, schema)?;
        let db = Reads(db);
        crate::salvage::store_map(&db, path)?;
        let files = DatabaseFiles::in_use(path).map_err(|error| open::open_error(path, error))?;
        let location = StoreLocation::new(path, schema);
        location.set_files(files.clone());
        Ok(Self { db, location, files, unfinished_copy: None, unchecked })
    }

    /// Whether the pages should be checked during use ([`Reads::check_pieces`]), because a large file was not closed cleanly.
    pub const fn is_unchecked(&self) -> bool {
        self.unchecked
    }

    pub fn check_files(&self) -> Result<()> {
        self.files.check()
    }

    /// Copies the state of this connection to a new file at the store's path and continues with that file. An error leaves
    /// this connection unchanged; the call may be repeated.
    pub fn reattach(&mut self) -> Result<()> {
        let path = self.location.path.clone();
        reattach::prepare(&self.db.0, &path, &self.files, self.unfinished_copy)?;
        let opened = open::writer(&path, self.location.schema);
        self.unfinished_copy = FileId::of(&path)?;
        let db = opened.map_err(|error| Error::Io(error.to_string()))?.db;
        self.files = DatabaseFiles::in_use(&path)?;
        self.location.set_files(self.files.clone());
        self.unfinished_copy = None;
        let old = std::mem::replace(&mut self.db, Reads(db));
        // The old log disappears with its last descriptor; it must not be checkpointed into another file.
        old.0.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        self.location.generation.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.db.0
    }

    pub fn path(&self) -> &Path {
        &self.location.path
    }

    pub fn location(&self) -> StoreLocation {
        self.location.clone()
    }

    pub fn group(&mut self) -> Result<Group<'_>> {
        self.db.sql("BEGIN IMMEDIATE")?.execute([])?;
        Ok(Group {
            db: &self.db,
            files: &self.files,
            jobs: Cell::new(0),
            state: Cell::new(GroupState::Ready),
        })
    }

    pub fn write<T>(&mut self, job: impl FnOnce(&Tx<'_>) -> Result<T>) -> Result<T> {
        let group = self.group()?;
        let result = group.job(job)?;
        group.commit()?;
        Ok(result)
    }

    pub fn checkpoint_passive(&self) -> Result<()> {
        Ok(self.db.0.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?)
    }

    /// Copies the log into the database file and truncates it, unless a read transaction is open. Then the log stays, and
    /// the next start reads it.
    pub fn checkpoint_truncate(&self) -> Result<()> {
        self.files.check()?;
        Ok(self.db.0.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
    }

    /// Last resort at shutdown: checkpoints an unlinked log through its open descriptors. Refused if the database itself was
    /// replaced, or if another program created a new log: both would write to the database without a common lock.
    pub fn checkpoint_removed_log(&self) -> Result<()> {
        match self.files.check() {
            Ok(()) | Err(Error::Detached(DetachedFile::Log | DetachedFile::SharedMemory)) => {}
            Err(error) => return Err(error),
        }
        if !self.files.replacements()?.is_empty() {
            return Err(Error::Detached(DetachedFile::Log));
        }
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        let busy: bool = self.db.0.query_row(checkpoint, [], |row| row.get(0))?;
        if busy { Err(Error::Busy) } else { Ok(()) }
    }

    /// Closes the file, with a checkpoint if this is the last connection. Dropping the store hides failures.
    pub fn close(self) -> Result<()> {
        if self.files.check().is_err() {
            // The paths may lead to another database: its log must be neither checkpointed nor removed.
            self.db.0.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        }
        self.db.0.close().map_err(|(_, error)| error.into())
    }

    /// Counts virtual-machine steps from now on, for tests of query cost.
    pub fn count_steps(&self) -> Arc<AtomicU64> {
        let steps = Arc::new(AtomicU64::new(0));
        let counter = steps.clone();
        let count = move || {
            counter.fetch_add(1, Ordering::Relaxed);
            false
        };
        // Fails only on a borrowed connection handle.
        let _ = self.db.0.progress_handler(1, Some(count));
        steps
    }

    /// Commits are durable only after the next checkpoint. For tests of tests.
    pub fn skip_commit_syncs(&self) -> Result<()> {
        Ok(self.db.0.execute_batch("PRAGMA synchronous = NORMAL")?)
    }

    /// Limits the file size; writes beyond it fail with [`Error::Full`].
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
enum GroupState {
    Ready,
    /// A job is running. Still set afterwards, it means that the job panicked.
    InJob,
    /// SQLite rolled the transaction back, or a job was aborted halfway.
    Broken,
}

/// One transaction. Dropping it without `commit` rolls it back.
#[derive(Debug)]
pub struct Group<'a> {
    db: &'a Reads,
    files: &'a DatabaseFiles,
    /// Number of successful jobs.
    jobs: Cell<u32>,
    state: Cell<GroupState>,
}

impl Group<'_> {
    /// Runs one job. A failure rolls back only its own writes.
    pub fn job<T>(&self, job: impl FnOnce(&Tx<'_>) -> Result<T>) -> Result<T> {
        if self.state.replace(GroupState::InJob) != GroupState::Ready {
            self.state.set(GroupState::Broken);
            return Err(Error::Broken);
        }
        // The first job needs no savepoint: rolling it back is rolling the transaction back.
        let result = if self.jobs.get() == 0 { self.run_first(job) } else { self.run_nested(job) };
        if result.is_ok() {
            self.jobs.set(self.jobs.get() + 1);
        }
        let alive = !self.db.0.is_autocommit();
        self.state.set(if alive { GroupState::Ready } else { GroupState::Broken });
        result
    }

    pub fn commit(self) -> Result<()> {
        if self.state.replace(GroupState::Broken) != GroupState::Ready {
            return Err(Error::Broken);
        }
        self.run("COMMIT")?;
        match self.files.check() {
            Err(detached @ Error::Detached(_)) => Err(detached),
            // The commit is durable. If the check itself failed, the next one reports.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn run_first<T>(&self, job: impl FnOnce(&Tx<'_>) -> Result<T>) -> Result<T> {
        job(&Tx { db: self.db }).inspect_err(|_| {
            if !self.db.0.is_autocommit() && self.run("ROLLBACK").is_err() {
                return;
            }
            // Without a transaction the caller sees a broken group.
            let _ = self.run("BEGIN IMMEDIATE");
        })
    }

    fn run_nested<T>(&self, job: impl FnOnce(&Tx<'_>) -> Result<T>) -> Result<T> {
        self.run("SAVEPOINT job")?;
        match job(&Tx { db: self.db }) {
            Ok(result) => self.run("RELEASE job").map(|()| result),
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
            // A failure here is harmless: SQLite rolls back when the file is next opened.
            let _ = self.db.0.execute_batch("ROLLBACK");
        }
    }
}

/// One job in a transaction. Every write is a method here.
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

/// A read-only connection for other threads and processes.
#[derive(Debug)]
pub struct Reader(Reads);

impl Reader {
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        StoreLocation::new(path.as_ref(), &schema::GATEWAY).reader()
    }

    pub fn open_connector(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        StoreLocation::new(path.as_ref(), &schema::CONNECTOR).reader()
    }

    /// Runs `read` on one consistent snapshot. Nested calls share the outer snapshot.
    pub fn snapshot<T>(&self, read: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        if !self.0.0.is_autocommit() {
            return read(self);
        }
        self.0.sql("BEGIN DEFERRED")?.execute([])?;
        let transaction = ReadTransaction(&self.0);
        let result = read(self)?;
        transaction.end()?;
        Ok(result)
    }
}

impl Deref for Reader {
    type Target = Reads;

    fn deref(&self) -> &Reads {
        &self.0
    }
}

/// A read transaction that ends on drop, so that a failed or panicking query does not block checkpoints.
struct ReadTransaction<'a>(&'a Reads);

impl ReadTransaction<'_> {
    fn end(&self) -> Result<()> {
        self.0.sql("COMMIT")?.execute([])?;
        Ok(())
    }
}

impl Drop for ReadTransaction<'_> {
    fn drop(&mut self) {
        if !self.0.0.is_autocommit() {
            let _ = self.0.0.execute_batch("ROLLBACK");
        }
    }
}
