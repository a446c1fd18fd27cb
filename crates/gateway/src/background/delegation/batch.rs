//! One delegation batch: follows its children until all have ended, then hands over the results.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::join_all;
use petasos_agent::DelegatedTask;
use petasos_core::journal::MessageOutcome;
use petasos_core::{DelegationId, InboxId, Millis, SessionId, SessionKey, Source};
use petasos_store::MessageStage;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};
use tokio::time::Instant;

use super::Delegation;
use super::report::{self, ChildEnd};
use crate::Error;
use crate::clock;

#[derive(Debug)]
pub(super) struct DelegationBatch {
    pub(super) id: DelegationId,
    pub(super) key: SessionKey,
    pub(super) session: SessionId,
    pub(super) origin: Source,
    pub(super) tasks: Vec<DelegatedTask>,
    pub(super) children: Vec<ChildSession>,
    pub(super) began: Instant,
    pub(super) dispatched_at: Millis,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) sink: ResultSink,
}

#[derive(Debug)]
pub(super) struct ChildSession {
    pub(super) at: usize,
    pub(super) key: SessionKey,
    pub(super) session: SessionId,
    pub(super) inbox: InboxId,
    pub(super) transcript: PathBuf,
}

impl ChildSession {
    pub(super) fn transcript_path(&self) -> String {
        self.transcript.display().to_string()
    }
}

#[derive(Debug)]
pub(super) enum ResultSink {
    /// The waiting tool call. If it is dropped, the children are stopped.
    Caller(oneshot::Sender<Value>),
    /// A completion for the parent session. Holds a slot of the pool until it is stored.
    Background(OwnedSemaphorePermit),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopReason {
    Stopped,
    TimedOut,
}

/// Between two cancel requests to a child.
const CANCEL_RETRY: Duration = Duration::from_millis(200);
/// Upper bound between two checks of a child.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

impl DelegationBatch {
    pub(super) async fn run(mut self, delegation: Delegation) {
        report::prepare_folder(delegation.0.context.folder.clone()).await;
        let own = watch::Sender::new(false);
        let all = join_all(self.children.iter().map(|child| {
            let stops = [self.stop.clone(), own.subscribe()];
            follow(&delegation, child, stops)
        }));
        tokio::pin!(all);
        let results = match &mut self.sink {
            ResultSink::Background(_) => all.await,
            ResultSink::Caller(results) => petasos_runtime::select! {
                ended = &mut all => ended,
                () = results.closed() => {
                    own.send_replace(true);
                    all.await
                }
            },
        };
        delegation.running().remove(&self.id);
        let seconds = self.began.elapsed().as_secs_f64();
        match self.sink {
            ResultSink::Caller(waiting) => {
                let transcripts: Vec<_> = self.children.iter().map(ChildSession::transcript_path).collect();
                let results = json!({
                    "results": results, "total_duration_seconds": seconds, "live_transcripts": transcripts,
                });
                // The caller may have been stopped; the transcripts stay.
                let _ = waiting.send(results);
            }
            ResultSink::Background(ref _permit) => {
                report::store_completion(&delegation, &self, results, seconds).await
            }
        }
    }
}

/// Waits for the end of a child and returns its report.
async fn follow(delegation: &Delegation, child: &ChildSession, stops: [watch::Receiver<bool>; 2]) -> Value {
    let began = clock::monotonic();
    let (outcome, stop_reason) = match until_settled(delegation, child, stops, began).await {
        Ok(ended) => ended,
        Err(error) => {
            tracing::warn!(%error, "stopped following a subagent");
            (None, None)
        }
    };
    let ended = ChildEnd { outcome, stop_reason, seconds: began.elapsed().as_secs_f64() };
    report::entry(&delegation.0.context, child, &ended).await
}

async fn until_settled(
    delegation: &Delegation,
    child: &ChildSession,
    mut stops: [watch::Receiver<bool>; 2],
    began: Instant,
) -> Result<(Option<MessageOutcome>, Option<StopReason>), Error> {
    let context = &delegation.0.context;
    let limit = context.settings.delegation.timeout.map(|timeout| began + timeout);
    let mut transcript = report::TranscriptWriter::new(child);
    let mut stop_reason = None;
    loop {
        let mut view = context.router.view(child.key.clone()).await.ok_or(Error::Stopping)?;
        loop {
            let seen = {
                let view = view.borrow_and_update();
                (view.rows, view.live.is_some())
            };
            transcript.write(context).await;
            let id = child.inbox;
            let found = match context.db.read(move |reader| reader.receipt_of(id)).await {
                Ok(found) => found,
                Err(Error::Stopping) => return Err(Error::Stopping),
                Err(error) => {
                    tracing::warn!(%error, "cannot read the state of a subagent; trying again");
                    clock::sleep(CANCEL_RETRY).await;
                    continue;
                }
            };
            let waits = match found.map(|found| found.stage) {
                Some(MessageStage::Settled { outcome, .. }) => return Ok((Some(outcome), stop_reason)),
                Some(MessageStage::Queued { .. }) => true,
                Some(MessageStage::Running { .. }) => false,
                None => return Ok((None, stop_reason)),
            };
            if stop_reason.is_some() {
                context.router.cancel(child.key.clone(), child.inbox).await;
            }
            let pause = if stop_reason.is_some() { CANCEL_RETRY } else { POLL_INTERVAL };
            let moved =
                async { view.wait_for(|view| (view.rows, view.live.is_some()) != seen).await.is_ok() };
            let [first, second] = &mut stops;
            petasos_runtime::select! {
                moved = moved => if !moved {
                    // The session task has ended; the router starts the next one.
                    clock::sleep(CANCEL_RETRY).await;
                    break;
                },
                () = stop_requested(first), if stop_reason.is_none() => stop_reason = Some(StopReason::Stopped),
                () = stop_requested(second), if stop_reason.is_none() => stop_reason = Some(StopReason::Stopped),
                () = sleep_until(limit), if stop_reason.is_none() => stop_reason = Some(StopReason::TimedOut),
                // A queued child will not start during shutdown, and its parent would delay the shutdown.
                () = context.gate.leaving(), if stop_reason.is_none() && waits => stop_reason = Some(StopReason::Stopped),
                () = clock::sleep(pause) => {}
            }
        }
    }
}

/// Resolves when a stop is requested; never if the sender is gone.
async fn stop_requested(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending().await
    }
}

async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
