//! How the gateway leaves: what may be interrupted is marked first, then everybody is told, then turns get their
//! time, and only what still runs at the end is cut off.
//!
//! A crash in the middle leaves sessions marked that may have finished; a turn that ends well clears its own mark,
//! and the journal knows which turns are open, so a mark alone never starts one twice.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use petasos_core::journal::Write;
use petasos_core::lifecycle::{From, Holder, Leave, hung_after, stop_budget};
use petasos_core::link;
use petasos_core::message::Delivery;
use petasos_core::outbox::{Draft, Kind};
use petasos_core::transcript::Message;
use petasos_core::{Millis, Route, SessionKey, TurnId};
use petasos_store::{Error as StoreError, Tx};

use crate::boot::leave_open;
use crate::gate::Situation;
use crate::lifetime::Lifetime;
use crate::running::instant;
use crate::sd::Notifier;
use crate::session::Shell;
use crate::supervise::LinkHandle;
use crate::watchdog::Watchdog;
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
const LOOK: Duration = Duration::from_millis(10);

/// Lets the running turns finish, within limits. Nothing new starts from the moment we are called.
pub(crate) async fn drain(shell: &Arc<Shell>, notifier: &Notifier, watchdog: &Watchdog) -> Drained {
    let lifetime = &shell.lifetime;
    let Some(leaving) = shell.gate.situation().leaving else { return Drained::Yes };
    let deadline = clock::now().after(lifetime.drain_timeout);
    shell.gate.set_deadline(deadline);
    let at_work = real(&shell.gate.situation());
    let marked = settle(shell, "the turns could not be marked", {
        let at_work = at_work.clone();
        move |tx| pre_mark(tx, &at_work, leaving.why, clock::now())
    })
    .await
    .unwrap_or_default();
    announce(shell, lifetime, &at_work, leaving.why).await;
    if !at_work.is_empty() {
        tracing::info!(
            turns = at_work.len(),
            seconds = lifetime.drain_timeout.as_secs_f64(),
            "waiting for turns"
        );
    }
    let mut left = usize::MAX;
    let quiet = shell.gate.quiet(deadline, |count, until| {
        if let Some(until) = until {
            watchdog.not_before(instant(until) + hung_after(Duration::ZERO));
        }
        if count < left && left != usize::MAX {
            // Somebody finished: whoever counts the seconds of our stop may start anew.
            notifier.extend(stop_budget(until.map(|until| until.since(clock::now())).unwrap_or_default()));
        }
        left = count;
    });
    quiet.await;
    let still = real(&shell.gate.situation());
    let timed_out = !shell.gate.situation().holders.is_empty();
    // Another wish may have come meanwhile, and it is the last one that the marks have to name.
    let why = shell.gate.situation().leaving.map_or(leaving.why, |leaving| leaving.why);
    settle(shell, "the marks could not be put right", move |tx| {
        close_books(tx, &marked, &still, why, clock::now())
    })
    .await;
    if timed_out { Drained::TimedOut } else { Drained::Yes }
}

