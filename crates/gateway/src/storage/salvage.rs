//! Salvage and restore of the database: notifies the owner and the affected chats, and restarts when damage is found later.
//!
//! The notices are enqueued in the takeover commit, so they are sent once.

use std::collections::BTreeMap;
use std::time::Duration;

use petasos_core::journal::Write;
use petasos_core::lifecycle::{RestartMethod, RestartOrigin, ShutdownReason};
use petasos_core::message::Delivery;
use petasos_core::outbox::Draft;
use petasos_core::{Inbound, LaneId, Millis, Route};
use petasos_platforms::AdapterKind;
use petasos_store::{Error as StoreError, LossCause, LossNotice, Salvage, Store, TableLoss, Tx};

use crate::background::notifications::Notifications;
use crate::clock;
use crate::lifecycle::Lifecycle;
use crate::links::channels::Channels;
use crate::notices::storage as notices;
use crate::storage::database::Db;

/// Minimum time between two salvages: new damage within it comes from the disk, and an immediate restart would not help.
const MIN_INTERVAL: Duration = Duration::from_secs(600);
/// Between two reports of the progress of a salvage.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);
const MAX_QUOTE_CHARS: usize = 80;
/// Per chat.
const MAX_QUOTES: usize = 5;
const MAX_LOSSES: usize = 8;

/// Enqueues the notices for the owner and the affected chats. Returns their lanes.
pub(crate) fn announce(
    tx: &Tx<'_>,
    channels: &Channels,
    homes: &[Route],
    notice: &LossNotice,
    now: Millis,
) -> Result<Vec<LaneId>, StoreError> {
    let unsure = notice.possibly_answered.iter().map(|pending| &pending.inbound);
    let mut drafts = chat_notices(channels, unsure);
    let text = owner_text(notice, now);
    drafts.extend(homes.iter().map(|home| Draft::notice(home.clone(), text.clone())));
    enqueue_all(tx, drafts, now)
}

/// Enqueues one notice per chat for messages that are not answered because they may have been answered before.
pub(crate) fn report_unanswered<'a>(
    tx: &Tx<'_>,
    channels: &Channels,
    messages: impl IntoIterator<Item = &'a Inbound>,
    now: Millis,
) -> Result<Vec<LaneId>, StoreError> {
    enqueue_all(tx, chat_notices(channels, messages), now)
}

fn enqueue_all(tx: &Tx<'_>, drafts: Vec<Draft>, now: Millis) -> Result<Vec<LaneId>, StoreError> {
    let lanes = drafts.iter().map(|draft| draft.route.lane()).collect();
    let writes: Vec<Write> = drafts.into_iter().map(Write::Enqueue).collect();
    tx.apply(&writes, now)?;
    Ok(lanes)
}

fn chat_notices<'a>(channels: &Channels, messages: impl IntoIterator<Item = &'a Inbound>) -> Vec<Draft> {
    let mut by_lane: BTreeMap<LaneId, (Route, Vec<&Inbound>)> = BTreeMap::new();
    for inbound in messages {
        let route = channels.reply_route(inbound);
        if route.delivery == Delivery::Push {
            by_lane.entry(route.lane()).or_insert_with(|| (route, Vec::new())).1.push(inbound);
        }
    }
    by_lane.into_values().map(|(route, messages)| Draft::notice(route, chat_text(&messages))).collect()
}

fn chat_text(messages: &[&Inbound]) -> String {
    let mut text = notices::POSSIBLY_ANSWERED.to_owned();
    for inbound in messages.iter().take(MAX_QUOTES) {
        let line: String = inbound.text.split_whitespace().collect::<Vec<_>>().join(" ");
        let quote: String = line.chars().take(MAX_QUOTE_CHARS).collect();
        text.push_str(&notices::quoted_message(&quote, line.chars().count() > MAX_QUOTE_CHARS));
    }
    if messages.len() > MAX_QUOTES {
        text.push_str(&notices::more_messages(messages.len() - MAX_QUOTES));
    }
    text
}

fn owner_text(notice: &LossNotice, now: Millis) -> String {
    let (mut text, end) = match &notice.cause {
        LossCause::Salvaged(salvage) => (salvaged(salvage), notices::report(&salvage.report)),
        LossCause::Restored { made_at } => (restored(now.since(*made_at)), String::new()),
    };
    let unsure = notice.possibly_answered.len();
    if unsure > 0 {
        text.push_str(&notices::possibly_answered(unsure));
    }
    text + &end
}

fn restored(age: Duration) -> String {
    notices::restored(age.as_secs() / 60)
}

