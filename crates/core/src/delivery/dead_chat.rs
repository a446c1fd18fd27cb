//! Dead chats: blocked, left or deleted.
//!
//! One refusal marks a chat. From then on, only one message a day is sent as a probe, until a message arrives from the
//! chat or a probe is delivered.

use alloc::string::String;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::message::Platform;
use crate::outbox::Item;
use crate::time::Millis;

pub const PROBE_EVERY: Duration = Duration::from_secs(24 * 3600);
pub const MAX_REASON_CHARS: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadChat {
    pub platform: Platform,
    pub chat_id: String,
    /// The platform's error text.
    pub reason: String,
    pub marked_at: Millis,
    pub probed_at: Option<Millis>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendPermission {
    Probe,
    /// The message is the current probe, whose outcome is pending.
    ProbePending,
    Blocked,
}

impl DeadChat {
    pub fn permission(&self, item: &Item, now: Millis) -> SendPermission {
        if item.tried_at.is_some_and(|tried| self.probed_at.is_some_and(|probed| tried >= probed)) {
            return SendPermission::ProbePending;
        }
        if self.probe_due(now) { SendPermission::Probe } else { SendPermission::Blocked }
    }

    /// An instant ahead is from before the clock was set back and is ignored.
    pub fn probe_due(&self, now: Millis) -> bool {
        let last = self.probed_at.unwrap_or(self.marked_at);
        last > now || now.since(last) >= PROBE_EVERY
    }

    /// The error of items that are given up.
    pub fn error_text(&self) -> String {
        alloc::format!(
            "dead_target: nothing is sent to this chat because it refused a message ({})",
            self.reason
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::OutboxId;
    use crate::message::{ChatType, Delivery, Route, Source};
    use crate::outbox::{Draft, Kind, Preview, State};

    const DAY: u64 = 24 * 3_600_000;

    fn item(tried_at: Option<u64>) -> Item {
        let platform = Platform::parse("telegram").unwrap();
        let route = Route::to_source(&Source::new(platform, ChatType::Dm, "7"), Delivery::Push);
        Item {
            id: OutboxId(1),
            draft: Draft {
                route,
                session_key: None,
                turn: None,
                kind: Kind::Notice,
                text: "x".into(),
                buttons: alloc::vec![],
            },
            state: State::Due,
            preview: Preview::None,
            sent: alloc::vec![],
            doubtful: false,
            attempts: 0,
            tried_at: tried_at.map(Millis),
            retired_keys: 0,
            not_before: Millis(0),
            created_at: Millis(0),
            last_error: None,
        }
    }

    fn dead(probed: Option<u64>) -> DeadChat {
        DeadChat {
            platform: Platform::parse("telegram").unwrap(),
            chat_id: "7".into(),
            reason: "blocked".into(),
            marked_at: Millis(DAY),
            probed_at: probed.map(Millis),
        }
    }

    #[track_caller]
    fn check(probed: Option<u64>, tried: Option<u64>, now: u64, want: SendPermission) {
        assert_eq!(dead(probed).permission(&item(tried), Millis(now)), want);
    }

    #[test]
    fn error_text_contains_the_refusal() {
        let text = dead(None).error_text();
        assert!(text.starts_with("dead_target:") && text.contains("blocked"), "{text}");
    }

    #[test]
    fn permits_one_probe_a_day() {
        check(None, None, DAY, SendPermission::Blocked);
        check(None, None, DAY + 1, SendPermission::Blocked);
        check(None, None, 2 * DAY, SendPermission::Probe);
        check(Some(2 * DAY), None, 3 * DAY - 1, SendPermission::Blocked);
        check(Some(2 * DAY), None, 3 * DAY, SendPermission::Probe);
    }

    #[test]
    fn keeps_retrying_a_pending_probe() {
        check(Some(2 * DAY), Some(2 * DAY), 2 * DAY + 5, SendPermission::ProbePending);
        check(Some(2 * DAY), Some(DAY), 2 * DAY + 5, SendPermission::Blocked);
        check(None, Some(DAY + 1), DAY + 2, SendPermission::Blocked);
    }

    #[test]
    fn permits_a_probe_after_the_clock_was_set_back() {
        check(None, None, 5, SendPermission::Probe);
    }
}
