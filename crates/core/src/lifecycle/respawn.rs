//! Respawn limit: how long suspects wait when a supervisor has started the gateway too often.
//!
//! The ledger `gateway-starts.log` has one start per line, in seconds since the epoch. The more starts within the window,
//! the longer the wait of turns that were executing when the process died. Accepting and acknowledging messages and all
//! other turns are never delayed.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use core::time::Duration;

use super::marker::stamp;
use crate::time::Millis;

const MAX_STARTS: usize = 40;
const FIRST_WAIT: u64 = 5;
const MAX_DOUBLINGS: usize = 6;
const MAX_WAIT: u64 = 30;

/// A zero in either field disables the wait. Values beyond the kept starts are reduced to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RespawnLimit {
    pub max_starts: usize,
    pub window: Duration,
}

impl Default for RespawnLimit {
    fn default() -> Self {
        Self { max_starts: 5, window: Duration::from_secs(120) }
    }
}

/// The starts in file order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StartLedger(Vec<Millis>);

impl StartLedger {
    /// Skips invalid lines.
    pub fn parse(bytes: &[u8]) -> Self {
        let number = |line: &[u8]| core::str::from_utf8(line).ok()?.trim().parse::<f64>().ok();
        let lines = bytes.split(|byte| *byte == b'\n').filter_map(number);
        Self(lines.filter(|second| second.is_finite()).map(stamp::from_seconds).collect())
    }

    /// Records this start and returns how long its suspects wait. `None`: no wait.
    pub fn record(&mut self, limit: RespawnLimit, now: Millis) -> Option<Duration> {
        self.0.push(now);
        self.0.drain(..self.0.len().saturating_sub(MAX_STARTS));
        if limit.max_starts == 0 || limit.window.is_zero() {
            return None;
        }
        let within = |start: &&Millis| **start <= now && now.since(**start) <= limit.window;
        let starts = self.0.iter().filter(within).count();
        let excess = starts.saturating_sub(limit.max_starts.min(MAX_STARTS - 1));
        if excess == 0 {
            return None;
        }
        Some(Duration::from_secs((FIRST_WAIT << excess.min(MAX_DOUBLINGS)).min(MAX_WAIT)))
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

    /// The wait of suspects after `count` starts, one second apart.
    fn wait(limit: RespawnLimit, count: u64) -> Option<u64> {
        let mut starts = StartLedger::default();
        let waits = (1..=count).map(|second| starts.record(limit, Millis(second * 1000)));
        waits.last().flatten().map(|wait| wait.as_secs())
    }

    #[test]
    fn doubles_the_wait_after_five_starts() {
        for (count, want) in
            [(1, None), (5, None), (6, Some(10)), (7, Some(20)), (8, Some(30)), (9, Some(30)), (90, Some(30))]
        {
            assert_eq!(wait(RespawnLimit::default(), count), want, "{count}");
        }
    }

    #[test]
    fn zero_disables_the_wait() {
        assert_eq!(wait(RespawnLimit { max_starts: 0, ..RespawnLimit::default() }, 39), None);
        assert_eq!(wait(RespawnLimit { window: Duration::ZERO, ..RespawnLimit::default() }, 39), None);
        assert_eq!(wait(RespawnLimit { max_starts: 1000, ..RespawnLimit::default() }, 39), None);
        assert_eq!(wait(RespawnLimit { max_starts: 1000, ..RespawnLimit::default() }, 40), Some(10));
    }

    #[test]
    fn counts_only_starts_within_the_window() {
        for (text, now, want) in [
            ("0\n1\n2\n3\n4\n", 120, Some(10)),
            ("0\n1\n2\n3\n4\n", 121, None),
            ("500\n501\n502\n503\n504\n", 100, None),
        ] {
            let wait =
                StartLedger::parse(text.as_bytes()).record(RespawnLimit::default(), Millis(now * 1000));
            assert_eq!(wait.map(|wait| wait.as_secs()), want, "{text:?} at {now}");
        }
    }

    #[test]
    fn keeps_the_last_forty_valid_starts() {
        let mut starts = StartLedger::parse(b"x\n\xff\n\n NaN\ninf\n1e999\n 1.5 \r\n-3\n[1]\n2");
        assert_eq!(starts.to_text(), "1.5\n0.0\n2.0\n");
        for second in 0..60 {
            starts.record(RespawnLimit::default(), Millis(second * 1000));
        }
        assert_eq!(starts.to_text().lines().count(), MAX_STARTS);
        assert!(starts.to_text().starts_with("20.0\n"));
        assert_eq!(StartLedger::parse(starts.to_text().as_bytes()), starts);
    }

    proptest! {
        #[test]
        fn never_panics_on_arbitrary_bytes(bytes: Vec<u8>, now: u64) {
            StartLedger::parse(&bytes).record(RespawnLimit::default(), Millis(now));
        }
    }
}
