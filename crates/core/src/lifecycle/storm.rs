//! Respawn storms: how long suspects wait when a supervisor has started the gateway too often of late.
//!
//! The ledger `gateway-starts.log` has one start per line, in seconds since the epoch. Each start adds its own; the more
//! there are within the window, the longer turns that were executing when the process died wait. Accepting,
//! acknowledging, notifying and all other turns are never delayed.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use core::time::Duration;

use super::marker::stamp;
use crate::time::Millis;

const KEPT: usize = 40;
const FIRST_WAIT: u64 = 5;
const MOST_DOUBLINGS: usize = 6;
const LONGEST_WAIT: u64 = 30;

/// Zero in either field: suspects do not wait. More starts than are remembered cannot be allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard {
    pub max_starts: usize,
    pub window: Duration,
}

impl Default for Guard {
    fn default() -> Self {
        Self { max_starts: 5, window: Duration::from_secs(120) }
    }
}

/// The ledger, in the order it was written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Starts(Vec<Millis>);

impl Starts {
    /// Never fails: a line that is no number is skipped.
    pub fn parse(bytes: &[u8]) -> Self {
        let number = |line: &[u8]| core::str::from_utf8(line).ok()?.trim().parse::<f64>().ok();
        let lines = bytes.split(|byte| *byte == b'\n').filter_map(number);
        Self(lines.filter(|second| second.is_finite()).map(stamp::from_seconds).collect())
    }

    /// Adds this start and returns how long its suspects wait. `None`: not at all.
    pub fn record(&mut self, guard: Guard, now: Millis) -> Option<Duration> {
        self.0.push(now);
        self.0.drain(..self.0.len().saturating_sub(KEPT));
        if guard.max_starts == 0 || guard.window.is_zero() {
            return None;
        }
        let within = |start: &&Millis| **start <= now && now.since(**start) <= guard.window;
        let starts = self.0.iter().filter(within).count();
        let excess = starts.saturating_sub(guard.max_starts.min(KEPT - 1));
        if excess == 0 {
            return None;
        }
        Some(Duration::from_secs((FIRST_WAIT << excess.min(MOST_DOUBLINGS)).min(LONGEST_WAIT)))
    }

    pub fn to_text(&self) -> String {
        self.0.iter().fold(String::new(), |mut text, start| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{:?}", stamp::seconds(*start));
            text
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// How long suspects of the last of `count` starts, one second apart, wait.
    fn wait(guard: Guard, count: u64) -> Option<u64> {
        let mut starts = Starts::default();
        let waits = (1..=count).map(|second| starts.record(guard, Millis(second * 1000)));
        waits.last().flatten().map(|wait| wait.as_secs())
    }

    #[test]
    fn five_starts_are_free_and_each_further_one_doubles_the_wait() {
        for (count, want) in
            [(1, None), (5, None), (6, Some(10)), (7, Some(20)), (8, Some(30)), (9, Some(30)), (90, Some(30))]
        {
            assert_eq!(wait(Guard::default(), count), want, "{count}");
        }
    }

    #[test]
    fn zero_switches_it_off() {
        assert_eq!(wait(Guard { max_starts: 0, ..Guard::default() }, 39), None);
        assert_eq!(wait(Guard { window: Duration::ZERO, ..Guard::default() }, 39), None);
        assert_eq!(wait(Guard { max_starts: 1000, ..Guard::default() }, 39), None);
        assert_eq!(wait(Guard { max_starts: 1000, ..Guard::default() }, 40), Some(10));
    }

    #[test]
    fn only_starts_within_the_window_count() {
        for (text, now, want) in [
            ("0\n1\n2\n3\n4\n", 120, Some(10)),
            ("0\n1\n2\n3\n4\n", 121, None),
            ("500\n501\n502\n503\n504\n", 100, None),
        ] {
            let wait = Starts::parse(text.as_bytes()).record(Guard::default(), Millis(now * 1000));
            assert_eq!(wait.map(|wait| wait.as_secs()), want, "{text:?} at {now}");
        }
    }

    #[test]
    fn the_last_forty_are_kept_and_what_is_no_number_is_not() {
        let mut starts = Starts::parse(b"x\n\xff\n\n NaN\ninf\n1e999\n 1.5 \r\n-3\n[1]\n2");
        assert_eq!(starts.to_text(), "1.5\n0.0\n2.0\n");
        for second in 0..60 {
            starts.record(Guard::default(), Millis(second * 1000));
        }
        assert_eq!(starts.to_text().lines().count(), KEPT);
        assert!(starts.to_text().starts_with("20.0\n"));
        assert_eq!(Starts::parse(starts.to_text().as_bytes()), starts);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, now: u64) {
            Starts::parse(&bytes).record(Guard::default(), Millis(now));
        }
    }
}
