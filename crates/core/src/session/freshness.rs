//! Whether an interruption is recent enough to be continued.

use core::time::Duration;

use super::entry::{Entry, ResumeReason};
use super::local::LocalTime;
use crate::time::Millis;
use crate::transcript::{Message, Role};

/// How long an interruption stays fresh. Zero: for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window(pub Duration);

impl Default for Window {
    fn default() -> Self {
        Self(Duration::from_secs(3600))
    }
}

impl Window {
    /// As configured: nothing or less means for ever.
    pub fn from_seconds(seconds: i64) -> Self {
        Self(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
    }

    /// Whether something of this age is fresh. An unknown age is; so is one of exactly the window.
    pub fn holds(self, age: Option<Duration>) -> bool {
        self.0.is_zero() || age.is_none_or(|age| age <= self.0)
    }
}

/// A time as other programs write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timestamp {
    Unix(Millis),
    Local(LocalTime),
}

impl Timestamp {
    /// A local ISO time, or seconds or milliseconds since the epoch. `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(local) = LocalTime::parse(text) {
            return Some(Self::Local(local));
        }
        text.trim().parse().ok().and_then(Self::from_number)
    }

    /// Numbers above ten thousand million are milliseconds, others seconds.
    pub fn from_number(number: f64) -> Option<Self> {
        if !number.is_finite() || number < 0.0 {
            return None;
        }
        let millis = if number > 1e10 { number } else { number * 1000.0 };
        // Beyond the range of u64 the cast saturates: far in the future, and so fresh.
        Some(Self::Unix(Millis(millis as u64)))
    }
}

/// Who is on the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// A person, who can be asked what to do next.
    Interactive,
    /// A program (webhook, API): nobody answers.
    Machine,
}

/// What a turn that is about to start has to know about the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interruption<'a> {
    pub pending: bool,
    pub reason: Option<&'a ResumeReason>,
    pub mark_fresh: bool,
    pub transcript_fresh: bool,
    /// Whose row ends the transcript.
    pub tail: Option<Role>,
}

impl<'a> Interruption<'a> {
    /// `now` and `local` are the same instant on the two clocks.
    pub fn of(entry: &'a Entry, history: &[Message], window: Window, now: Millis, local: LocalTime) -> Self {
        let last = last_row(history);
        Self {
            pending: entry.resume_pending,
            reason: entry.resume_reason.as_ref(),
            mark_fresh: window.holds(entry.last_resume_marked_at.map(|at| local.since(at))),
            transcript_fresh: window.holds(last.map(|row| now.since(row.at))),
            tail: last.map(|row| row.role),
        }
    }
}

/// When a conversation last moved. Notices do not count: nobody said them.
pub fn last_activity(history: &[Message]) -> Option<Millis> {
    last_row(history).map(|row| row.at)
}

fn last_row(history: &[Message]) -> Option<&Message> {
    history.iter().rev().find(|row| row.role != Role::Notice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_window_is_fresh_and_so_is_the_unknown() {
        let window = Window::from_seconds(60);
        for (seconds, want) in [(0, true), (60, true), (61, false)] {
            assert_eq!(window.holds(Some(Duration::from_secs(seconds))), want, "{seconds}");
        }
        assert!(window.holds(None));
    }

    #[test]
    fn no_window_means_always_fresh() {
        for seconds in [0, -1] {
            assert!(Window::from_seconds(seconds).holds(Some(Duration::MAX)));
        }
        assert_eq!(Window::default(), Window::from_seconds(3600));
    }

    #[test]
    fn timestamps_are_read_in_all_their_forms() {
        let unix = |millis| Some(Timestamp::Unix(Millis(millis)));
        for (text, want) in [
            ("1794766325", unix(1_794_766_325_000)),
            ("1794766325.5", unix(1_794_766_325_500)),
            ("1794766325000", unix(1_794_766_325_000)),
            ("0", unix(0)),
            ("10000000000", unix(10_000_000_000_000)),
            ("10000000001", unix(10_000_000_001)),
            ("2026-11-15T18:12:05", LocalTime::parse("2026-11-15T18:12:05").map(Timestamp::Local)),
            ("yesterday", None),
            ("NaN", None),
            ("-5", None),
            ("", None),
        ] {
            assert_eq!(Timestamp::parse(text), want, "{text:?}");
        }
    }

    #[test]
    fn notices_do_not_count_as_activity() {
        let history = [Message::user("hi", Millis(5)), Message::notice("draining", Millis(9))];
        assert_eq!(last_activity(&history), Some(Millis(5)));
        assert_eq!(last_activity(&history[1..]), None);
    }
}
