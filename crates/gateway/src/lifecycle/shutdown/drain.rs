//! Graceful shutdown: marks the running turns as interrupted, announces the shutdown, waits for the turns, and interrupts
//! those that still run at the deadline.
//!
//! After a crash in between, sessions may be marked whose turns have finished. A turn that ends clears its mark, and the
//! journal knows the open turns, so a mark alone never starts a turn twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use petasos_core::journal::Write;
use petasos_core::lifecycle::{ActiveTurn, RestartOrigin, ShutdownReason, hung_after, stop_budget};
use petasos_core::link;
use petasos_core::message::Delivery;
use petasos_core::outbox::{Draft, Kind};
use petasos_core::{Route, SessionKey, TurnId};
use petasos_store::{Error as StoreError, Tx};

use crate::lifecycle::gate::LifecycleSnapshot;
use crate::lifecycle::lifetime::Lifetime;
use crate::lifecycle::sd_notify::Notifier;
use crate::lifecycle::shutdown::watchdog::Watchdog;
use crate::links::supervisor::LinkHandle;
use crate::runtime::commit::Commit;
use crate::sessions::Handles;
use crate::{Error, clock};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DrainOutcome {
    Yes,
    TimedOut,
}

/// Limit for writes that a shutdown can do without.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);
/// A smaller change of the deadline comes from reading the clock twice.
const GRANT_TOLERANCE: Duration = Duration::from_millis(100);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Input of [`confirm_interrupted`].
#[derive(Debug)]
pub(crate) struct DrainRecord {
    pub(crate) drained: DrainOutcome,
    /// Marked by this drain, not before it.
    marked: Vec<SessionKey>,
    /// All turns that ran during the drain.
    worked: BTreeMap<TurnId, SessionKey>,
}

/// Waits for the running turns, up to the deadline. No new turns start meanwhile.
pub(crate) async fn drain(handles: &Arc<Handles>, notifier: &Notifier, watchdog: &Watchdog) -> DrainRecord {
    let lifetime = &handles.lifecycle.lifetime;
    let deadline = clock::now().after(lifetime.drain_timeout);
    handles.lifecycle.gate.set_deadline(deadline);
    let why = shutdown_reason(handles);
    let mut worked = stored_turns(&handles.lifecycle.gate.snapshot());
    let marked =
        write_in_time(handles, Commit::MarkInterrupted, "cannot mark running turns as interrupted", {
            let worked = worked.clone();
            move |tx| tx.mark_running_sessions(worked.into_values(), &why.resume_reason(), clock::now())
        });
    let marked = marked.await.unwrap_or_default();
    announce_shutdown(handles, lifetime, &worked, why).await;
    if !worked.is_empty() {
        tracing::info!(
            turns = worked.len(),
            seconds = lifetime.drain_timeout.as_secs_f64(),
            "waiting for turns"
        );
    }
    let mut left = usize::MAX;
    let mut granted = clock::monotonic() + lifetime.drain_timeout;
    let quiet = handles.lifecycle.gate.drained(deadline, |count, more| {
        let end = clock::monotonic() + more;
        watchdog.not_before(end + hung_after(Duration::ZERO));
        // Progress or an extension: the service manager's stop timeout starts again.
        if (count < left && left != usize::MAX) || end > granted + GRANT_TOLERANCE {
            notifier.extend(stop_budget(more));
        }
        (left, granted) = (count, granted.max(end));
    });
    quiet.await;
    let end = handles.lifecycle.gate.snapshot();
    // Turns that had only claimed a slot may have been stored since.
    worked.extend(stored_turns(&end));
    let drained = if end.holders.is_empty() { DrainOutcome::Yes } else { DrainOutcome::TimedOut };
    DrainRecord { drained, marked, worked }
}

/// Called when all sessions have ended: only turns that are open in the journal stay marked and count as interrupted.
/// Returns their number. `None`: the write failed.
pub(crate) async fn confirm_interrupted(handles: &Arc<Handles>, record: DrainRecord) -> Option<usize> {
    let DrainRecord { marked, worked, .. } = record;
    // The shutdown reason may have changed since the turns were marked.
    let why = shutdown_reason(handles);
    let closed = write_in_time(
        handles,
        Commit::ConfirmInterrupted,
        "cannot confirm the interrupted turns",
        move |tx| tx.finish_stop(&marked, &worked, &why.resume_reason(), clock::now()),
    );
    closed.await
}

/// Drops unsent banners: they are obsolete after the shutdown.
pub(crate) async fn drop_banners(handles: &Arc<Handles>) {
    write_in_time(handles, Commit::DropBanners, "cannot drop unsent banners", |tx| tx.drop_banners()).await;
}

