//! Checkpoints beside the commits, and recovery of a database whose files another program removed.
//!
//! The thread `petasos-checkpoint` owns a connection that moves the log into the file. It also looks every two
//! seconds whether the files in use still are the ones at their paths, for times in which nothing is committed; the
//! writer looks after every commit. Nothing here has a state that a crash could lose.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

use petasos_core::Millis;
use petasos_store::{Checkpointer, Error as StoreError, LogProbe, LogState, OpenError, Store};
use tokio::sync::mpsc::WeakSender;
use tokio::sync::watch;

use super::Ask;
use crate::clock;
use crate::lifecycle::shutdown::Stopper;

/// Longest time after which removed files are noticed while nothing is committed.
const IDLE_CHECK: Duration = Duration::from_secs(2);
/// Between two attempts to recover.
const RETRY: Duration = Duration::from_millis(500);

/// State of the database files, as reported by the database thread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Upkeep {
    /// The log cannot start over, because a program reads without an end.
    pub log_held_back: bool,
    /// How often files were removed under the running process, and recovered.
    pub recoveries: u64,
    pub recovered_at: Option<Millis>,
}

/// The writer's side: owns the checkpointing thread.
#[derive(Debug)]
pub(super) struct Keeper {
    asks: WeakSender<Ask>,
    told: watch::Sender<Upkeep>,
    stopper: Stopper,
    running: Option<(SyncSender<()>, JoinHandle<()>)>,
    probe: LogProbe,
}

impl Keeper {
    pub(super) fn new(asks: WeakSender<Ask>, told: watch::Sender<Upkeep>, stopper: Stopper) -> Self {
        Self { asks, told, stopper, running: None, probe: LogProbe::default() }
    }

    /// Without a checkpointer commits do its work.
    pub(super) fn begin(&mut self, store: &Store) {
        if petasos_runtime::is_simulated() {
            // One thread: commits checkpoint themselves.
            if let Err(error) = store.checkpoint_in_commits() {
                tracing::warn!(%error, "no checkpoints");
            }
            return;
        }
        match self.spawn(store) {
            Ok(running) => self.running = Some(running),
            Err(error) => {
                tracing::warn!(%error, "no checkpoints beside commits; commits checkpoint themselves")
            }
        }
    }

    fn spawn(&self, store: &Store) -> Result<(SyncSender<()>, JoinHandle<()>), OpenError> {
        let checkpointer = store.checkpointer()?;
        let (due, signals) = mpsc::sync_channel(1);
        let asks = self.asks.clone();
        let thread = std::thread::Builder::new()
            .name("petasos-checkpoint".into())
            .spawn(move || checkpoint_when_due(&checkpointer, &signals, &asks));
        match thread {
            Ok(thread) => Ok((due, thread)),
            Err(error) => {
                let path = store.path().to_owned();
                store
                    .checkpoint_in_commits()
                    .map_err(|error| OpenError::Failed { path: path.clone(), error })?;
                Err(OpenError::Failed { path, error: error.into() })
            }
        }
    }

    /// Ends the thread and closes its connection.
    pub(super) fn end(&mut self) {
        let Some((due, thread)) = self.running.take() else { return };
        drop(due);
        if thread.join().is_err() {
            tracing::error!("the checkpointing thread panicked");
        }
    }

    /// After a commit of so many jobs: asks for a checkpoint if one is due, and keeps the log within its bound.
    pub(super) fn after_commit(&mut self, store: &Store, jobs: usize) {
        let Some((due, _)) = &self.running else { return };
        let bounded = self.probe.read(store, jobs).and_then(|log| {
            let Some(log) = log else { return Ok(None) };
            if log.is_due() {
                // Full: it was asked already.
                let _ = due.try_send(());
            }
            store.bound_log(log).map(Some)
        });
        match bounded {
            Ok(log) => log.into_iter().for_each(|log| self.note_log(log)),
            // Another process is at it, or the next commit finds what is wrong.
            Err(error) => tracing::debug!(%error, "the log's size could not be bounded"),
        }
    }

    fn note_log(&self, log: LogState) {
        self.told.send_if_modified(|told| {
            let held_back = log.is_held_back();
            if told.log_held_back == held_back {
                return false;
            }
            if held_back {
                tracing::warn!(
                    pages = log.pages,
                    "the database log grows: another program reads without an end"
                );
            }
            told.log_held_back = held_back;
            true
        });
    }

    /// Recovers until it succeeds or the process stops. Nothing is answered meanwhile.
    pub(super) fn reattach(
        &mut self,
        store: &mut Store,
        found: &StoreError,
        mut report: impl FnMut(&StoreError),
    ) -> Result<(), StoreError> {
        tracing::error!(error = %found, "database files were removed while in use; recovering from open descriptors");
        report(found);
        self.end();
        while let Err(error) = store.reattach() {
            tracing::error!(%error, "the database could not be recovered; nothing is acknowledged until it is");
            report(&error);
            if self.stopper.stopping() {
                return Err(error);
            }
            std::thread::sleep(RETRY);
        }
        self.begin(store);
        tracing::warn!("the database was recovered into a new file; nothing acknowledged was lost");
        self.told.send_modify(|told| {
            told.recoveries += 1;
            told.recovered_at = Some(clock::now());
        });
        Ok(())
    }
}

fn checkpoint_when_due(checkpointer: &Checkpointer, due: &Receiver<()>, asks: &WeakSender<Ask>) {
    loop {
        match due.recv_timeout(IDLE_CHECK) {
            Ok(()) => match checkpointer.run() {
                Ok(_) | Err(StoreError::Busy | StoreError::Detached(_)) => {}
                Err(error) => tracing::warn!(%error, "a checkpoint failed; the log stays until the next one"),
            },
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if checkpointer.check_files().is_err()
            && let Some(asks) = asks.upgrade()
        {
            // Full: the writer has commits to make, and looks after each.
            let _ = asks.try_send(Ask::Verify);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::commit::Commit;
    use petasos_core::message::ChatType;
    use petasos_core::{Inbound, Platform, SessionKey, Source};

    #[tokio::test]
    async fn commits_keep_the_log_within_its_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("petasos.db");
        let (db, writer) = super::super::start(Store::open(&path).unwrap(), Stopper::default()).unwrap();
        let source = Source::new(Platform::parse("telegram").unwrap(), ChatType::Dm, "7");
        // More than a hundred megabytes.
        for number in 0..110 {
            let message = Inbound::new(source.clone(), number.to_string(), "x".repeat(1_000_000));
            let key = SessionKey("agent:main:telegram:dm:7".into());
            db.write(Commit::Pulse, move |tx| tx.accept(&message, &key, Millis(1))).await.unwrap();
        }
        let log = std::fs::metadata(folder.path().join("petasos.db-wal")).unwrap().len();
        assert!(log < 70_000_000, "{log} bytes");
        drop(db);
        writer.join();
    }
}
