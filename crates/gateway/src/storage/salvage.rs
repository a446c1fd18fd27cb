//! A salvaged or restored database: the owner and the chats concerned are told; damage found later brings a restart.
//!
//! Everything told is written in the commit that takes over from the process before, so it is told once.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use petasos_core::journal::Write;
use petasos_core::lifecycle::{From, How, Leave};
use petasos_core::message::Delivery;
use petasos_core::outbox::Draft;
use petasos_core::{Inbound, LaneId, Millis, Route};
use petasos_platforms::AdapterKind;
use petasos_store::{Cause, Error as StoreError, Loss, LossNotice, Salvage, Store, Tx};

use crate::background::notifications::Notifications;
use crate::clock;
use crate::lifecycle::Lifecycle;
use crate::lifecycle::startup::DATABASE;
use crate::links::channels::Channels;
use crate::storage::database::Db;

/// Between two salvages: damage found so soon again comes from the disk, and a restart at once would not help.
const PAUSE: Duration = Duration::from_secs(600);
/// Characters of a message that are quoted.
const QUOTED: usize = 80;
/// Messages of one chat that are quoted.
const LISTED: usize = 5;
/// Losses that are listed in a chat.
const LOSSES: usize = 8;

/// Tells the owner and the chats concerned. Gives the lanes with something to send.
pub(crate) fn announce(
    tx: &Tx<'_>,
    channels: &Channels,
    homes: &[Route],
    notice: &LossNotice,
    now: Millis,
) -> Result<Vec<LaneId>, StoreError> {
    let unsure = notice.unsure.iter().map(|pending| &pending.inbound);
    let mut drafts = drafts(channels, unsure);
    let text = owner_text(notice, now);
    drafts.extend(homes.iter().map(|home| Draft::notice(home.clone(), text.clone())));
    write(tx, drafts, now)
}

/// Messages that are not run, because they may have been answered before the damage or the restore: one notice for each chat.
pub(crate) fn report<'a>(
    tx: &Tx<'_>,
    channels: &Channels,
    messages: impl IntoIterator<Item = &'a Inbound>,
    now: Millis,
) -> Result<Vec<LaneId>, StoreError> {
    write(tx, drafts(channels, messages), now)
}

fn write(tx: &Tx<'_>, drafts: Vec<Draft>, now: Millis) -> Result<Vec<LaneId>, StoreError> {
    let lanes = drafts.iter().map(|draft| draft.route.lane()).collect();
    let writes: Vec<Write> = drafts.into_iter().map(Write::Owe).collect();
    tx.apply(&writes, now)?;
    Ok(lanes)
}

fn drafts<'a>(channels: &Channels, messages: impl IntoIterator<Item = &'a Inbound>) -> Vec<Draft> {
    let mut by_lane: BTreeMap<LaneId, (Route, Vec<&Inbound>)> = BTreeMap::new();
    for inbound in messages {
        let route = channels.way_back(inbound);
        if route.delivery == Delivery::Push {
            by_lane.entry(route.lane()).or_insert_with(|| (route, Vec::new())).1.push(inbound);
        }
    }
    by_lane.into_values().map(|(route, messages)| Draft::notice(route, chat_text(&messages))).collect()
}

fn chat_text(messages: &[&Inbound]) -> String {
    let mut text = String::from(
        "⚠️ My database was damaged or restored from a backup. I may have answered these messages before, so I do not \
         answer them again. Send a message once more if you still need its answer:",
    );
    for inbound in messages.iter().take(LISTED) {
        let line: String = inbound.text.split_whitespace().collect::<Vec<_>>().join(" ");
        let quote: String = line.chars().take(QUOTED).collect();
        let cut = if line.chars().count() > QUOTED { "…" } else { "" };
        text.push_str(&format!("\n• {quote}{cut}"));
    }
    if messages.len() > LISTED {
        text.push_str(&format!("\n• and {} more", messages.len() - LISTED));
    }
    text
}

