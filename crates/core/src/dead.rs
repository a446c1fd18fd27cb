//! Chats that take nothing from us: blocked, removed, deleted.
//!
//! One refusal is enough to know. From then on nothing is sent there, except one message a day as a probe, until
//! somebody writes from there or the probe arrives.

use alloc::string::String;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::message::Platform;
use crate::outbox::Item;
use crate::time::Millis;

/// How often something is sent nevertheless.
pub const PROBE_EVERY: Duration = Duration::from_secs(24 * 3600);
/// Characters kept of the platform's words.
pub const LONGEST_REASON: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadChat {
    pub platform: Platform,
    pub chat_id: String,
    /// What the platform said.
    pub reason: String,
    pub marked_at: Millis,
    pub probed_at: Option<Millis>,
}

/// Whether a message may go there nevertheless.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    /// As the next probe.
    Probe,
    /// It is the probe, and has not had its answer yet.
    UnderWay,
    Barred,
}

impl DeadChat {
    pub fn passage(&self, item: &Item, now: Millis) -> Passage {
        if item.tried_at.is_some_and(|tried| self.probed_at.is_some_and(|probed| tried >= probed)) {
            return Passage::UnderWay;
        }
        if self.probe_due(now) { Passage::Probe } else { Passage::Barred }
    }

    /// An instant that lies ahead is from before the clock was set back, and tells nothing.
    pub fn probe_due(&self, now: Millis) -> bool {
        let last = self.probed_at.unwrap_or(self.marked_at);
        last > now || now.since(last) >= PROBE_EVERY
    }

    /// Why a message to it is given up.
    pub fn words(&self) -> String {
        alloc::format!("dead_target: nothing is sent to this chat since it refused ({})", self.reason)
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
        let route = Route::back_to(&Source::new(platform, ChatType::Dm, "7"), Delivery::Push);
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
            spent: 0,
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
    fn check(probed: Option<u64>, tried: Option<u64>, now: u64, want: Passage) {
        assert_eq!(dead(probed).passage(&item(tried), Millis(now)), want);
    }

    #[test]
    fn the_error_of_an_item_names_the_refusal() {
        let words = dead(None).words();
        assert!(words.starts_with("dead_target:") && words.contains("blocked"), "{words}");
    }

    #[test]
    fn one_message_a_day_may_try() {
        check(None, None, DAY, Passage::Barred);
        check(None, None, DAY + 1, Passage::Barred);
        check(None, None, 2 * DAY, Passage::Probe);
        check(Some(2 * DAY), None, 3 * DAY - 1, Passage::Barred);
        check(Some(2 * DAY), None, 3 * DAY, Passage::Probe);
    }

    #[test]
    fn a_probe_that_met_a_bad_network_is_tried_again() {
        check(Some(2 * DAY), Some(2 * DAY), 2 * DAY + 5, Passage::UnderWay);
        check(Some(2 * DAY), Some(DAY), 2 * DAY + 5, Passage::Barred);
        check(None, Some(DAY + 1), DAY + 2, Passage::Barred);
    }

    #[test]
    fn a_clock_set_back_does_not_silence_a_chat() {
        check(None, None, 5, Passage::Probe);
    }
}