/// What has been said may still go out, where somebody listens. What does not is owed to the chat, and banners are
/// dropped.
pub(crate) async fn say_goodbye(shell: &Arc<Shell>, links: &[LinkHandle]) {
    let up: Vec<String> = links
        .iter()
        .filter(|link| matches!(link.link.borrow().state, link::State::Up { .. }))
        .map(|link| format!("{}:", link.name))
        .collect();
    loop {
        let due = shell.db.read(|reader| reader.due_lanes(clock::now())).await.unwrap_or_default();
        if !due.iter().any(|lane| up.iter().any(|prefix| lane.starts_with(prefix))) {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Those whose turn is on disk. A mere claim leaves its messages waiting in the inbox, and needs no mark.
fn real(situation: &Situation) -> Vec<(SessionKey, TurnId)> {
    let real = |holder: &Holder| holder.turn.map(|turn| (holder.key.clone(), turn));
    situation.holders.iter().filter_map(real).collect()
}

/// Before anything slow. Gives the sessions that were not marked before.
fn pre_mark(
    tx: &Tx<'_>,
    at_work: &[(SessionKey, TurnId)],
    why: Leave,
    now: Millis,
) -> Result<Vec<SessionKey>, StoreError> {
    let mut marked = Vec::new();
    for (key, _) in at_work {
        let before = tx.entry(key)?.is_some_and(|entry| entry.resume_pending);
        if tx.mark_resume_pending(key, why.resume_reason(), now)? && !before {
            marked.push(key.clone());
        }
    }
    Ok(marked)
}

/// Only those that still run stay marked, and they alone count as interrupted.
fn close_books(
    tx: &Tx<'_>,
    marked: &[SessionKey],
    still: &[(SessionKey, TurnId)],
    why: Leave,
    now: Millis,
) -> Result<(), StoreError> {
    let runs = |key: &SessionKey| still.iter().any(|(running, _)| running == key);
    for key in marked.iter().filter(|key| !runs(key)) {
        tx.clear_resume_pending(key)?;
    }
    for (key, _) in still {
        tx.mark_resume_pending(key, why.resume_reason(), now)?;
    }
    let (keys, turns): (Vec<_>, Vec<_>) = still.iter().cloned().unzip();
    tx.count_stop(&keys)?;
    leave_open(tx, &turns)
}

/// Chats with a running turn hear of it, and then each home channel that has not heard yet.
async fn announce(shell: &Arc<Shell>, lifetime: &Lifetime, at_work: &[(SessionKey, TurnId)], why: Leave) {
    let from_chat = matches!(why, Leave::Restart { from: From::Chat, .. });
    let suppressed = shell.gate.situation().drain.is_some_and(|drain| drain.suppress_notification);
    let homes = match from_chat || suppressed {
        true => vec![],
        false => lifetime.home_routes(),
    };
    let (quiet, turns) = (lifetime.quiet_platforms.clone(), at_work.to_vec());
    let told = settle(shell, "nobody could be told of the stop", move |tx| {
        let (mut told, mut due) = (BTreeSet::new(), Vec::new());
        let mut writes = Vec::new();
        for (_, turn) in &turns {
            let Some(turn) = tx.turn(*turn)?.map(|journaled| journaled.turn) else { continue };
            if quiet.contains(&turn.route.platform) || !told.insert(turn.route.lane()) {
                continue;
            }
            writes.push(match turn.route.delivery {
                Delivery::Push => {
                    due.push(turn.route.lane());
                    Write::Owe(banner(turn.route, Some(turn.key), why))
                }
                Delivery::Pull => Write::Append {
                    session: turn.session,
                    message: Message::notice(why.banner(), clock::now()),
                },
            });
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
        shell.deliver.due(lane).await;
    }
}

fn banner(route: Route, key: Option<SessionKey>, why: Leave) -> Draft {
    let text = why.banner().to_owned();
    Draft { route, session_key: key, turn: None, kind: Kind::Banner, text, buttons: vec![] }
}

/// One change of the store that a stop can do without: a disk that refuses must not keep us here.
async fn settle<T: Send + 'static>(
    shell: &Arc<Shell>,
    failure: &'static str,
    job: impl FnOnce(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
) -> Option<T> {
    let done: Result<Result<T, Error>, _> = tokio::time::timeout(PATIENCE, shell.db.write(job)).await;
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
    use crate::gate::Gate;

    #[test]
    fn a_claim_without_a_turn_on_disk_is_neither_marked_nor_told() {
        let gate = Gate::new(None);
        gate.feed(Event::Started);
        let key = |name: &str| SessionKey(name.into());
        let begun = gate.claim(&key("a"), Claim::User).unwrap();
        let _mere_claim = gate.claim(&key("b"), Claim::User).unwrap();
        begun.began(TurnId(7));
        assert_eq!(gate.situation().active(), 2, "both are waited for");
        assert_eq!(real(&gate.situation()), [(key("a"), TurnId(7))]);
    }
}