fn owner_text(notice: &LossNotice, now: Millis) -> String {
    let (mut text, end) = match &notice.cause {
        Cause::Salvaged(salvage) => (salvaged(salvage), format!("\nThe report is in {}", salvage.report)),
        Cause::Restored { made_at } => (restored(now.since(*made_at)), String::new()),
    };
    let unsure = notice.unsure.len();
    if unsure > 0 {
        text.push_str(&format!(
            "\nOpen messages that may have been answered: {unsure}; their chats were told."
        ));
    }
    text + &end
}

fn restored(age: Duration) -> String {
    format!(
        "⚠️ My database was restored from a backup that is {} min old. Everything that happened after it was made is \
         missing. Messages from before the restore that I do not know are reported in their chats, not answered, and \
         what was still to be sent is marked as a possible duplicate.",
        age.as_secs() / 60
    )
}

fn salvaged(salvage: &Salvage) -> String {
    let mut text = String::from(
        "⚠️ My database was damaged. I moved everything that could be read into a new one and go on with it.",
    );
    match salvage.losses.as_slice() {
        [] => text.push_str("\nNo rows were lost."),
        losses => {
            let lost: Vec<_> = losses.iter().take(LOSSES).map(Loss::words).collect();
            text.push_str(&format!("\nLost: {}", short(&lost.join("\n"))));
        }
    }
    if salvage.log_commits > 0 {
        text.push_str("\nThe last changes before the damage may be incomplete.");
    }
    if salvage.lost_cursors() {
        let kinds = AdapterKind::BUILT_IN.iter().filter(|kind| kind.backfills());
        let names: Vec<_> = kinds.map(|kind| kind.label()).collect();
        let names = names.join(" or ");
        text.push_str(&format!("\nMessages that arrived on {names} while I was down may be missing."));
    }
    text
}

/// A message has room for the beginning; the report has all of it.
fn short(text: &str) -> String {
    let most = text.floor_char_boundary(1500);
    if most < text.len() { format!("{}…", &text[..most]) } else { text.to_owned() }
}

/// Waits for damage that a read or a write shows, notes it, and starts anew: the start salvages.
pub(crate) async fn watch(lifecycle: Lifecycle, notifications: Notifications) {
    petasos_runtime::select! {
        () = lifecycle.stopper.stopped() => return,
        () = restart_when_damaged(&lifecycle, &notifications) => {}
    }
    lifecycle.stopper.stopped().await;
}

async fn restart_when_damaged(lifecycle: &Lifecycle, notifications: &Notifications) {
    let (db, home) = (&notifications.db, &notifications.home);
    let detail = db.damaged().await;
    let mut told = false;
    while let Some(pause) = pause(db, home, &detail).await {
        tracing::error!(
            detail,
            seconds = pause.as_secs(),
            "the database is damaged; check the disk; a restart after this time salvages it"
        );
        if !told {
            notifications.tell_owner(&again_text(pause)).await;
            told = true;
        }
        tokio::time::sleep(pause).await;
    }
    tracing::error!(detail, "the database is damaged; restarting to salvage it");
    let how = if lifecycle.lifetime.supervised { How::Service } else { How::Detached };
    lifecycle.gate.leave(Leave::Restart { how, from: From::Outside }, Some("the database is damaged".into()));
}

/// Notes the damage for the next start. `None`: a restart now salvages.
async fn pause(db: &Db, home: &Path, detail: &str) -> Option<Duration> {
    let (path, noted) = (home.join(DATABASE), detail.to_owned());
    let noted = petasos_runtime::blocking(move || Store::note_damage(&path, &noted)).await;
    if !matches!(noted, Ok(Ok(()))) {
        tracing::error!("cannot note the damage of the database for the next start");
        return Some(PAUSE);
    }
    // A failed read is damage, too: nothing shows that a restart comes too early.
    let last = db.read(|reader| reader.last_salvage()).await.ok().flatten()?;
    PAUSE.checked_sub(clock::now().since(last.at)).filter(|pause| !pause.is_zero())
}

fn again_text(pause: Duration) -> String {
    let minutes = pause.as_secs().div_ceil(60);
    format!(
        "⚠️ My database is damaged again. Please check the disk: it is probably failing. I cannot accept or answer \
         everything now; in {minutes} min I restart and repair the database once more. `petasos stop` and \
         `petasos doctor --repair` on my machine repair it earlier."
    )
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
