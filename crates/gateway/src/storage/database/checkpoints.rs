//! Checkpoints in the background, and recovery of a database whose files another program removed.
//!
//! The thread `petasos-checkpoint` owns a connection that copies the write-ahead log into the file. Every two seconds it
//! also checks that the files in use are still at their paths; the writer checks after every commit. No state that a crash
//! could lose.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

use petasos_core::Millis;
use petasos_store::{Checkpointer, Error as StoreError, LogProbe, LogState, OpenError, Store};
use tokio::sync::mpsc::WeakSender;
use tokio::sync::watch;

use super::DbRequest;
use crate::clock;
use crate::lifecycle::shutdown::ShutdownHandle;

/// Interval of the file check without commits.
const IDLE_CHECK: Duration = Duration::from_secs(2);
/// Between two attempts to recover.
const RETRY: Duration = Duration::from_millis(500);

/// State of the database files, as reported by the database thread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileStatus {
    /// The log cannot be reset, because a program keeps a read transaction open.
    pub log_held_back: bool,
    /// How often removed files were recovered.
    pub recoveries: u64,
    pub recovered_at: Option<Millis>,
}

/// The writer's side: owns the checkpoint thread.
#[derive(Debug)]
pub(super) struct CheckpointControl {
    requests: WeakSender<DbRequest>,
    status: watch::Sender<FileStatus>,
    shutdown: ShutdownHandle,
    running: Option<(SyncSender<()>, JoinHandle<()>)>,
    probe: LogProbe,
}

impl CheckpointControl {
    pub(super) fn new(
        requests: WeakSender<DbRequest>,
        status: watch::Sender<FileStatus>,
        shutdown: ShutdownHandle,
    ) -> Self {
        Self { requests, status, shutdown, running: None, probe: LogProbe::default() }
    }

    /// Without the thread, commits checkpoint themselves.
    pub(super) fn start(&mut self, store: &Store) {
        if petasos_runtime::is_simulated() {
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

    #[expect(clippy::disallowed_methods, reason = "checkpoints block, so they have a thread of their own")]
    fn spawn(&self, store: &Store) -> Result<(SyncSender<()>, JoinHandle<()>), OpenError> {
        let checkpointer = store.checkpointer()?;
        let (due, signals) = mpsc::sync_channel(1);
        let requests = self.requests.clone();
        let thread = std::thread::Builder::new()
            .name("petasos-checkpoint".into())
            .spawn(move || checkpoint_when_due(&checkpointer, &signals, &requests));
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

    /// Stops the thread and closes its connection.
    pub(super) fn stop(&mut self) {
        let Some((due, thread)) = self.running.take() else { return };
        drop(due);
        if thread.join().is_err() {
            tracing::error!("the checkpoint thread panicked");
        }
    }

    /// Requests a checkpoint if one is due after a commit of so many jobs, and bounds the size of the log.
    pub(super) fn after_commit(&mut self, store: &Store, jobs: usize) {
        let Some((due, _)) = &self.running else { return };
        let bounded = self.probe.read(store, jobs).and_then(|log| {
            let Some(log) = log else { return Ok(None) };
            if log.is_due() {
                // Full: a request is already queued.
                let _ = due.try_send(());
            }
            store.bound_log(log).map(Some)
        });
        match bounded {
            Ok(log) => log.into_iter().for_each(|log| self.note_log(log)),
            // Another process holds a lock, or the next commit reports the error.
            Err(error) => tracing::debug!(%error, "cannot bound the size of the log"),
        }
    }

    fn note_log(&self, log: LogState) {
        self.status.send_if_modified(|status| {
            let held_back = log.is_held_back();
            if status.log_held_back == held_back {
                return false;
            }
            if held_back {
                tracing::warn!(
                    pages = log.pages,
                    "the database log grows: another program keeps a read transaction open"
                );
            }
            status.log_held_back = held_back;
            true
        });
    }

    /// Retries the recovery until it succeeds or the process stops. No job completes meanwhile.
    #[expect(clippy::disallowed_methods, reason = "the thread of the database has nothing else to do")]
    pub(super) fn reattach(
        &mut self,
        store: &mut Store,
        found: &StoreError,
        mut report: impl FnMut(&StoreError),
    ) -> Result<(), StoreError> {
        tracing::error!(error = %found, "database files were removed while in use; recovering from open descriptors");
        report(found);
        self.stop();
        while let Err(error) = store.reattach() {
            tracing::error!(%error, "the database could not be recovered; nothing is acknowledged until it is");
            report(&error);
            if self.shutdown.stopping() {
                return Err(error);
            }
            std::thread::sleep(RETRY);
        }
        self.start(store);
        tracing::warn!("the database was recovered into a new file; nothing acknowledged was lost");
        self.status.send_modify(|status| {
            status.recoveries += 1;
            status.recovered_at = Some(clock::now());
        });
        Ok(())
    }
}

fn checkpoint_when_due(checkpointer: &Checkpointer, due: &Receiver<()>, requests: &WeakSender<DbRequest>) {
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
            && let Some(requests) = requests.upgrade()
        {
            // Full: the writer checks after each of its commits.
            let _ = requests.try_send(DbRequest::Verify);
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
    async fn commits_bound_the_size_of_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("petasos.db");
        let (db, writer) =
            super::super::start(Store::open(&path).unwrap(), ShutdownHandle::default()).unwrap();
        let source = Source::new(Platform::parse("telegram").unwrap(), ChatType::Dm, "7");
        // More than a hundred megabytes.
        for number in 0..110 {
            let message = Inbound::new(source.clone(), number.to_string(), "x".repeat(1_000_000));
            let key = SessionKey("agent:main:telegram:dm:7".into());
            db.write(Commit::Submit, move |tx| tx.accept(&message, &key, Millis(1))).await.unwrap();
        }
        let log = std::fs::metadata(folder.path().join("petasos.db-wal")).unwrap().len();
        assert!(log < 70_000_000, "{log} bytes");
        drop(db);
        writer.join();
    }
}
