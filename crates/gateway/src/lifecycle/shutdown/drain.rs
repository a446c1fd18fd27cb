//! How the gateway leaves: what may be interrupted is marked first, then everybody is told, then turns get their
//! time, and only what still runs at the end is cut off.
//!
//! A crash in the middle leaves sessions marked that may have finished; a turn that ends well clears its own mark,
//! and the journal knows which turns are open, so a mark alone never starts one twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use petasos_core::journal::Write;
use petasos_core::lifecycle::{From, Holder, Leave, hung_after, stop_budget};
use petasos_core::link;
use petasos_core::message::Delivery;
use petasos_core::outbox::{Draft, Kind};
use petasos_core::{Route, SessionKey, TurnId};
use petasos_store::{Error as StoreError, Tx};

use crate::lifecycle::gate::Situation;
use crate::lifecycle::lifetime::Lifetime;
use crate::lifecycle::sd_notify::Notifier;
use crate::lifecycle::shutdown::watchdog::Watchdog;
use crate::links::supervisor::LinkHandle;
use crate::runtime::commit::Commit;
use crate::sessions::Handles;
use crate::{Error, clock};

/// How the turns fared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Drained {
    /// Nobody was interrupted.
    Yes,
    /// Some still ran when their time was over.
    TimedOut,
}

/// A disk that does not answer within this time must not keep us here.
const PATIENCE: Duration = Duration::from_secs(5);
/// Less than this is nobody's grant, only the time between two looks at the clock.
const BREATH: Duration = Duration::from_millis(100);
const LOOK: Duration = Duration::from_millis(10);

/// What has to be put right when every session has ended.
#[derive(Debug)]
pub(crate) struct Books {
    pub(crate) drained: Drained,
    /// Marked by us, and not before.
    marked: Vec<SessionKey>,
    /// Whoever was at work since we began to leave.
    worked: BTreeMap<TurnId, SessionKey>,
}

/// Lets the running turns finish, within limits. Nothing new starts from the moment we are called.
pub(crate) async fn drain(handles: &Arc<Handles>, notifier: &Notifier, watchdog: &Watchdog) -> Books {
    let lifetime = &handles.lifecycle.lifetime;
    let deadline = clock::now().after(lifetime.drain_timeout);
    handles.lifecycle.gate.set_deadline(deadline);
    let why = why(handles);
    let mut worked = real(&handles.lifecycle.gate.situation());
    let marked = settle(handles, Commit::MarkAtWork, "the turns could not be marked", {
        let worked = worked.clone();
        move |tx| tx.mark_at_work(worked.into_values(), &why.resume_reason(), clock::now())
    });
    let marked = marked.await.unwrap_or_default();
    announce(handles, lifetime, &worked, why).await;
    if !worked.is_empty() {
        tracing::info!(
            turns = worked.len(),
            seconds = lifetime.drain_timeout.as_secs_f64(),
            "waiting for turns"
        );
    }
    let (mut left, mut granted) = (usize::MAX, Instant::now() + lifetime.drain_timeout);
    let quiet = handles.lifecycle.gate.quiet(deadline, |count, more| {
        let end = Instant::now() + more;
        watchdog.not_before(end + hung_after(Duration::ZERO));
        // Somebody finished, or was given more time: whoever counts the seconds of our stop may start anew.
        if (count < left && left != usize::MAX) || end > granted + BREATH {
            notifier.extend(stop_budget(more));
        }
        (left, granted) = (count, granted.max(end));
    });
    quiet.await;
    let end = handles.lifecycle.gate.situation();
    // Those that had only claimed their place before may have begun since.
    worked.extend(real(&end));
    let drained = if end.holders.is_empty() { Drained::Yes } else { Drained::TimedOut };
    Books { drained, marked, worked }
}

/// When no session runs any more, the journal knows who was cut off: only those stay marked, and they alone count as
/// interrupted. Gives how many, if the disk lets us.
pub(crate) async fn close_books(handles: &Arc<Handles>, books: Books) -> Option<usize> {
    let Books { marked, worked, .. } = books;
    // Another wish may have come meanwhile, and it is the last one that the marks have to name.
    let why = why(handles);
    let closed = settle(handles, Commit::CloseBooks, "the marks could not be put right", move |tx| {
        tx.close_books(&marked, &worked, &why.resume_reason(), clock::now())
    });
    closed.await
}

/// What was only true while we lived, and was not said in time.
pub(crate) async fn drop_banners(handles: &Arc<Handles>) {
    settle(handles, Commit::DropBanners, "banners that were not sent stay until the next start", |tx| {
        tx.drop_banners()
    })
    .await;
}

