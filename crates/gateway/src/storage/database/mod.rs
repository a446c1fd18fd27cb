//! The store's thread and the way to it.
//!
//! Owns the one write connection. Everything that waits becomes one synced transaction (group commit); an
//! answer is given only after that commit, so whoever has an answer has it on disk. A crash loses the
//! jobs that have no answer yet, and nobody has acted on those.
//!
//! When the disk refuses (full, read-only, damaged) the jobs fail with that reason, `health` shows it, and
//! the next job that succeeds clears it.
//!
//! When another program has removed the files in use, the jobs of that group wait until everything is in a new file
//! (`upkeep`); they get their answers then.

mod check;
mod damage;
mod upkeep;

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use petasos_store::{Error as StoreError, OpenError, Place, Reader, Store, Tx};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use self::damage::Damage;
use self::upkeep::Keeper;
pub use self::upkeep::Upkeep;

use crate::Error;
use crate::lifecycle::shutdown::Stopper;
use crate::runtime::commit::{Commit, Side, about_to_commit, has_committed, may_die_at};

/// Jobs that may wait. Beyond, askers wait to ask.
const DEPTH: usize = 1024;
/// How long a question waits for a database that is being recovered.
const RECOVERY: Duration = Duration::from_secs(1);
/// Jobs in one transaction.
const GROUP: usize = 512;

#[derive(Debug, Clone)]
pub struct Db {
    asks: mpsc::Sender<Ask>,
    readers: Arc<Readers>,
    health: watch::Receiver<Option<StoreError>>,
    /// Damage that a read or a write showed; stays.
    damage: Damage,
    upkeep: watch::Receiver<Upkeep>,
    /// The pages are to be checked while the database is in use.
    unchecked: bool,
}

/// What runs the writer. Joining it closes the database.
#[derive(Debug)]
pub struct Writer(Worker);

#[derive(Debug)]
enum Worker {
    Thread(JoinHandle<()>),
    /// In a simulation everything is a task.
    Task(tokio::task::JoinHandle<()>),
}

impl Writer {
    /// Waits until every handle is gone and the file is closed.
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

    /// The same for a task.
    pub async fn closed(self) -> Result<(), Error> {
        let closed = match self.0 {
            Worker::Thread(_) => petasos_runtime::blocking(move || self.join()),
            Worker::Task(task) => task,
        };
        closed.await.map_err(|_panicked| Error::Io("closing the database panicked".into()))
    }
}

/// Starts the thread around an open store.
pub fn start(store: Store, stopper: Stopper) -> Result<(Db, Writer), Error> {
    let (place, unchecked) = (store.place(), store.is_unchecked());
    petasos_agent::own_files::announce_database(place.path());
    let (asks, waiting) = mpsc::channel(DEPTH);
    let (report, health) = watch::channel(None);
    let damage = Damage::new(store.is_salvageable());
    let found = damage.clone();
    let (told, upkeep) = watch::channel(Upkeep::default());
    let keeper = Keeper::new(asks.downgrade(), told, stopper.clone());
    let thread = Thread { store, keeper, health: report, damage: found };
    let worker = if petasos_runtime::is_simulated() {
        Worker::Task(petasos_runtime::spawn(async move {
            let _guard = FailOnPanic(stopper);
            thread.run_as_task(waiting).await;
        }))
    } else {
        let run = move || {
            let _guard = FailOnPanic(stopper);
            thread.run(waiting);
        };
        let thread = std::thread::Builder::new().name("petasos-db".into()).spawn(run);
        Worker::Thread(
            thread.map_err(|error| Error::Io(format!("cannot start the database thread: {error}")))?,
        )
    };
    let readers = Arc::new(Readers { place, idle: Mutex::default(), seats: Semaphore::new(READERS) });
    Ok((Db { asks, readers, health, damage, upkeep, unchecked }, Writer(worker)))
}

/// Without its database thread the gateway can keep no promise.
struct FailOnPanic(Stopper);

impl Drop for FailOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail();
        }
    }
}

