//! Access to the agent: pairing, command permissions.

use petasos_core::Platform;

pub(crate) const PAIRING_CLOSED: &str =
    "🔒 Pairing is locked because too many wrong codes were entered. Please try again in an hour.";

const NAME_AN_ADMINISTRATOR: &str =
    "The owner names administrators with `allow_admin_from`, in groups with `group_allow_admin_from`.";

/// The first answer to an unknown sender.
pub(crate) fn pairing_offer(platform: Platform, code: &str) -> String {
    format!(
        "👋 I do not know you yet. If this is your agent, approve this chat on the machine where it runs:\n\n\
         petasos pairing approve {platform} {code}\n\nThe code is valid for one hour."
    )
}

pub(crate) fn command_not_allowed(command: &str) -> String {
    format!("🚫 You may not use /{command} here. Send /whoami to see what you may use.")
}

pub(crate) fn only_admin_may_approve_lastingly() -> String {
    format!(
        "🚫 Only an administrator may allow commands for longer than once. The request is still open: /approve allows the \
         command once, /deny refuses it. {NAME_AN_ADMINISTRATOR}"
    )
}

pub(crate) fn only_admin_may_switch_questions_off() -> String {
    format!("🚫 Only an administrator may switch approval requests off. {NAME_AN_ADMINISTRATOR}")
}
