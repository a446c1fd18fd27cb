//! The store's thread and the way to it.
//!
//! Owns the one write connection. Everything that waits becomes one synced transaction (group commit); an
//! answer is given only after that commit, so whoever has an answer has it on disk. A crash loses the
//! jobs that have no answer yet, and nobody has acted on those.
//!
//! When the disk refuses (full, read-only, damaged) the jobs fail with that reason, `health` shows it, and
//! the next job that succeeds clears it.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use petasos_store::{Error as StoreError, Place, Reader, Store, Tx};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use crate::Error;
use crate::commit::{Commit, Side, may_die_at};
use crate::stopper::Stopper;

/// Jobs that may wait. Beyond, askers wait to ask.
const DEPTH: usize = 1024;
/// Jobs in one transaction.
const GROUP: usize = 512;

#[derive(Debug, Clone)]
pub struct Db {
    asks: mpsc::Sender<Ask>,
    readers: Arc<Readers>,
    health: watch::Receiver<Option<StoreError>>,
    /// Damage that a read or a write showed; stays.
    damage: Arc<watch::Sender<Option<String>>>,
}

/// The writer's thread. Joining it closes the database.
#[derive(Debug)]
pub struct Writer(JoinHandle<()>);

impl Writer {
    /// Waits until every handle is gone and the file is closed.
    pub fn join(self) {
        if self.0.join().is_err() {
            tracing::error!("the database thread panicked");
        }
    }
}

/// Starts the thread around an open store.
pub fn start(store: Store, stopper: Stopper) -> Result<(Db, Writer), Error> {
    let place = store.place();
    let (asks, waiting) = mpsc::channel(DEPTH);
    let (report, health) = watch::channel(None);
    let damage = Arc::new(watch::Sender::new(None));
    let found = damage.clone();
    let thread = std::thread::Builder::new()
        .name("petasos-db".into())
        .spawn(move || {
            let _guard = FailOnPanic(stopper);
            write_all(store, waiting, &Reports { health: report, damage: found });
        })
        .map_err(|error| Error::Io(format!("cannot start the database thread: {error}")))?;
    let readers = Readers { place, idle: Mutex::new(Vec::new()), seats: Semaphore::new(READERS) };
    let readers = Arc::new(readers);
    Ok((Db { asks, readers, health, damage }, Writer(thread)))
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
        let readers = self.readers.clone();
        // Never closed.
        let _seat = self.readers.seats.acquire().await.map_err(|_closed| Error::Stopping)?;
        let asked = tokio::task::spawn_blocking(move || readers.ask(question));
        let answer = asked.await.map_err(|_panicked| Error::Io("a database reader panicked".into()))?;
        if let Err(Error::Store(error)) = &answer {
            note_damage(&self.damage, error);
        }
        answer
    }

    /// Folds the log into the file: the last thing before the process ends.
    pub async fn fold(&self) {
        let (done, folded) = oneshot::channel();
        // A thread that is gone has closed the file, which does the same.
        if self.asks.send(Ask::Fold(done)).await.is_ok() {
            let _ = folded.await;
        }
    }

    /// Resolves when a read or a write has found the database damaged.
    pub(crate) async fn damaged(&self) -> String {
        let mut damage = self.damage.subscribe();
        // The sender lives as long as this handle.
        let found = damage.wait_for(Option::is_some).await;
        found.ok().and_then(|found| found.clone()).unwrap_or_default()
    }

    /// What the disk last refused, until something succeeds again.
    pub fn trouble(&self) -> Option<StoreError> {
        self.health.borrow().clone()
    }
}

#[derive(Debug)]
struct Readers {
    place: Place,
    /// Connections nobody uses at the moment, as many as there are seats at most. Held only to push or pop.
    idle: Mutex<Vec<Reader>>,
    seats: Semaphore,
}

/// Questions that are answered at the same time; each has a connection of its own.
const READERS: usize = 4;

impl Readers {
    fn ask<T>(&self, question: impl FnOnce(&Reader) -> Result<T, StoreError>) -> Result<T, Error> {
        let kept = self.lock().pop();
        let reader = match kept {
            Some(reader) => reader,
            None => open_reader(&self.place)?,
        };
        let answer = reader.ask(question).map_err(Error::Store);
        self.lock().push(reader);
        answer
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Reader>> {
        self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn open_reader(place: &Place) -> Result<Reader, Error> {
    place.reader().map_err(|error| Error::Io(error.to_string()))
}

enum Ask {
    Job(Commit, Box<dyn Job>),
    Fold(oneshot::Sender<()>),
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

/// What the thread says of the database.
struct Reports {
    health: watch::Sender<Option<StoreError>>,
    damage: Arc<watch::Sender<Option<String>>>,
}

fn note_damage(damage: &watch::Sender<Option<String>>, error: &StoreError) {
    let (StoreError::Corrupt(_) | StoreError::NotDatabase) = error else { return };
    damage.send_if_modified(|known| {
        if known.is_some() {
            return false;
        }
        *known = Some(error.to_string());
        true
    });
}

fn write_all(mut store: Store, mut waiting: mpsc::Receiver<Ask>, reports: &Reports) {
    let mut asks: Vec<Ask> = Vec::with_capacity(GROUP);
    let mut jobs: Vec<Box<dyn Job>> = Vec::with_capacity(GROUP);
    let mut commits: Vec<Commit> = Vec::with_capacity(GROUP);
    while waiting.blocking_recv_many(&mut asks, GROUP) > 0 {
        let mut folds = vec![];
        for ask in asks.drain(..) {
            match ask {
                Ask::Job(commit, job) => {
                    commits.push(commit);
                    jobs.push(job);
                }
                Ask::Fold(done) => folds.push(done),
            }
        }
        if !jobs.is_empty() {
            let outcomes = write_group(&mut store, &mut jobs, &commits);
            commits.clear();
            note_health(&reports.health, &outcomes);
            outcomes
                .iter()
                .filter_map(|it| it.as_ref().err())
                .for_each(|it| note_damage(&reports.damage, it));
            for (job, outcome) in jobs.drain(..).zip(outcomes) {
                job.answer(outcome);
            }
        }
        for done in folds {
            if let Err(error) = store.fold() {
                tracing::warn!(%error, "the log could not be folded into the database; the next start reads it");
            }
            let _ = done.send(());
        }
    }
    if let Err(error) = store.close() {
        tracing::error!(%error, "the database did not close cleanly");
    }
}

fn write_group(
    store: &mut Store,
    jobs: &mut [Box<dyn Job>],
    commits: &[Commit],
) -> Vec<Result<(), StoreError>> {
    let group = match store.group() {
        Ok(group) => group,
        Err(error) => return jobs.iter().map(|_| Err(error.clone())).collect(),
    };
    let outcomes: Vec<_> = jobs.iter_mut().map(|job| group.job(|tx| job.run(tx))).collect();
    commits.iter().for_each(|commit| may_die_at(*commit, Side::Before));
    let committed = group.commit();
    commits.iter().for_each(|commit| may_die_at(*commit, Side::After));
    match committed {
        Ok(()) => outcomes,
        Err(error) => outcomes.into_iter().map(|outcome| outcome.and_then(|()| Err(error.clone()))).collect(),
    }
}

fn note_health(health: &watch::Sender<Option<StoreError>>, outcomes: &[Result<(), StoreError>]) {
    let trouble = outcomes.iter().find_map(|outcome| match outcome {
        Err(
            error @ (StoreError::Full
            | StoreError::ReadOnly
            | StoreError::Corrupt(_)
            | StoreError::NotDatabase
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
