//! Ended background work, on its way to the session that started it.
//!
//! Owns nothing: a completion is a row until it is a message of the inbox, in one commit, and from there on it goes the
//! way of every message, as a turn of its own that interrupts nobody. It goes to the session and the chat that the work
//! was started from and nowhere else. While its platform is away it stays a row.

use std::sync::Arc;

use petasos_agent::Event;
use petasos_core::Platform;
use petasos_core::link::State;
use petasos_core::message::Delivery;
use petasos_store::{Completion, Error as StoreError, Pending, Tx};
use tokio::sync::Notify;
use tokio::time::Duration;

use crate::commit::Commit;
use crate::links::any_changed;
use crate::session::Shell;
use crate::supervise::LinkHandle;
use crate::{Error, clock};

/// Rung after a commit that somebody waits for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bell(Arc<Notify>);

impl Bell {
    pub(crate) fn ring(&self) {
        self.0.notify_one();
    }

    pub(crate) async fn rung(&self) {
        self.0.notified().await;
    }
}

/// Completions in one commit.
const BATCH: usize = 64;
/// How long to wait when the store refuses.
const STORE_RETRY: Duration = Duration::from_secs(1);

pub(crate) async fn run(shell: Arc<Shell>, bell: Bell, mut links: Vec<LinkHandle>) {
    loop {
        links.iter_mut().for_each(|link| link.link.mark_unchanged());
        let there = connected(&links);
        let again = match hand_over(&shell, there).await {
            Ok(more) => more,
            Err(Error::Stopping) => return,
            Err(error) => {
                tracing::warn!(%error, "ended background work is not handed over yet");
                tokio::time::sleep(STORE_RETRY).await;
                true
            }
        };
        tokio::select! {
            () = shell.stopper.stopped() => return,
            () = std::future::ready(()), if again => {}
            () = bell.rung() => {}
            () = any_changed(&mut links) => {}
        }
    }
}

fn connected(links: &[LinkHandle]) -> Vec<&'static str> {
    let up = |link: &&LinkHandle| matches!(link.link.borrow().state, State::Up { .. });
    links.iter().filter(up).map(|link| link.name).collect()
}

/// `true`: there may be more.
async fn hand_over(shell: &Arc<Shell>, there: Vec<&'static str>) -> Result<bool, Error> {
    let channels = shell.channels.clone();
    let reachable = move |platform: Platform| {
        let link = channels.adapter(platform).map(|adapter| adapter.platform().as_str());
        link.is_some_and(|link| there.contains(&link))
            || channels.capabilities(platform).delivery == Delivery::Pull
    };
    // Most of the time there is nothing, and a look costs no commit.
    let waiting = shell.db.read(|reader| reader.queued_completions()).await?;
    let mut waiting: Vec<_> = waiting.into_iter().filter(|it| reachable(it.origin.platform)).collect();
    let more = waiting.len() > BATCH;
    waiting.truncate(BATCH);
    if waiting.is_empty() {
        return Ok(false);
    }
    let accept = move |tx: &Tx<'_>| -> Result<Vec<Pending>, StoreError> {
        let accepted = waiting.into_iter().map(|completion| accept(tx, completion));
        Ok(accepted.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    };
    for pending in shell.db.write(Commit::Completions, accept).await? {
        shell.router.arrived(pending.key.clone(), pending).await;
    }
    Ok(more)
}

/// From a row to a message: both, or neither. `None`: its session has learned of it meanwhile.
fn accept(tx: &Tx<'_>, completion: Completion) -> Result<Option<Pending>, StoreError> {
    let now = clock::now();
    let Ok(event) = serde_json::from_str::<Event>(&completion.payload) else {
        tracing::error!(completion.dispatch, "ended background work cannot be read and is passed over");
        tx.completion_consumed(&completion.dispatch, now)?;
        return Ok(None);
    };
    tx.hand_over(completion, event.text(), now)
}
