//! One batch: its children are followed until all of them have ended, then whoever is owed the results gets them.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::join_all;
use petasos_agent::Task;
use petasos_core::journal::Outcome;
use petasos_core::{InboxId, Millis, SessionId, SessionKey, Source};
use petasos_store::Stage;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};
use tokio::time::{Instant, sleep};

use super::Delegation;
use super::report::{self, Ended};
use crate::Error;

#[derive(Debug)]
pub(super) struct Batch {
    pub(super) id: String,
    /// Whose it is.
    pub(super) key: SessionKey,
    pub(super) session: SessionId,
    pub(super) origin: Source,
    pub(super) tasks: Vec<Task>,
    pub(super) children: Vec<Working>,
    pub(super) began: Instant,
    pub(super) dispatched_at: Millis,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) end: End,
}

/// A child at work.
#[derive(Debug)]
pub(super) struct Working {
    pub(super) at: usize,
    pub(super) key: SessionKey,
    pub(super) session: SessionId,
    pub(super) inbox: InboxId,
    /// The file that grows while it works.
    pub(super) transcript: PathBuf,
}

impl Working {
    pub(super) fn transcript_path(&self) -> String {
        self.transcript.display().to_string()
    }
}

/// Who gets the results.
#[derive(Debug)]
pub(super) enum End {
    /// The call that waits. When it has gone, the children are stopped.
    Waited(oneshot::Sender<Value>),
    /// The conversation, in a turn of its own. The place in the pool is given back with it.
    Owed(OwnedSemaphorePermit),
}

/// Why a child was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    Stopped,
    TimedOut,
}

/// How long after being told to stop a child is told again.
const AGAIN: Duration = Duration::from_millis(200);
/// How long nothing may be heard of a child before it is looked for.
const LOOK: Duration = Duration::from_secs(30);

impl Batch {
    pub(super) async fn run(mut self, delegation: Delegation) {
        report::make_room(delegation.0.means.folder.clone()).await;
        let own = watch::Sender::new(false);
        let all = join_all(self.children.iter().map(|child| {
            let stops = [self.stop.clone(), own.subscribe()];
            follow(&delegation, child, stops)
        }));
        tokio::pin!(all);
        let results = match &mut self.end {
            End::Owed(_) => all.await,
            End::Waited(results) => petasos_runtime::select! {
                ended = &mut all => ended,
                () = results.closed() => {
                    own.send_replace(true);
                    all.await
                }
            },
        };
        delegation.running().remove(&self.id);
        let seconds = self.began.elapsed().as_secs_f64();
        match self.end {
            End::Waited(waiting) => {
                let transcripts: Vec<_> = self.children.iter().map(Working::transcript_path).collect();
                let results = json!({
                    "results": results, "total_duration_seconds": seconds, "live_transcripts": transcripts,
                });
                // Whoever waited may have been stopped; what was done is in the transcripts.
                let _ = waiting.send(results);
            }
            End::Owed(ref _permit) => report::owe(&delegation, &self, results, seconds).await,
        }
    }
}

/// Waits for the end of a child and gives what it has to say.
async fn follow(delegation: &Delegation, child: &Working, stops: [watch::Receiver<bool>; 2]) -> Value {
    let began = Instant::now();
    let (outcome, why) = match until_settled(delegation, child, stops, began).await {
        Ok(ended) => ended,
        Err(error) => {
            tracing::warn!(%error, "a subagent cannot be followed any more");
            (None, None)
        }
    };
    let ended = Ended { outcome, why, seconds: began.elapsed().as_secs_f64() };
    report::entry(&delegation.0.means, child, &ended).await
}

async fn until_settled(
    delegation: &Delegation,
    child: &Working,
    mut stops: [watch::Receiver<bool>; 2],
    began: Instant,
) -> Result<(Option<Outcome>, Option<Why>), Error> {
    let means = &delegation.0.means;
    let limit = means.settings.delegation.patience.map(|patience| began + patience);
    let mut scribe = report::Scribe::new(child);
    let mut why = None;
    loop {
        let mut view = means.router.view(child.key.clone()).await.ok_or(Error::Stopping)?;
        loop {
            let seen = {
                let view = view.borrow_and_update();
                (view.rows, view.live.is_some())
            };
            scribe.write(means).await;
            let id = child.inbox;
            let found = match means.db.read(move |reader| reader.where_is(id)).await {
                Ok(found) => found,
                Err(Error::Stopping) => return Err(Error::Stopping),
                // The child works on, whatever we can read at the moment.
                Err(error) => {
                    tracing::warn!(%error, "a subagent cannot be looked at for the moment");
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
            };
            let waits = match found.map(|found| found.stage) {
                Some(Stage::Settled { outcome, .. }) => return Ok((Some(outcome), why)),
                Some(Stage::Queued { .. }) => true,
                Some(Stage::Running { .. }) => false,
                // Pruned: it ended long ago.
                None => return Ok((None, why)),
            };
            if why.is_some() {
                means.router.cancel(child.key.clone(), child.inbox).await;
            }
            let pause = if why.is_some() { AGAIN } else { LOOK };
            let moved =
                async { view.wait_for(|view| (view.rows, view.live.is_some()) != seen).await.is_ok() };
            let [first, second] = &mut stops;
            petasos_runtime::select! {
                moved = moved => if !moved {
                    // Its task has left or failed; whoever looks finds the next one.
                    sleep(AGAIN).await;
                    break;
                },
                () = asked(first), if why.is_none() => why = Some(Why::Stopped),
                () = asked(second), if why.is_none() => why = Some(Why::Stopped),
                () = at(limit), if why.is_none() => why = Some(Why::TimedOut),
                // It will not begin any more, and whoever waits for it keeps us from leaving.
                () = means.gate.leaving(), if why.is_none() && waits => why = Some(Why::Stopped),
                () = sleep(pause) => {}
            }
        }
    }
}

/// Resolves when it is to stop; never, if nobody can say so any more.
async fn asked(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending().await
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
