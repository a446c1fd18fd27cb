//! The database thread and its handle.
//!
//! Owns the only write connection. Waiting jobs are combined into one synced transaction (group commit); a job completes
//! only after that commit. A crash loses only jobs that have not completed.
//!
//! When the disk refuses writes (full, read-only, damaged), jobs fail with that error and `health` reports it until a job
//! succeeds.
//!
//! When another program has removed the files in use, the jobs of the group complete after the data is in a new file
//! (`checkpoints`).

mod check;
mod checkpoints;
mod damage;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use petasos_store::{Error as StoreError, OpenError, Reader, Store, StoreLocation, Tx};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use self::checkpoints::CheckpointControl;
pub use self::checkpoints::FileStatus;
use self::damage::Damage;

use crate::Error;
use crate::lifecycle::shutdown::ShutdownHandle;
use crate::runtime::commit::{Commit, Side, about_to_commit, has_committed, may_die_at};
use crate::runtime::fault_injection::{PlantedBug, planted};

const QUEUE_CAPACITY: usize = 1024;
/// How long a read waits for a database that is being recovered.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_GROUP: usize = 512;

#[derive(Debug, Clone)]
pub struct Db {
    requests: mpsc::Sender<DbRequest>,
    readers: Arc<Readers>,
    health: watch::Receiver<Option<StoreError>>,
    /// Damage found by a read or a write; never cleared.
    damage: Damage,
    file_status: watch::Receiver<FileStatus>,
    /// The pages must be checked in the background.
    unchecked: bool,
}

/// The running database thread. Joining it closes the database.
#[derive(Debug)]
pub struct Writer(Worker);

#[derive(Debug)]
enum Worker {
    Thread(JoinHandle<()>),
    Task(tokio::task::JoinHandle<()>),
}

impl Writer {
    /// Waits until all handles are dropped and the file is closed.
    pub fn join(self) {
        match self.0 {
            Worker::Thread(thread) => {
                if thread.join().is_err() {
                    tracing::error!("the database thread panicked");
                }
            }
            Worker::Task(task) => drop(task),
        }
    }

    /// The async version of [`Self::join`].
    pub async fn closed(self) -> Result<(), Error> {
        let closed = match self.0 {
            Worker::Thread(_) => petasos_runtime::blocking(move || self.join()),
            Worker::Task(task) => task,
        };
        closed.await.map_err(|_panicked| Error::Io("closing the database panicked".into()))
    }
}

#[expect(clippy::disallowed_methods, reason = "commits block, so they have a thread of their own")]
pub fn start(store: Store, shutdown: ShutdownHandle) -> Result<(Db, Writer), Error> {
    if planted(PlantedBug::UnsyncedCommits) {
        store.skip_commit_syncs().map_err(Error::Store)?;
    }
    let place = store.location();
    let unchecked = store.is_unchecked();
    petasos_agent::protected_files::protect_database(place.path());
    let (requests, waiting) = mpsc::channel(QUEUE_CAPACITY);
    let (report, health) = watch::channel(None);
    let damage = Damage::default();
    let found = damage.clone();
    let (status_sender, file_status) = watch::channel(FileStatus::default());
    let checkpoints = CheckpointControl::new(requests.downgrade(), status_sender, shutdown.clone());
    let thread = DbThread { store, checkpoints, health: report, damage: found };
    let worker = if petasos_runtime::is_simulated() {
        Worker::Task(petasos_runtime::spawn(async move {
            let _guard = FailOnPanic(shutdown);
            thread.run_as_task(waiting).await;
        }))
    } else {
        let run = move || {
            let _guard = FailOnPanic(shutdown);
            thread.run(waiting);
        };
        let thread = std::thread::Builder::new().name("petasos-db".into()).spawn(run);
        Worker::Thread(
            thread.map_err(|error| Error::Io(format!("cannot start the database thread: {error}")))?,
        )
    };
    let readers = Arc::new(Readers { place, idle: Mutex::default(), permits: Semaphore::new(MAX_READERS) });
    Ok((Db { requests, readers, health, damage, file_status, unchecked }, Writer(worker)))
}