fn why(handles: &Handles) -> Leave {
    handles.lifecycle.gate.situation().leaving.map_or(Leave::Failure, |leaving| leaving.why)
}

/// What has been said may still go out, where somebody listens. What does not is owed to the chat, and banners are
/// dropped.
pub(crate) async fn say_goodbye(handles: &Arc<Handles>, links: &[LinkHandle]) {
    let up: Vec<&str> = links
        .iter()
        .filter(|link| matches!(link.link.borrow().state, link::State::Up { .. }))
        .map(|link| link.name)
        .collect();
    loop {
        let due = handles.db.read(|reader| reader.due_lanes(clock::now())).await.unwrap_or_default();
        if !due.iter().any(|lane| up.contains(&lane.platform.as_str())) {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Those whose turn is on disk. A mere claim leaves its messages waiting in the inbox, and needs no mark.
fn real(situation: &Situation) -> BTreeMap<TurnId, SessionKey> {
    let real = |holder: &Holder| holder.turn.map(|turn| (turn, holder.key.clone()));
    situation.holders.iter().filter_map(real).collect()
}

/// Chats with a running turn hear of it, and then each home channel that has not heard yet.
async fn announce(
    handles: &Arc<Handles>,
    lifetime: &Lifetime,
    at_work: &BTreeMap<TurnId, SessionKey>,
    why: Leave,
) {
    let from_chat = matches!(why, Leave::Restart { from: From::Chat, .. });
    let suppressed =
        handles.lifecycle.gate.situation().drain.is_some_and(|drain| drain.suppress_notification);
    let homes = match from_chat || suppressed {
        true => vec![],
        false => handles.notifications.homes.routes(),
    };
    let (quiet, turns) = (lifetime.quiet_platforms.clone(), at_work.keys().copied().collect::<Vec<_>>());
    let told = settle(handles, Commit::Announce, "nobody could be told of the stop", move |tx| {
        let (mut told, mut due) = (BTreeSet::new(), Vec::new());
        let mut writes = Vec::new();
        for turn in &turns {
            let Some(turn) = tx.turn(*turn)?.map(|journaled| journaled.turn) else { continue };
            if quiet.contains(&turn.route.platform) || !told.insert(turn.route.lane()) {
                continue;
            }
            match turn.route.delivery {
                Delivery::Push => {
                    due.push(turn.route.lane());
                    writes.push(Write::Owe(banner(turn.route, Some(turn.key), why)));
                }
                // Page and terminal see the state of the gateway itself.
                Delivery::Pull => {}
            }
        }
        for home in homes.iter().filter(|home| !quiet.contains(&home.platform)) {
            if told.insert(home.lane()) {
                due.push(home.lane());
                writes.push(Write::Owe(banner(home.clone(), None, why)));
            }
        }
        tx.apply(&writes, clock::now())?;
        Ok(due)
    });
    for lane in told.await.unwrap_or_default() {
        handles.delivery.deliver.due(lane).await;
    }
}

fn banner(route: Route, key: Option<SessionKey>, why: Leave) -> Draft {
    let text = why.banner().to_owned();
    Draft { route, session_key: key, turn: None, kind: Kind::Banner, text, buttons: vec![] }
}

/// One change of the store that a stop can do without: a disk that refuses must not keep us here.
async fn settle<T: Send + 'static>(
    handles: &Arc<Handles>,
    commit: Commit,
    failure: &'static str,
    job: impl FnOnce(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
) -> Option<T> {
    let done: Result<Result<T, Error>, _> =
        tokio::time::timeout(PATIENCE, handles.db.write(commit, job)).await;
    match done {
        Ok(Ok(value)) => Some(value),
        Ok(Err(error)) => {
            tracing::error!(%error, failure);
            None
        }
        Err(_late) => {
            tracing::error!(failure, "the disk does not answer");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use petasos_core::lifecycle::{Claim, Event};

    use super::*;
    use crate::lifecycle::gate::Gate;

    #[test]
    fn a_claim_without_a_turn_on_disk_is_neither_marked_nor_told() {
        let gate = Gate::new(None);
        gate.feed(Event::Started);
        let key = |name: &str| SessionKey(name.into());
        let begun = gate.claim(&key("a"), Claim::User).unwrap();
        let _mere_claim = gate.claim(&key("b"), Claim::User).unwrap();
        begun.began(TurnId(7));
        assert_eq!(gate.situation().active(), 2, "both are waited for");
        assert_eq!(real(&gate.situation()), BTreeMap::from([(TurnId(7), key("a"))]));
    }
}
