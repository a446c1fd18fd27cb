//! A running gateway, and how it is taken apart: let turns finish (`stop`), close the ways in, let sends under way
//! come back, leave word for the next process, close the store.
//!
//! A crash between any two of these steps costs nothing but time: the next start finds the journal as it is, and
//! without the note of a clean stop it looks for what was cut off.

use std::time::Duration;

use petasos_core::lifecycle::{Event, From, How, Leave, hung_after};
use tokio::task::JoinHandle;

use crate::api::handle::Handle;
use crate::api::state_file::Publisher;
use crate::clock;
use crate::home::process::Record;
use crate::home::{self, restart};
use crate::lifecycle::sd_notify::Notifier;
use crate::lifecycle::shutdown::drain::{self, Drained};
use crate::lifecycle::shutdown::watchdog::Watchdog;
use crate::links::relay;
use crate::links::supervisor::LinkHandle;
use crate::sessions::Handles;
use crate::storage::database::Writer;
use crate::storage::restart_counts;
use std::sync::Arc;

/// How long sends under way, and tasks, may take to come back once we stop.
const FAREWELL: Duration = Duration::from_secs(5);
/// What a send gets in any case.
const LAST_GLANCE: Duration = Duration::from_millis(500);

/// Dropping it without `wait` leaves everything to the next start's recovery.
#[derive(Debug)]
pub struct Running {
    pub(crate) handles: Arc<Handles>,
    pub(crate) own: Record,
    pub(crate) writer: Writer,
    /// Links, sessions, housekeeping: ended by the stop itself.
    pub(crate) tasks: Vec<JoinHandle<()>>,
    pub(crate) deliver: JoinHandle<()>,
    pub(crate) publishing: JoinHandle<Publisher>,
    pub(crate) links: Vec<LinkHandle>,
    pub(crate) notifier: Notifier,
    pub(crate) handle: Handle,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    pub why: Leave,
    pub reason: Option<String>,
}

impl Running {
    /// Resolves when the gateway has stopped and everything is on disk.
    pub async fn wait(self) -> End {
        let (handles, gate) = (self.handles.clone(), self.handles.lifecycle.gate.clone());
        petasos_runtime::select! {
            () = gate.leaving() => {}
            () = handles.lifecycle.stopper.stopped() => {}
        }
        let watchdog = Watchdog::arm(
            hung_after(handles.lifecycle.lifetime.drain_timeout),
            handles.home.clone(),
            self.own,
            gate.clone(),
        );
        self.notifier.stopping();
        // At the beginning: what comes while we finish is for the process after us, and is kept for it.
        let idle = petasos_runtime::spawn(relay::go_idle(handles.channels.clone()));
        let books = petasos_runtime::select! {
            books = drain::drain(&handles, &self.notifier, &watchdog) => Some(books),
            () = handles.lifecycle.stopper.stopped() => None,
        };
        let drained = books.as_ref().map_or(Drained::TimedOut, |books| books.drained);
        let parting = tokio::time::Instant::now() + FAREWELL;
        if tokio::time::timeout_at(parting, drain::say_goodbye(&handles, &self.links)).await.is_err() {
            tracing::warn!("some messages could not be sent in time");
        }
        if tokio::time::timeout_at(parting, idle).await.is_err() {
            tracing::warn!("the connector did not say that it keeps what comes for us");
        }
        handles.lifecycle.stopper.stop();
        if handles.lifecycle.stopper.failed() {
            gate.leave(Leave::Failure, Some("a part of the gateway failed".into()));
        }
        let ended = futures_util::future::join_all(self.tasks);
        if tokio::time::timeout(FAREWELL, ended).await.is_err() {
            tracing::warn!("something does not end; it is left behind");
        }
        if let Some(terminal) = handles.agent.tools.terminal() {
            in_time("ending background processes", terminal.leave()).await;
        }
        let interrupted = match books {
            Some(books) => drain::close_books(&handles, books).await,
            None => None,
        };
        let parting = parting.max(tokio::time::Instant::now() + LAST_GLANCE);
        if tokio::time::timeout_at(parting, self.deliver).await.is_err() {
            tracing::warn!("a send has no answer yet; it will be repeated with a mark");
        }
        drain::drop_banners(&handles).await;
        let end = gate.situation();
        let why = end.leaving.map_or(Leave::Failure, |leaving| leaving.why);
        in_time("leaving word for the next start", leave_word(&handles, why, drained)).await;
        in_time("closing the database", handles.db.fold()).await;
        gate.feed(Event::Ended);
        in_time("the last status", async {
            if let Ok(publisher) = self.publishing.await {
                publisher.write().await;
            }
        })
        .await;
        drop(self.handle);
        drop(handles);
        drop(self.handles);
        let writer = self.writer;
        // Handles held by others keep the thread; the file is complete either way.
        let _ = tokio::time::timeout(Duration::from_secs(1), writer.closed()).await;
        drop(watchdog);
        tracing::info!(why = why.as_str(), interrupted, "stopped");
        End { why, reason: end.exit_reason }
    }
}

/// A disk that does not answer must not keep us here: what is done without it, the next start does again.
async fn in_time(what: &'static str, work: impl Future<Output = ()>) {
    if tokio::time::timeout(FAREWELL, work).await.is_err() {
        tracing::error!(what, "the disk does not answer");
    }
}

/// What the next process finds in the home.
async fn leave_word(handles: &Arc<Handles>, why: Leave, drained: Drained) {
    restart_counts::mirror(&handles.db, &handles.home, &handles.lifecycle.counts).await;
    let home = &handles.home;
    let clean = match (drained, why) {
        (Drained::TimedOut, _) | (Drained::Yes, Leave::Failure) => Ok(()),
        (
            Drained::Yes,
            Leave::Deserted | Leave::Signal | Leave::Restart { .. } | Leave::Stop | Leave::Unstartable,
        ) => home::clean::leave(home),
    };
    if let Err(error) = clean {
        tracing::warn!(%error, "the next start will look for what was cut off");
    }
    if let Leave::Restart { how, from: From::Outside } = why {
        let requested_at = clock::now().0 as f64 / 1000.0;
        let (via_service, detached) = (how == How::Service, how == How::Detached);
        let note = restart::Pending { requested_at, via_service, detached };
        if let Err(error) = restart::write(home, &note) {
            tracing::warn!(%error, "home channels will not hear that we are back");
        }
    }
}