impl Db {
    /// Runs a job in the next transaction and answers after its commit.
    pub async fn write<T, F>(&self, commit: Commit, job: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job = Typed { job: Some(job), value: None, reply };
        self.asks.send(Ask::Job(commit, Box::new(job))).await.map_err(|_closed| Error::Stopping)?;
        answer.await.map_err(|_closed| Error::Stopping)?.map_err(Error::Store)
    }

    /// Asks a read-only connection.
    pub async fn read<T, F>(&self, question: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Reader) -> Result<T, StoreError> + Send + 'static,
    {
        // Never closed.
        let _seat = self.readers.seats.acquire().await.map_err(|_closed| Error::Stopping)?;
        let (generation, reader) = self.reader().await?;
        let readers = self.readers.clone();
        let asked = petasos_runtime::blocking(move || {
            let answer = reader.ask(question).map_err(Error::Store);
            readers.lock().push((generation, reader));
            answer
        });
        let answer = asked.await.map_err(|_panicked| Error::Io("a database reader panicked".into()))?;
        if let Err(Error::Store(error)) = &answer {
            self.damage.note(error);
        }
        answer
    }

    /// An idle reader, or a new one. A new one cannot be had while the writer's files are not at their paths.
    async fn reader(&self) -> Result<(u64, Reader), Error> {
        if let Some(kept) = self.readers.idle() {
            return Ok(kept);
        }
        match self.open_reader().await? {
            Err(OpenError::Failed { error: StoreError::Detached(_), .. }) => {}
            opened => return opened.map_err(|error| Error::Io(error.to_string())),
        }
        // It recovers before it answers the next job.
        let recovered = tokio::time::timeout(RECOVERY, self.write(Commit::Pulse, |_| Ok(())));
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

    /// Folds the log into the file: the last thing before the process ends.
    pub async fn fold(&self) {
        let (done, folded) = oneshot::channel();
        // A thread that is gone has closed the file, which does the same.
        if self.asks.send(Ask::Fold(done)).await.is_ok() {
            let _ = folded.await;
        }
    }

    /// Rows were passed over because they do not decode: the next start looks for all of them.
    pub(crate) fn note_unreadable_rows(&self) {
        self.damage.note_rows();
    }

    /// Resolves when a read or a write has found the database damaged.
    pub(crate) async fn damaged(&self) -> String {
        self.damage.wait().await
    }

    /// How the files fare: for status, and to wait for changes.
    pub fn upkeep(&self) -> watch::Receiver<Upkeep> {
        self.upkeep.clone()
    }

    /// Damage that was found, or what the disk last refused, until something succeeds again.
    pub fn trouble(&self) -> Option<String> {
        let refused = self.health.borrow().as_ref().map(ToString::to_string);
        let held_back = || {
            self.upkeep.borrow().log_held_back.then(|| {
                "the database log grows because another program reads without an end; close that program"
                    .into()
            })
        };
        self.damage.trouble().or(refused).or_else(held_back)
    }
}

#[derive(Debug)]
struct Readers {
    place: Place,
    /// Idle connections, as many as there are seats at most, with the generation of their
    /// file. Held only to push or pop.
    idle: Mutex<Vec<(u64, Reader)>>,
    seats: Semaphore,
}

/// Questions that are answered at the same time; each has a connection of its own.
const READERS: usize = 4;

impl Readers {
    fn idle(&self) -> Option<(u64, Reader)> {
        let generation = self.place.generation();
        let mut idle = self.lock();
        // Those of a file that was replaced are closed.
        idle.retain(|(of, _)| *of == generation);
        idle.pop()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(u64, Reader)>> {
        self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

enum Ask {
    Job(Commit, Box<dyn Job>),
    Fold(oneshot::Sender<()>),
    /// The files in use may not be the ones at their paths any more.
    Verify,
}

/// Room for the questions of one round, kept between rounds.
struct Asks {
    waiting: Vec<Ask>,
    jobs: Vec<Box<dyn Job>>,
    commits: Vec<Commit>,
}

impl Default for Asks {
    fn default() -> Self {
        Self {
            waiting: Vec::with_capacity(GROUP),
            jobs: Vec::with_capacity(GROUP),
            commits: Vec::with_capacity(GROUP),
        }
    }
}

/// A job whose answer type only its asker knows.
trait Job: Send {
    fn run(&mut self, tx: &Tx<'_>) -> Result<(), StoreError>;
    /// Tells the asker: `outcome` is the fate of the transaction.
    fn answer(self: Box<Self>, outcome: Result<(), StoreError>);
}

struct Typed<F, T> {
    job: Option<F>,
    value: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<F, T> Job for Typed<F, T>
where
    T: Send,
    F: FnOnce(&Tx<'_>) -> Result<T, StoreError> + Send,
{
    fn run(&mut self, tx: &Tx<'_>) -> Result<(), StoreError> {
        let job = self.job.take().ok_or(StoreError::Broken)?;
        self.value = Some(job(tx)?);
        Ok(())
    }

    fn answer(self: Box<Self>, outcome: Result<(), StoreError>) {
        let Self { value, reply, .. } = *self;
        let answer = outcome.and_then(|()| value.ok_or(StoreError::Broken));
        // An asker who has left does not need the answer.
        let _ = reply.send(answer);
    }
}

/// State of the database thread, or of the task that takes its place in a simulation.
struct Thread {
    store: Store,
    keeper: Keeper,
    health: watch::Sender<Option<StoreError>>,
    damage: Damage,
}

impl Thread {
    fn run(mut self, mut waiting: mpsc::Receiver<Ask>) {
        self.keeper.begin(&self.store);
        let mut asks = Asks::default();
        while waiting.blocking_recv_many(&mut asks.waiting, GROUP) > 0 {
            self.round(&mut asks);
        }
        self.end();
    }

    /// The same as a task.
    async fn run_as_task(mut self, mut waiting: mpsc::Receiver<Ask>) {
        self.keeper.begin(&self.store);
        let mut asks = Asks::default();
        while waiting.recv_many(&mut asks.waiting, GROUP).await > 0 {
            self.round(&mut asks);
        }
        self.end();
    }

    /// Carries out what waits: one transaction.
    fn round(&mut self, asks: &mut Asks) {
        let Asks { waiting, jobs, commits } = asks;
        let mut folds = vec![];
        let mut verify = false;
        for ask in waiting.drain(..) {
            match ask {
                Ask::Job(commit, job) => {
                    commits.push(commit);
                    jobs.push(job);
                }
                Ask::Fold(done) => folds.push(done),
                Ask::Verify => verify = true,
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
                job.answer(outcome);
            }
            self.keeper.after_commit(&self.store, count);
        } else if verify {
            self.verify();
        }
        for done in folds {
            self.fold();
            let _ = done.send(());
        }
    }

    /// Every handle is gone.
    fn end(mut self) {
        if self.store.check_files().is_err() {
            self.fold();
        }
        self.keeper.end();
        let Self { store, damage, .. } = self;
        let path = store.path().to_owned();
        if let Err(error) = store.close() {
            tracing::error!(%error, "the database did not close cleanly");
        }
        damage.remember(&path);
    }

    fn write_group(&mut self, jobs: &mut [Box<dyn Job>], commits: &[Commit]) -> Vec<Result<(), StoreError>> {
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

    /// `Ok`: everything committed so far is in the file at its path.
    fn reattach(&mut self, found: &StoreError) -> Result<(), StoreError> {
        let Self { store, keeper, health, .. } = self;
        keeper.reattach(store, found, |error| drop(health.send_replace(Some(error.clone()))))
    }

    /// The last thing before the process ends. The recovery of removed files gets one attempt.
    fn fold(&mut self) {
        self.keeper.end();
        if let Err(error @ StoreError::Detached(_)) = self.store.check_files() {
            tracing::error!(%error, "database files were removed while in use; recovering from open descriptors");
            if let Err(error) = self.store.reattach() {
                tracing::error!(%error, "the database could not be recovered; copying the removed log into it");
                return self.fold_removed_log();
            }
        }
        let folded = self.store.checkpoint_in_commits().and_then(|()| self.store.fold());
        if let Err(error) = folded {
            tracing::warn!(%error, "the log could not be folded into the database; the next start reads it");
        }
    }

    fn fold_removed_log(&self) {
        match self.store.fold_removed_log() {
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