/// Stops the gateway if the database thread panics.
struct FailOnPanic(ShutdownHandle);

impl Drop for FailOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail();
        }
    }
}

impl Db {
    /// Runs a job in the next transaction and returns after its commit.
    pub async fn write<T, F>(&self, commit: Commit, job: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job = TypedJob { job: Some(job), value: None, reply };
        self.requests
            .send(DbRequest::WriteJob(commit, Box::new(job)))
            .await
            .map_err(|_closed| Error::Stopping)?;
        answer.await.map_err(|_closed| Error::Stopping)?.map_err(Error::Store)
    }

    pub async fn read<T, F>(&self, question: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Reader) -> Result<T, StoreError> + Send + 'static,
    {
        let _permit = self.readers.permits.acquire().await.map_err(|_closed| Error::Stopping)?;
        let (generation, reader) = self.reader().await?;
        let readers = self.readers.clone();
        let asked = petasos_runtime::blocking(move || {
            let answer = reader.snapshot(question).map_err(Error::Store);
            readers.lock().push((generation, reader));
            answer
        });
        let answer = asked.await.map_err(|_panicked| Error::Io("a database reader panicked".into()))?;
        if let Err(Error::Store(error)) = &answer {
            self.damage.note(error);
        }
        answer
    }

    /// An idle reader or a new one. Opening a new one fails while the writer's files are not at their paths.
    async fn reader(&self) -> Result<(u64, Reader), Error> {
        if let Some(kept) = self.readers.idle() {
            return Ok(kept);
        }
        match self.open_reader().await? {
            Err(OpenError::Failed { error: StoreError::Detached(_), .. }) => {}
            opened => return opened.map_err(|error| Error::Io(error.to_string())),
        }
        // The writer recovers before it completes the next job.
        let recovered = tokio::time::timeout(RECOVERY_TIMEOUT, self.write(Commit::WriteProbe, |_| Ok(())));
        let _late = recovered.await;
        self.open_reader().await?.map_err(|error| Error::Io(error.to_string()))
    }

    async fn open_reader(&self) -> Result<Result<(u64, Reader), OpenError>, Error> {
        let readers = self.readers.clone();
        let opened = petasos_runtime::blocking(move || {
            let generation = readers.place.generation();
            readers.place.reader().map(|reader| (generation, reader))
        });
        opened.await.map_err(|_panicked| Error::Io("opening a database reader panicked".into()))
    }

    /// Checkpoints the write-ahead log into the file, before the process ends.
    pub async fn checkpoint(&self) {
        let (done, folded) = oneshot::channel();
        // Without the thread the file is closed, which checkpoints as well.
        if self.requests.send(DbRequest::Checkpoint(done)).await.is_ok() {
            let _ = folded.await;
        }
    }

    /// Records that rows could not be decoded: the next start looks for all of them.
    pub(crate) fn note_unreadable_rows(&self) {
        self.damage.note_rows();
    }

    /// Resolves when the database is found damaged.
    pub async fn damaged(&self) -> String {
        self.damage.wait().await
    }

    pub(crate) fn path(&self) -> &Path {
        self.readers.place.path()
    }

    pub fn file_status(&self) -> watch::Receiver<FileStatus> {
        self.file_status.clone()
    }

    /// The damage found, or the last write error since the last successful write.
    pub fn problem(&self) -> Option<String> {
        let refused = self.health.borrow().as_ref().map(ToString::to_string);
        let held_back = || {
            self.file_status.borrow().log_held_back.then(|| {
                "the database log grows because another program keeps a read transaction open; close that program"
                    .into()
            })
        };
        self.damage.problem().or(refused).or_else(held_back)
    }
}

#[derive(Debug)]
struct Readers {
    place: StoreLocation,
    /// Idle connections with the generation of their file. Locked only to push or pop.
    idle: Mutex<Vec<(u64, Reader)>>,
    permits: Semaphore,
}

