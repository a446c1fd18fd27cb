//! The running turn: failures, stalls, compaction.

use std::fmt::Display;
use std::time::Duration;

pub(crate) const PANICKED: &str = "⚠️ Something went wrong inside the gateway while I was answering. Your message is saved. Send /retry to try again.";

/// Behind an answer whose end is missing.
pub(crate) const CUT_OFF: &str = "\n\n(The answer was cut off here. Say “go on” and I will continue.)";

pub(crate) const TOO_LONG: &str = "⚠️ This conversation has become too long for the model, and automatic summaries are switched off. Send /new to start a new one or /undo to drop the last exchanges. The owner can switch summaries on with compression.enabled.";

pub(crate) const MESSAGE_TOO_LONG: &str =
    "⚠️ Your message is too long for the model. Please send it in several shorter messages.";

pub(crate) const STARTED_FRESH: &str = "⚠️ This conversation has become too long for the model and could not be summarised any further, so I have started a new session. Please send your last message again. /resume brings the old conversation back.";

pub(crate) const NOTHING_TO_SUMMARISE: &str = "There is nothing here to summarise yet.";

pub(crate) const SUMMARY_STOPPED: &str =
    "⏹ I have stopped summarising the conversation. Nothing was changed.";

pub(crate) const WAITING_FOR_MODEL: &str = "waiting for the model";

pub(crate) fn conversation_unreadable(error: impl Display) -> String {
    format!(
        "⚠️ I could not read our conversation ({error}). Your message is saved. Send /retry to try again."
    )
}

pub(crate) fn failed(reason: impl Display) -> String {
    format!("⚠️ {reason}")
}

pub(crate) fn summarised(before: usize, after: usize) -> String {
    format!(
        "🗜 I have summarised the older messages: about {before} tokens are now {after}. The full conversation is still on disk."
    )
}

pub(crate) fn tool_outputs_removed(before: usize, after: usize) -> String {
    format!(
        "🗜 I have removed old tool outputs: about {before} tokens are now {after}. The full conversation is still on disk."
    )
}

pub(crate) fn waiting_for_tools(names: &[&str]) -> String {
    format!("waiting for {}", names.join(", "))
}

/// `stop`: when the turn will be aborted.
pub(crate) fn stall_warning(silence: Duration, activity: &str, stop: Option<Duration>) -> String {
    let next = stop.map(|stop| format!(" If this continues, I will stop after {}.", duration(stop)));
    format!("⚠️ Nothing has happened for {} ({activity}).{}", duration(silence), next.unwrap_or_default())
}

pub(crate) fn stalled(silence: Duration, activity: &str) -> String {
    format!(
        "⏱ I have stopped: nothing has happened for {} ({activity}). The work so far is saved. Send /retry to try again or /new to \
         start over. The owner sets this limit with agent.gateway_timeout.",
        duration(silence)
    )
}

fn duration(time: Duration) -> String {
    match time.as_secs() {
        1 => "1 second".to_owned(),
        seconds @ 0..120 => format!("{seconds} seconds"),
        seconds => format!("{} minutes", seconds / 60),
    }
}
