//! Sessions: resets, restarts, messages that were given up.

pub(crate) const GIVEN_UP: &str = "⚠️ I could not handle this message, because the data stored for it cannot be used. Please send it again. The owner finds the message with `petasos links unreadable`.";

/// Key phrase: "Gateway restarted successfully".
pub(crate) const RESTARTED: &str = "✅ Gateway restarted successfully.";
/// Key phrase: "Gateway online".
pub(crate) const ONLINE: &str = "✅ Gateway online.";

/// Key phrases: "Session automatically reset (<reason>)", "/resume".
pub(crate) fn reset(reason: &str) -> String {
    format!(
        "◐ Session automatically reset ({reason}). Your earlier conversation is saved: /resume brings it back."
    )
}

pub(crate) fn archived(id: &str) -> String {
    format!(
        "◐ This is a new conversation. The earlier one in this chat was archived because it had not been used for a long time. To \
         bring it back, run `petasos sessions restore {id}` on my machine and then send /resume."
    )
}