fn shutdown_reason(handles: &Handles) -> ShutdownReason {
    handles.lifecycle.gate.snapshot().leaving.map_or(ShutdownReason::Failure, |leaving| leaving.why)
}

/// Waits until the outbox is empty for connected platforms. Other items stay in the outbox; banners are dropped.
pub(crate) async fn flush_outbox(handles: &Arc<Handles>, links: &[LinkHandle]) {
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
        clock::sleep(POLL_INTERVAL).await;
    }
}

/// Slots whose turn is stored. The messages of the others are still in the inbox and need no mark.
fn stored_turns(situation: &LifecycleSnapshot) -> BTreeMap<TurnId, SessionKey> {
    let real = |holder: &ActiveTurn| holder.turn.map(|turn| (turn, holder.key.clone()));
    situation.holders.iter().filter_map(real).collect()
}

/// Notifies chats with a running turn, then the remaining home channels.
async fn announce_shutdown(
    handles: &Arc<Handles>,
    lifetime: &Lifetime,
    interrupted: &BTreeMap<TurnId, SessionKey>,
    why: ShutdownReason,
) {
    let from_chat = matches!(why, ShutdownReason::Restart { origin: RestartOrigin::Chat, .. });
    let suppressed = handles.lifecycle.gate.snapshot().drain.is_some_and(|drain| drain.suppress_notification);
    let homes = if from_chat || suppressed { vec![] } else { handles.notifications.homes.routes() };
    let quiet = lifetime.quiet_platforms.clone();
    let turns = interrupted.keys().copied().collect::<Vec<_>>();
    let announced =
        write_in_time(handles, Commit::AnnounceShutdown, "cannot announce the shutdown", move |tx| {
            let mut notified = BTreeSet::new();
            let mut due = Vec::new();
            let mut writes = Vec::new();
            for turn in &turns {
                let Some(turn) = tx.turn(*turn)?.map(|journaled| journaled.turn) else { continue };
                if quiet.contains(&turn.route.platform) || !notified.insert(turn.route.lane()) {
                    continue;
                }
                match turn.route.delivery {
                    Delivery::Push => {
                        due.push(turn.route.lane());
                        writes.push(Write::Enqueue(banner(turn.route, Some(turn.key), why)));
                    }
                    // Page and terminal show the state of the gateway.
                    Delivery::Pull => {}
                }
            }
            for home in homes.iter().filter(|home| !quiet.contains(&home.platform)) {
                if notified.insert(home.lane()) {
                    due.push(home.lane());
                    writes.push(Write::Enqueue(banner(home.clone(), None, why)));
                }
            }
            tx.apply(&writes, clock::now())?;
            Ok(due)
        });
    for lane in announced.await.unwrap_or_default() {
        handles.delivery.lanes.wake(lane).await;
    }
}

fn banner(route: Route, key: Option<SessionKey>, why: ShutdownReason) -> Draft {
    let text = why.banner().to_owned();
    Draft { route, session_key: key, turn: None, kind: Kind::Banner, text, buttons: vec![] }
}

/// A write that the shutdown can do without: errors and timeouts are logged.
async fn write_in_time<T: Send + 'static>(
    handles: &Arc<Handles>,
    commit: Commit,
    failure: &'static str,
    job: impl FnOnce(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
) -> Option<T> {
    let done: Result<Result<T, Error>, _> =
        tokio::time::timeout(STORE_TIMEOUT, handles.db.write(commit, job)).await;
    match done {
        Ok(Ok(value)) => Some(value),
        Ok(Err(error)) => {
            tracing::error!(%error, failure);
            None
        }
        Err(_late) => {
            tracing::error!(failure, "the disk does not respond");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use petasos_core::lifecycle::{Event, TurnOrigin};

    use super::*;
    use crate::lifecycle::gate::AcceptGate;

    #[test]
    fn slot_without_stored_turn_is_not_marked() {
        let gate = AcceptGate::new(None);
        gate.apply(Event::Started);
        let key = |name: &str| SessionKey(name.into());
        let begun = gate.claim(&key("a"), TurnOrigin::User).unwrap();
        let _mere_claim = gate.claim(&key("b"), TurnOrigin::User).unwrap();
        begun.set_turn(TurnId(7));
        assert_eq!(gate.snapshot().active(), 2, "both are waited for");
        assert_eq!(stored_turns(&gate.snapshot()), BTreeMap::from([(TurnId(7), key("a"))]));
    }
}
