//! Whether an interruption is recent enough to be resumed.

use core::time::Duration;

use super::entry::{Entry, ResumeReason};
use super::local::LocalTime;
use crate::time::Millis;
use crate::transcript::{Message, Role};

/// How long an interruption stays fresh. Zero: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreshnessWindow(pub Duration);

impl Default for FreshnessWindow {
    fn default() -> Self {
        Self(Duration::from_secs(3600))
    }
}

impl FreshnessWindow {
    /// Zero or less: no limit.
    pub fn from_seconds(seconds: i64) -> Self {
        Self(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
    }

    /// Whether an age lies in the window, bounds included. An unknown age does.
    pub fn contains(self, age: Option<Duration>) -> bool {
        self.0.is_zero() || age.is_none_or(|age| age <= self.0)
    }
}

/// A time in files of other programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timestamp {
    Unix(Millis),
    Local(LocalTime),
}

impl Timestamp {
    /// Parses a local ISO time, or seconds or milliseconds since the epoch.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(local) = LocalTime::parse(text) {
            return Some(Self::Local(local));
        }
        text.trim().parse().ok().and_then(Self::from_number)
    }

    /// Numbers above 10^10 are milliseconds, others seconds.
    pub fn from_number(number: f64) -> Option<Self> {
        if !number.is_finite() || number < 0.0 {
            return None;
        }
        let millis = if number > 1e10 { number } else { number * 1000.0 };
        // The cast saturates: far in the future, hence fresh.
        Some(Self::Unix(Millis(millis as u64)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReaderKind {
    /// A person, who can be asked what to do next.
    Interactive,
    /// A program (webhook, API), which cannot be asked.
    Machine,
}

/// The state of the previous turn at the start of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interruption<'a> {
    pub pending: bool,
    pub reason: Option<&'a ResumeReason>,
    pub mark_fresh: bool,
    pub transcript_fresh: bool,
    pub tail: Option<Role>,
}

impl<'a> Interruption<'a> {
    /// `now` and `local` are the same instant on the two clocks.
    pub fn of(
        entry: &'a Entry,
        history: &[Message],
        window: FreshnessWindow,
        now: Millis,
        local: LocalTime,
    ) -> Self {
        let last = last_row(history);
        Self {
            pending: entry.resume_pending,
            reason: entry.resume_reason.as_ref(),
            mark_fresh: window.contains(entry.last_resume_marked_at.map(|at| local.since(at))),
            transcript_fresh: window.contains(last.map(|row| now.since(row.at))),
            tail: last.map(|row| row.role),
        }
    }
}

/// The time of the last row that is not a notice.
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
    fn contains_its_bound_and_unknown_ages() {
        let window = FreshnessWindow::from_seconds(60);
        for (seconds, want) in [(0, true), (60, true), (61, false)] {
            assert_eq!(window.contains(Some(Duration::from_secs(seconds))), want, "{seconds}");
        }
        assert!(window.contains(None));
    }

    #[test]
    fn contains_every_age_without_a_limit() {
        for seconds in [0, -1] {
            assert!(FreshnessWindow::from_seconds(seconds).contains(Some(Duration::MAX)));
        }
        assert_eq!(FreshnessWindow::default(), FreshnessWindow::from_seconds(3600));
    }

    #[test]
    fn parses_all_timestamp_forms() {
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
    fn ignores_notices_as_activity() {
        let history = [Message::user("hi", Millis(5)), Message::notice("draining", Millis(9))];
        assert_eq!(last_activity(&history), Some(Millis(5)));
        assert_eq!(last_activity(&history[1..]), None);
    }
}
