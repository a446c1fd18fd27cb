//! Texts for people that the decisions of this crate carry, one constant or function per text.
//!
//! The other texts of the gateway are in `petasos_gateway`, module `notices`. The comments quote the key phrases that other programs
//! and the specification rely on; keep them when you change or translate a text.

use alloc::format;
use alloc::string::String;
use core::time::Duration;

// Admission of a message.

pub const QUEUE_FULL: &str = "🚫 Too many messages are waiting here, so this one was not accepted. Please wait for an answer, or send /stop.";
/// Key phrases: "draining", "maintenance", "resend".
pub const DRAINING: &str = "🚧 The gateway is draining for maintenance, so I have not started on this. Please resend it in a few minutes.";
/// Key phrase: "Gateway is restarting and is not accepting new work right now".
pub const RESTARTING: &str =
    "🔄 Gateway is restarting and is not accepting new work right now. Please resend it in a minute.";
/// Key phrase: "Gateway is shutting down and is not accepting new work right now".
pub const SHUTTING_DOWN: &str = "⏹ Gateway is shutting down and is not accepting new work right now. Please resend it when the gateway is running again.";
/// Key phrase: "is not accepting another turn right now".
pub const BUSY_SHUTTING_DOWN: &str =
    "⏹ The gateway is shutting down and is not accepting another turn right now. Please resend this later.";

/// Key phrase: "Queued for the next turn".
pub const QUEUED: &str = "⏳ Queued for the next turn.";
/// Key phrase: "Interrupting current task".
pub const INTERRUPTING: &str = "⚡ Interrupting current task for your new message.";
/// Key phrase: "Steered into current run".
pub const STEERED: &str = "↪️ Steered into current run.";
pub const HELD: &str = "🚧 The gateway is draining for maintenance: your message is held, and I will start on it when the maintenance is over.";
/// Key phrase: "Gateway restarting — queued for the next turn after it comes back".
pub const AFTER_RESTART: &str = "🔄 Gateway restarting — queued for the next turn after it comes back.";

/// Key phrase: "at the active session limit (n/m)".
pub fn at_capacity(running: impl core::fmt::Display, cap: impl core::fmt::Display) -> String {
    format!(
        "🚦 I am at the active session limit ({running}/{cap}), so I have not started on this. Please resend it in a few minutes."
    )
}

// Shutdown banners.

/// Key phrases: "Gateway restarting", "interrupted", "try to resume".
pub const RESTART_BANNER: &str =
    "🔄 Gateway restarting. My work here may be interrupted. After the restart I will try to resume it.";
/// Key phrases: "Gateway shutting down", "interrupted".
pub const SHUTDOWN_BANNER: &str = "⏹ Gateway shutting down. My work here may be interrupted.";

// Interrupted turns.

pub const STUCK: &str = "⚠️ I could not finish this. This conversation was interrupted several times in a row, so I have stopped trying. Your next message starts a new session. Please send your message again if you still need an answer.";
pub const STALE: &str = "⚠️ I was interrupted before I could answer this, and that was too long ago to continue without asking. Please send it again if you still need an answer.";

pub fn gave_up(interruptions: u32) -> String {
    format!(
        "⚠️ I could not finish this: the gateway was interrupted {interruptions} times while working on it, so I have stopped trying. \
         Other messages are not affected."
    )
}

/// Behind a notice about a message that was given up.
pub fn retry_options(notice: &str, id: impl core::fmt::Display) -> String {
    format!(
        "{notice}\n\nSend /retry {id} to try again, /retry {id} <new text> to try with other words, or /drop {id} to drop the message."
    )
}

pub const RETRY_BUTTON: &str = "Try again";
pub const DROP_BUTTON: &str = "Drop";

/// Names no time of day, which the next restart would make wrong.
pub fn held_after_crashes(wait: Duration) -> String {
    let wait = match wait.as_secs() {
        0 | 1 => String::from("1 second"),
        seconds => format!("{seconds} seconds"),
    };
    format!(
        "⏸ Your message is kept. The gateway was restarted several times while working on it. It will continue by itself once the \
         gateway has run for about {wait} without another restart. You need not do anything; /stop drops the message."
    )
}

// Turns that end without a full answer.

/// The stored answer of a turn that was stopped before its first word.
pub const STOPPED_BEFORE_ANSWER: &str = "(stopped before an answer)";
/// Behind the visible part of an answer that was stopped.
pub const STOPPED_SUFFIX: &str = "\n\n(stopped)";

pub const NOTHING_TO_SAY: &str = "I have no answer to that. Please put it differently.";
pub const STEP_LIMIT: &str = "(I have stopped here: the number of steps allowed for one message is used up. Say “go on” and I will continue from what has been done so far.)";
pub const LOOP_DETECTED: &str = "(I have stopped here: I was repeating myself. Tell me how to go on.)";
pub const UNKNOWN_TOOLS: &str =
    "(I have stopped here: I kept asking for tools that I do not have. Please put it differently.)";