/// Concurrent reads, each with its own connection.
const MAX_READERS: usize = 4;

impl Readers {
    fn idle(&self) -> Option<(u64, Reader)> {
        let generation = self.place.generation();
        let mut idle = self.lock();
        // Closes connections to a replaced file.
        idle.retain(|(of, _)| *of == generation);
        idle.pop()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(u64, Reader)>> {
        self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

enum DbRequest {
    WriteJob(Commit, Box<dyn WriteJob>),
    Checkpoint(oneshot::Sender<()>),
    /// Check whether the files in use are still at their paths.
    Verify,
}

/// Buffers of one round, reused between rounds.
struct RequestBuffers {
    waiting: Vec<DbRequest>,
    jobs: Vec<Box<dyn WriteJob>>,
    commits: Vec<Commit>,
}

impl Default for RequestBuffers {
    fn default() -> Self {
        Self {
            waiting: Vec::with_capacity(MAX_GROUP),
            jobs: Vec::with_capacity(MAX_GROUP),
            commits: Vec::with_capacity(MAX_GROUP),
        }
    }
}

/// A job with its result type erased.
trait WriteJob: Send {
    fn run(&mut self, tx: &Tx<'_>) -> Result<(), StoreError>;
    /// Sends the result to the caller. `outcome`: result of the transaction.
    fn complete(self: Box<Self>, outcome: Result<(), StoreError>);
}

struct TypedJob<F, T> {
    job: Option<F>,
    value: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<F, T> WriteJob for TypedJob<F, T>
where
    T: Send,
    F: FnOnce(&Tx<'_>) -> Result<T, StoreError> + Send,
{
    fn run(&mut self, tx: &Tx<'_>) -> Result<(), StoreError> {
        let job = self.job.take().ok_or(StoreError::Broken)?;
        self.value = Some(job(tx)?);
        Ok(())
    }

    fn complete(self: Box<Self>, outcome: Result<(), StoreError>) {
        let Self { value, reply, .. } = *self;
        let answer = outcome.and_then(|()| value.ok_or(StoreError::Broken));
        let _ = reply.send(answer);
    }
}

/// State of the database thread, or of its task in a simulation.
struct DbThread {
    store: Store,
    checkpoints: CheckpointControl,
    health: watch::Sender<Option<StoreError>>,
    damage: Damage,
}

impl DbThread {
    fn run(mut self, mut waiting: mpsc::Receiver<DbRequest>) {
        self.checkpoints.start(&self.store);
        let mut requests = RequestBuffers::default();
        while waiting.blocking_recv_many(&mut requests.waiting, MAX_GROUP) > 0 {
            self.process(&mut requests);
        }
        self.end();
    }

    async fn run_as_task(mut self, mut waiting: mpsc::Receiver<DbRequest>) {
        self.checkpoints.start(&self.store);
        let mut requests = RequestBuffers::default();
        while waiting.recv_many(&mut requests.waiting, MAX_GROUP).await > 0 {
            self.process(&mut requests);
        }
        self.end();
    }

    /// Runs the waiting requests in one transaction.
    fn process(&mut self, requests: &mut RequestBuffers) {
        let RequestBuffers { waiting, jobs, commits } = requests;
        let mut checkpoints = vec![];
        let mut verify = false;
        for ask in waiting.drain(..) {
            match ask {
                DbRequest::WriteJob(commit, job) => {
                    commits.push(commit);
                    jobs.push(job);
                }
                DbRequest::Checkpoint(done) => checkpoints.push(done),
                DbRequest::Verify => verify = true,
            }
        }
        if !jobs.is_empty() {
            let outcomes = self.write_group(jobs, commits);
            let count = jobs.len();
            commits.clear();
            note_health(&self.health, &outcomes);
            let failed = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
            failed.for_each(|error| self.damage.note(error));
            for (job, outcome) in jobs.drain(..).zip(outcomes) {
                job.complete(outcome);
            }
            self.checkpoints.after_commit(&self.store, count);
        } else if verify {
            self.verify();
        }
        for done in checkpoints {
            self.checkpoint();
            let _ = done.send(());
        }
    }

    fn end(mut self) {
        if self.store.check_files().is_err() {
            self.checkpoint();
        }
        self.checkpoints.stop();
        let Self { store, damage, .. } = self;
        let path = store.path().to_owned();
        if let Err(error) = store.close() {
            tracing::error!(%error, "the database did not close cleanly");
        }
        damage.write_note(&path);
    }

    fn write_group(
        &mut self,
        jobs: &mut [Box<dyn WriteJob>],
        commits: &[Commit],
    ) -> Vec<Result<(), StoreError>> {
        let group = match self.store.group() {
            Ok(group) => group,
            Err(error) => return jobs.iter().map(|_| Err(error.clone())).collect(),
        };
        let outcomes: Vec<_> = jobs.iter_mut().map(|job| group.job(|tx| job.run(tx))).collect();
        commits.iter().for_each(|commit| may_die_at(*commit, Side::Before));
        let committed = match about_to_commit(commits).and_then(|()| group.commit()) {
            Err(error @ StoreError::Detached(_)) => self.reattach(&error),
            committed => committed,
        };
        commits.iter().for_each(|commit| may_die_at(*commit, Side::After));
        if committed.is_ok() {
            has_committed(commits, &self.store);
        }
        match committed {
            Ok(()) => outcomes,
            Err(error) => {
                outcomes.into_iter().map(|outcome| outcome.and_then(|()| Err(error.clone()))).collect()
            }
        }
    }

    fn verify(&mut self) {
        if let Err(error @ StoreError::Detached(_)) = self.store.check_files()
            && self.reattach(&error).is_ok()
        {
            note_health(&self.health, &[]);
        }
    }

    /// `Ok`: all committed data is in the file at its path.
    fn reattach(&mut self, found: &StoreError) -> Result<(), StoreError> {
        let Self { store, checkpoints, health, .. } = self;
        checkpoints.reattach(store, found, |error| drop(health.send_replace(Some(error.clone()))))
    }

    /// Final checkpoint. The recovery of removed files gets one attempt.
    fn checkpoint(&mut self) {
        self.checkpoints.stop();
        if let Err(error @ StoreError::Detached(_)) = self.store.check_files() {
            tracing::error!(%error, "database files were removed while in use; recovering from open descriptors");
            if let Err(error) = self.store.reattach() {
                tracing::error!(%error, "the database could not be recovered; copying the removed log into it");
                return self.checkpoint_removed_log();
            }
        }
        let result = self.store.checkpoint_in_commits().and_then(|()| self.store.checkpoint_truncate());
        if let Err(error) = result {
            tracing::warn!(%error, "cannot checkpoint the log; the next start reads it");
        }
    }

    fn checkpoint_removed_log(&self) {
        match self.store.checkpoint_removed_log() {
            Ok(()) => {
                tracing::warn!("the removed log was copied into the database; nothing acknowledged was lost")
            }
            Err(error) => {
                tracing::error!(%error, "changes since the last checkpoint are lost with the removed log");
            }
        }
    }
}

fn note_health(health: &watch::Sender<Option<StoreError>>, outcomes: &[Result<(), StoreError>]) {
    let trouble = outcomes.iter().find_map(|outcome| match outcome {
        Err(
            error @ (StoreError::Full
            | StoreError::ReadOnly
            | StoreError::Corrupt(_)
            | StoreError::NotDatabase
            | StoreError::Detached(_)
            | StoreError::Io(_)),
        ) => Some(error.clone()),
        Ok(()) | Err(_) => None,
    });
    health.send_if_modified(|known| {
        if *known == trouble {
            return false;
        }
        match &trouble {
            Some(error) => {
                tracing::error!(%error, "the database refuses writes; nothing is acknowledged until it works")
            }
            None => tracing::info!("the database accepts writes again"),
        }
        *known = trouble.clone();
        true
    });
}
