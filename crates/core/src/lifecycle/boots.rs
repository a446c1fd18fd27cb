//! The breaker of restart loops: whether interrupted sessions may be resumed without being asked.
//!
//! A session whose resumption brings the process down would do so again at each start. Starts that found something to
//! resume are therefore remembered in `gateway/restart_loop.json`; after too many of them the sessions stay
//! as they are and wait for their users. Too many within the window is a fast loop. A slow one never fills the
//! window, so a chain of starts with short gaps counts just the same.

use alloc::vec::Vec;
use core::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::marker::stamp;
use crate::time::Millis;

/// The longest pause between two starts of one chain.
const GAP: Duration = Duration::from_secs(300);
const KEPT: usize = 20;

/// Zero in either field: no breaker. More restarts than are remembered cannot be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard {
    pub max_restarts: usize,
    pub window: Duration,
}

impl Default for Guard {
    fn default() -> Self {
        Self { max_restarts: 3, window: Duration::from_secs(60) }
    }
}

/// Starts that had something to resume, oldest first. On the wire `{"boots":[1000.0,1010.0]}`, in seconds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Boots(Vec<Millis>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resume {
    Allowed,
    /// This is the `boots`th start in a row.
    Skipped {
        boots: usize,
    },
}

impl Guard {
    pub fn is_on(self) -> bool {
        self.max_restarts > 0 && !self.window.is_zero()
    }
}

impl Boots {
    /// Never fails: what is no number is skipped, what is no list is empty.
    pub fn parse(bytes: &[u8]) -> Self {
        let file: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let boots = file.get("boots").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut boots: Vec<Millis> =
            boots.iter().filter_map(Value::as_f64).map(stamp::from_seconds).collect();
        boots.sort_unstable();
        Self(boots)
    }

    /// Adds this start, forgets those that matter no longer, and decides.
    pub fn record(&mut self, guard: Guard, now: Millis) -> Resume {
        if !guard.is_on() {
            return Resume::Allowed;
        }
        // A clock that was set back leaves starts that lie ahead; they tell nothing.
        self.0.retain(|boot| *boot <= now);
        self.0.push(now);
        let recent = self.0.iter().filter(|boot| now.since(**boot) <= guard.window).count();
        let in_a_row = recent.max(self.chain());
        self.0.drain(..self.0.len().saturating_sub(in_a_row.min(KEPT)));
        if in_a_row >= guard.max_restarts.min(KEPT) {
            return Resume::Skipped { boots: in_a_row };
        }
        Resume::Allowed
    }

    /// How many of the latest starts followed each other closely.
    fn chain(&self) -> usize {
        let close = self.0.windows(2).rev().take_while(|pair| pair[1].since(pair[0]) <= GAP);
        self.0.len().min(1 + close.count())
    }
}

impl Serialize for Boots {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct File {
            boots: Vec<f64>,
        }
        File { boots: self.0.iter().map(|boot| stamp::seconds(*boot)).collect() }.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use proptest::prelude::*;

    use super::*;

    const ALLOWED: Resume = Resume::Allowed;

    fn skipped(boots: usize) -> Resume {
        Resume::Skipped { boots }
    }

    /// Starts at these seconds, one after the other, each reading what the one before wrote.
    fn starts(guard: Guard, seconds: &[u64]) -> Vec<Resume> {
        let mut file = Vec::new();
        let start = |second: &u64| {
            let mut boots = Boots::parse(&file);
            let resume = boots.record(guard, Millis(second * 1000));
            file = serde_json::to_vec(&boots).unwrap();
            resume
        };
        seconds.iter().map(start).collect()
    }

    #[test]
    fn the_third_start_within_a_minute_resumes_nothing() {
        assert_eq!(starts(Guard::default(), &[1000, 1010, 1020]), [ALLOWED, ALLOWED, skipped(3)]);
    }

    #[test]
    fn a_slow_loop_is_a_loop_as_long_as_its_gaps_are_short() {
        assert_eq!(
            starts(Guard::default(), &[1000, 1300, 1600, 1901]),
            [ALLOWED, ALLOWED, skipped(3), ALLOWED]
        );
        assert_eq!(starts(Guard::default(), &[1000, 1150, 1451, 1600]), [ALLOWED; 4]);
    }

    #[test]
    fn a_wide_window_counts_what_is_in_it_whatever_the_gaps() {
        let guard = Guard { max_restarts: 3, window: Duration::from_secs(3600) };
        assert_eq!(starts(guard, &[0, 1000, 2000]), [ALLOWED, ALLOWED, skipped(3)]);
        assert_eq!(starts(guard, &[0, 1000, 3601, 9000]), [ALLOWED; 4]);
    }

    #[test]
    fn zero_switches_it_off_and_one_resumes_never() {
        for guard in [
            Guard { max_restarts: 0, ..Guard::default() },
            Guard { window: Duration::ZERO, ..Guard::default() },
        ] {
            assert_eq!(starts(guard, &[1, 2, 3, 4]), [ALLOWED; 4]);
        }
        assert_eq!(starts(Guard { max_restarts: 1, ..Guard::default() }, &[1]), [skipped(1)]);
    }

    #[test]
    fn a_clock_set_back_forgets_the_starts_that_lie_ahead() {
        assert_eq!(starts(Guard::default(), &[5000, 5001, 100]), [ALLOWED; 3]);
    }

    #[test]
    fn twenty_starts_are_remembered_and_more_cannot_be_asked_for() {
        let guard = Guard { max_restarts: 1000, ..Guard::default() };
        let seconds: Vec<u64> = (0..50).collect();
        let resumes = starts(guard, &seconds);
        assert!(resumes[..19].iter().all(|resume| *resume == ALLOWED));
        assert!(resumes[19..].iter().all(|resume| *resume != ALLOWED));
        let mut boots = Boots::parse(format!(r#"{{"boots":{seconds:?}}}"#).as_bytes());
        boots.record(guard, Millis(60_000));
        assert_eq!(boots.0.len(), KEPT);
    }

    #[test]
    fn junk_is_no_start() {
        for (text, want) in [
            ("", "[]"),
            ("{", "[]"),
            ("[1]", "[]"),
            ("null", "[]"),
            (r#"{"boots":7}"#, "[]"),
            (r#"{"boots":{"a":1}}"#, "[]"),
            (r#"{"boots":[null,"1",true,[2],1010.5,1e999,1000]}"#, "[]"),
            (r#"{"boots":[null,"1",true,[2],1010.5,1000]}"#, "[1000.0,1010.5]"),
        ] {
            let read = serde_json::to_string(&Boots::parse(text.as_bytes())).unwrap();
            assert_eq!(read, format!(r#"{{"boots":{want}}}"#), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_and_no_numbers_make_it_panic(bytes: Vec<u8>, boots: Vec<f64>, now: u64) {
            Boots::parse(&bytes).record(Guard::default(), Millis(now));
            let text = format!(r#"{{"boots":{boots:?}}}"#);
            let mut boots = Boots::parse(text.as_bytes());
            boots.record(Guard::default(), Millis(now));
            prop_assert!(boots.0.len() <= KEPT);
        }
    }
}