fn salvaged(salvage: &Salvage) -> String {
    let mut text = notices::SALVAGED.to_owned();
    match salvage.losses.as_slice() {
        [] => text.push_str(notices::NO_ROWS_LOST),
        losses => {
            let lost: Vec<_> = losses.iter().take(MAX_LOSSES).map(TableLoss::description).collect();
            text.push_str(&notices::lost(&truncate(&lost.join("\n"))));
        }
    }
    if salvage.log_commits > 0 {
        text.push_str(notices::LAST_CHANGES_INCOMPLETE);
    }
    if salvage.lost_cursors() {
        let kinds = AdapterKind::BUILT_IN.iter().filter(|kind| kind.backfills());
        let names: Vec<_> = kinds.map(|kind| kind.label()).collect();
        let names = names.join(" or ");
        text.push_str(&notices::messages_may_be_missing(&names));
    }
    text
}

/// Shortens a text for a message; the report has all of it.
fn truncate(text: &str) -> String {
    let most = text.floor_char_boundary(1500);
    if most < text.len() { format!("{}…", &text[..most]) } else { text.to_owned() }
}

/// Waits until damage is found, records it, and restarts; the start salvages the database.
pub(crate) async fn watch(lifecycle: Lifecycle, notifications: Notifications) {
    petasos_runtime::select! {
        () = lifecycle.shutdown.stopped() => return,
        () = restart_when_damaged(&lifecycle, &notifications) => {}
    }
    lifecycle.shutdown.stopped().await;
}

async fn restart_when_damaged(lifecycle: &Lifecycle, notifications: &Notifications) {
    let db = &notifications.db;
    let detail = db.damaged().await;
    let mut notified = false;
    while let Some(pause) = pause_before_salvage(db, &detail).await {
        if !notified {
            notifications.notify_owner(&repeated_damage_text(pause)).await;
            notified = true;
        }
        clock::sleep(pause).await;
    }
    let how = if lifecycle.lifetime.supervised { RestartMethod::Service } else { RestartMethod::Detached };
    lifecycle.gate.shut_down(
        ShutdownReason::Restart { method: how, origin: RestartOrigin::Outside },
        Some("the database is damaged".into()),
    );
}

/// Records the damage for the next start. Returns how long to wait before the restart; `None`: restart now.
pub async fn pause_before_salvage(db: &Db, detail: &str) -> Option<Duration> {
    let pause = minimum_pause(db, detail).await;
    match pause {
        Some(pause) => tracing::error!(
            detail,
            seconds = pause.as_secs(),
            "the database is damaged; check the disk; a restart after this time salvages it"
        ),
        None => tracing::error!(detail, "the database is damaged; restarting to salvage it"),
    }
    pause
}

async fn minimum_pause(db: &Db, detail: &str) -> Option<Duration> {
    let path = db.path().to_owned();
    let noted = detail.to_owned();
    let noted = petasos_runtime::blocking(move || Store::note_damage(&path, &noted)).await;
    if !matches!(noted, Ok(Ok(()))) {
        tracing::error!("cannot record the damage of the database for the next start");
        return Some(MIN_INTERVAL);
    }
    // If the last salvage cannot be read, restart now.
    let last = db.read(|reader| reader.last_salvage()).await.ok().flatten()?;
    MIN_INTERVAL.checked_sub(clock::now().since(last.at)).filter(|pause| !pause.is_zero())
}

/// Reports the progress of a salvage: the first value at once, then one per interval.
pub fn paced(mut report: impl FnMut(u8)) -> impl FnMut(u8) {
    let mut reported: Option<tokio::time::Instant> = None;
    move |percent| {
        if reported.is_none_or(|at| at.elapsed() >= PROGRESS_INTERVAL) {
            reported = Some(clock::monotonic());
            report(percent);
        }
    }
}

/// Logs the result of a salvage at the start.
pub fn log_salvage(salvage: &Salvage) {
    tracing::error!(
        why = salvage.why,
        moved_to = salvage.moved_to,
        report = salvage.report,
        tables = salvage.losses.len(),
        "the database was damaged and has been salvaged"
    );
    for loss in salvage.shortened().losses {
        tracing::error!(lost = loss.description(), "rows were lost");
    }
    salvage.consequences.iter().for_each(|consequence| tracing::error!("{consequence}"));
}

fn repeated_damage_text(pause: Duration) -> String {
    notices::damaged_again(pause.as_secs().div_ceil(60))
}

#[cfg(test)]
mod tests {
    use super::*;
    use petasos_core::message::ChatType;
    use petasos_core::{Platform, Source};

    #[test]
    fn quotes_only_the_beginning_of_messages() {
        let source = Source::new(Platform::parse("telegram").unwrap(), ChatType::Dm, "7");
        let messages: Vec<_> =
            (0..7).map(|n| Inbound::new(source.clone(), n.to_string(), "word ".repeat(50))).collect();
        let text = chat_text(&messages.iter().collect::<Vec<_>>());
        assert!(text.ends_with("• and 2 more"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() < 250), "{text}");
    }
}
