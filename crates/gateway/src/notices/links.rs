//! State and outages of platform connections.

use std::fmt::Display;

use super::count;

/// The state of one link in `/platform`, without addresses and other details that are not for a chat.
pub(crate) mod state {
    use super::{Display, count};

    pub(crate) const NEVER_HEARD: &str = "nothing received yet";

    pub(crate) fn heard(seconds: u64) -> String {
        format!("last received {seconds} s ago")
    }

    pub(crate) fn connecting(heard: &str) -> String {
        format!("connecting, {heard}")
    }

    pub(crate) fn cannot_connect(code: &str, heard: &str) -> String {
        format!("cannot connect ({code}), {heard}")
    }

    pub(crate) fn connected(heard: &str, problem: Option<&str>, seconds_behind: Option<u64>) -> String {
        let problem = problem.map(|code| format!(", has a problem ({code})")).unwrap_or_default();
        let behind = seconds_behind.map(|seconds| format!(", {seconds} s behind")).unwrap_or_default();
        format!("connected, {heard}{problem}{behind}")
    }

    pub(crate) fn without(part: &str, code: &str) -> String {
        format!(", without {part} ({code})")
    }

    pub(crate) fn waiting(
        slow: bool,
        failure: impl Display,
        seconds: u64,
        attempts: u32,
        heard: &str,
    ) -> String {
        let failed = count(usize::try_from(attempts).unwrap_or(usize::MAX), "failed attempt");
        let state = if slow { "down (slow retries)" } else { "down" };
        format!("{state} ({failure}), next try in {seconds} s, {failed}, {heard}")
    }

    pub(crate) fn fatal(failure: impl Display, heard: &str) -> String {
        format!("stopped ({failure}), {heard}; the owner must correct this")
    }

    pub(crate) fn paused(heard: &str) -> String {
        format!("paused, {heard}")
    }
}

pub(crate) fn outage(platform: &str, minutes: u64) -> String {
    format!(
        "📡 {platform} has been down for {minutes} min. I keep trying. On my machine, `petasos links` shows the reason."
    )
}

pub(crate) fn recovered(platform: &str, minutes: u64) -> String {
    format!(
        "📡 {platform} is back after {minutes} min. I am now answering the messages that arrived meanwhile."
    )
}
