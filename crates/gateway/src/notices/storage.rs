//! Disk space, retention, and damaged or restored databases.

use super::count;

pub(crate) const SALVAGED: &str = "⚠️ My database was damaged. I have moved everything that could be read into a new one and continue with it.";
pub(crate) const NO_ROWS_LOST: &str = "\nNo rows were lost.";
pub(crate) const LAST_CHANGES_INCOMPLETE: &str = "\nThe last changes before the damage may be incomplete.";
pub(crate) const POSSIBLY_ANSWERED: &str = "⚠️ My database was damaged or restored from a backup. I may already have answered these messages, so I will not answer them again. Please send a message again if you still need its answer:";

const MAKE_ROOM: &str = "Please make room: when the disk is full, I cannot accept messages.";

pub(crate) fn warning(text: &str) -> String {
    format!("⚠️ {text}")
}

pub(crate) fn disk_nearly_full(free_mb: u64) -> String {
    format!("The disk is nearly full: {free_mb} MB are free. {MAKE_ROOM}")
}

pub(crate) fn disk_filling_up(free_mb: u64, percent: u64) -> String {
    format!("The disk is filling up: {free_mb} MB ({percent} %) are free. {MAKE_ROOM}")
}

pub(crate) fn disk_full_in(days: u64, daily_mb: u64, free_mb: u64) -> String {
    let time = count(usize::try_from(days).unwrap_or(usize::MAX), "day");
    format!(
        "The disk will be full in about {time}: the database grows by {daily_mb} MB a day, {free_mb} MB are free. {MAKE_ROOM}"
    )
}

pub(crate) fn database_too_large(used_mb: u64) -> String {
    format!(
        "The database holds {used_mb} MB, more than `retention.max_database_mb`, and no conversation is old enough to be archived or \
         deleted. Raise the limit, or end conversations with /new."
    )
}

pub(crate) fn archiving_announced(day: &str) -> String {
    format!(
        "🗄 From {day} on, old unused conversations will be archived. `petasos sessions archive` lists them and `petasos sessions \
         restore` brings one back. To keep all of them, set `retention.mode: keep`."
    )
}

pub(crate) fn deletion_announced(day: &str) -> String {
    format!(
        "🗄 From {day} on, old unused conversations will be deleted. To keep all of them, set `retention.mode: keep`."
    )
}

pub(crate) fn quoted_message(start: &str, cut: bool) -> String {
    let more = if cut { "…" } else { "" };
    format!("\n• {start}{more}")
}

pub(crate) fn more_messages(number: usize) -> String {
    format!("\n• and {number} more")
}

pub(crate) fn restored(minutes: u64) -> String {
    format!(
        "⚠️ My database was restored from a backup that is {minutes} min old. Everything that happened after the backup is missing. I \
         will not answer messages from before the restore that I do not know; their chats are notified. Messages that were still to be \
         sent are marked as possible duplicates."
    )
}

pub(crate) fn possibly_answered(messages: usize) -> String {
    format!("\nOpen messages that may have been answered: {messages}. Their chats are notified.")
}

pub(crate) fn report(path: &str) -> String {
    format!("\nThe report is in {path}")
}

pub(crate) fn lost(losses: &str) -> String {
    format!("\nLost: {losses}")
}

pub(crate) fn messages_may_be_missing(platforms: &str) -> String {
    format!("\nMessages that arrived on {platforms} while I was down may be missing.")
}

pub(crate) fn damaged_again(minutes: u64) -> String {
    format!(
        "⚠️ My database is damaged again. Please check the disk: it is probably failing. Until I restart and repair the database in \
         {minutes} min, I may not accept or answer every message. To repair it earlier, run `petasos stop` and `petasos doctor \
         --repair` on my machine."
    )
}
