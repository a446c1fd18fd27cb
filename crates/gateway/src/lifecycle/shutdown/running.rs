//! A running gateway and its shutdown: drain the turns (`drain`), stop the tasks, wait for sends in flight, write the
//! notes for the next start, close the store.
//!
//! A crash between two steps loses nothing: the next start reads the journal, and without the clean-shutdown marker it
//! looks for interrupted turns.

use std::time::Duration;

use petasos_core::lifecycle::{Event, RestartMethod, RestartOrigin, ShutdownReason, hung_after};
use tokio::task::JoinHandle;

use crate::api::handle::Handle;
use crate::api::state_file::StatePublisher;
use crate::clock;
use crate::home::process::ProcessRecord;
use crate::home::{self, restart};
use crate::lifecycle::sd_notify::Notifier;
use crate::lifecycle::shutdown::drain::{self, DrainOutcome};
use crate::lifecycle::shutdown::watchdog::Watchdog;
use crate::links::relay;
use crate::links::supervisor::LinkHandle;
use crate::sessions::Handles;
use crate::storage::database::Writer;
use crate::storage::restart_counts;
use std::sync::Arc;

/// Time limit for each step of the shutdown.
const SHUTDOWN_STEP_TIMEOUT: Duration = Duration::from_secs(5);
/// Minimum time for a send in flight.
const MIN_SEND_TIMEOUT: Duration = Duration::from_millis(500);

/// Dropping it without `wait` leaves the rest to the recovery of the next start.
#[derive(Debug)]
pub struct RunningGateway {
    pub(crate) handles: Arc<Handles>,
    pub(crate) own: ProcessRecord,
    pub(crate) writer: Writer,
    /// Tasks that end when the shutdown handle stops.
    pub(crate) tasks: Vec<JoinHandle<()>>,
    pub(crate) deliver: JoinHandle<()>,
    pub(crate) publishing: JoinHandle<StatePublisher>,
    pub(crate) links: Vec<LinkHandle>,
    pub(crate) notifier: Notifier,
    pub(crate) handle: Handle,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExitInfo {
    pub why: ShutdownReason,
    pub reason: Option<String>,
}

impl RunningGateway {
    /// Resolves when the gateway has stopped and everything is on disk.
    pub async fn wait(self) -> ExitInfo {
        let handles = self.handles.clone();
        let gate = self.handles.lifecycle.gate.clone();
        petasos_runtime::select! {
            () = gate.leaving() => {}
            () = handles.lifecycle.shutdown.stopped() => {}
        }
        let watchdog = Watchdog::arm(
            hung_after(handles.lifecycle.lifetime.drain_timeout),
            handles.home.clone(),
            self.own,
            gate.clone(),
        );
        self.notifier.stopping();
        // First, so that the connector keeps new messages for the next process.
        let idle = petasos_runtime::spawn(relay::go_idle(handles.channels.clone()));
        let record = petasos_runtime::select! {
            record = drain::drain(&handles, &self.notifier, &watchdog) => Some(record),
            () = handles.lifecycle.shutdown.stopped() => None,
        };
        let drained = record.as_ref().map_or(DrainOutcome::TimedOut, |record| record.drained);
        let deadline = clock::monotonic() + SHUTDOWN_STEP_TIMEOUT;
        if tokio::time::timeout_at(deadline, drain::flush_outbox(&handles, &self.links)).await.is_err() {
            tracing::warn!("some messages could not be sent in time");
        }
        if tokio::time::timeout_at(deadline, idle).await.is_err() {
            tracing::warn!("the connector did not confirm that it keeps new messages");
        }
        handles.lifecycle.shutdown.stop();
        if handles.lifecycle.shutdown.failed() {
            gate.shut_down(ShutdownReason::Failure, Some("a component of the gateway failed".into()));
        }
        let ended = futures_util::future::join_all(self.tasks);
        if tokio::time::timeout(SHUTDOWN_STEP_TIMEOUT, ended).await.is_err() {
            tracing::warn!("some tasks did not end in time and were abandoned");
        }
        if let Some(terminal) = handles.agent.tools.terminal() {
            with_timeout("ending background processes", terminal.kill_all()).await;
        }
        let interrupted = match record {
            Some(record) => drain::confirm_interrupted(&handles, record).await,
            None => None,
        };
        let deadline = deadline.max(clock::monotonic() + MIN_SEND_TIMEOUT);
        if tokio::time::timeout_at(deadline, self.deliver).await.is_err() {
            tracing::warn!("a send has no result yet; it will be repeated, marked as a possible duplicate");
        }
        drain::drop_banners(&handles).await;
        let end = gate.snapshot();
        let why = end.leaving.map_or(ShutdownReason::Failure, |leaving| leaving.why);
        with_timeout("writing the restart notes", write_restart_notes(&handles, why, drained)).await;
        with_timeout("closing the database", handles.db.checkpoint()).await;
        gate.apply(Event::Ended);
        with_timeout("writing the last status", async {
            if let Ok(publisher) = self.publishing.await {
                publisher.write().await;
            }
        })
        .await;
        drop(self.handle);
        drop(handles);
        drop(self.handles);
        let writer = self.writer;
        // Handles that are still held keep the thread alive; the file is complete either way.
        let _ = tokio::time::timeout(Duration::from_secs(1), writer.closed()).await;
        drop(watchdog);
        tracing::info!(why = why.as_str(), interrupted, "stopped");
        ExitInfo { why, reason: end.exit_reason }
    }
}

/// Limits a step, so that a hanging disk cannot block the shutdown. The next start repeats a skipped step.
async fn with_timeout(what: &'static str, work: impl Future<Output = ()>) {
    if tokio::time::timeout(SHUTDOWN_STEP_TIMEOUT, work).await.is_err() {
        tracing::error!(what, "the disk does not respond");
    }
}

/// Writes the notes that the next start reads.
async fn write_restart_notes(handles: &Arc<Handles>, why: ShutdownReason, drained: DrainOutcome) {
    restart_counts::mirror(&handles.db, &handles.home, &handles.lifecycle.counts).await;
    let home = &handles.home;
    let clean = match (drained, why) {
        (DrainOutcome::TimedOut, _) | (DrainOutcome::Yes, ShutdownReason::Failure) => Ok(()),
        (
            DrainOutcome::Yes,
            ShutdownReason::AllPlatformsLost
            | ShutdownReason::Signal
            | ShutdownReason::Restart { .. }
            | ShutdownReason::Stop
            | ShutdownReason::Unstartable,
        ) => home::clean::write(home),
    };
    if let Err(error) = clean {
        tracing::warn!(%error, "cannot write the clean-shutdown marker; the next start looks for interrupted turns");
    }
    if let ShutdownReason::Restart { method: how, origin: RestartOrigin::Outside } = why {
        let requested_at = clock::now().0 as f64 / 1000.0;
        let via_service = how == RestartMethod::Service;
        let detached = how == RestartMethod::Detached;
        let note = restart::PendingRestart { requested_at, via_service, detached };
        if let Err(error) = restart::write(home, &note) {
            tracing::warn!(%error, "cannot write the restart note; home channels are not notified of the restart");
        }
    }
}
