//! Restart breaker: whether suspects are resumed at once or one at a time.
//!
//! A suspect is a turn that was executing when the process died. Resuming it may kill the process again, so the starts that
//! found suspects are recorded in `gateway/restart_loop.json`. After too many of them the breaker trips: suspects wait for
//! a pause that grows with every further start. Too many starts within the window is a fast loop. A slow loop never fills
//! the window, so a chain of starts with short gaps counts as well. Everything else resumes at every start.

use alloc::vec::Vec;
use core::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::marker::stamp;
use crate::time::Millis;

/// Longest gap between two starts of one chain.
const GAP: Duration = Duration::from_secs(300);
const KEPT: usize = 20;
/// The pause before the first suspect grows up to this many stable intervals. Only suspects wait, so a longer pause would
/// protect nothing else.
const MOST_INTERVALS: u32 = 3;

/// Zero restarts or a zero window disables the breaker. At most [`KEPT`] restarts can be configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard {
    pub max_restarts: usize,
    pub window: Duration,
    /// A suspect that has run for this long is cleared, and the next one is resumed.
    pub stable: Duration,
}

impl Default for Guard {
    fn default() -> Self {
        Self { max_restarts: 3, window: Duration::from_secs(60), stable: Duration::from_secs(10) }
    }
}

/// Starts that found suspects, oldest first. On the wire `{"boots":[1000.0,1010.0]}`, in seconds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Boots(Vec<Millis>);

/// How this start resumes its suspects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resume {
    AtOnce,
    /// One at a time, the first after `pause`: this is the `boots`th start in a row.
    OneByOne {
        boots: usize,
        pause: Duration,
    },
}

impl Guard {
    pub fn is_on(self) -> bool {
        self.max_restarts > 0 && !self.window.is_zero()
    }

    /// The stable interval, doubled for every start after the one that tripped the breaker.
    fn pause(self, boots: usize) -> Duration {
        let doublings = boots.saturating_sub(self.max_restarts.min(KEPT)).min(KEPT) as u32;
        self.stable.saturating_mul((1 << doublings).min(MOST_INTERVALS))
    }
}

impl Boots {
    /// Never fails: skips entries that are not numbers; anything but a list is empty.
    pub fn parse(bytes: &[u8]) -> Self {
        let file: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let boots = file.get("boots").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut boots: Vec<Millis> =
            boots.iter().filter_map(Value::as_f64).map(stamp::from_seconds).collect();
        boots.sort_unstable();
        Self(boots)
    }

    /// Adds this start, drops those outside window and chain, and decides.
    pub fn record(&mut self, guard: Guard, now: Millis) -> Resume {
        if !guard.is_on() {
            return Resume::AtOnce;
        }
        // After the clock was set back, starts in the future mean nothing.
        self.0.retain(|boot| *boot <= now);
        self.0.push(now);
        let recent = self.0.iter().filter(|boot| now.since(**boot) <= guard.window).count();
        let in_a_row = recent.max(self.chain());
        self.0.drain(..self.0.len().saturating_sub(in_a_row.min(KEPT)));
        if in_a_row >= guard.max_restarts.min(KEPT) {
            return Resume::OneByOne { boots: in_a_row, pause: guard.pause(in_a_row) };
        }
        Resume::AtOnce
    }

    /// Length of the latest chain of starts with short gaps.
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

    const AT_ONCE: Resume = Resume::AtOnce;

    fn one_by_one(boots: usize, pause: u64) -> Resume {
        Resume::OneByOne { boots, pause: Duration::from_secs(pause) }
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
    fn third_start_within_a_minute_resumes_suspects_one_by_one() {
        assert_eq!(starts(Guard::default(), &[1000, 1010, 1020]), [AT_ONCE, AT_ONCE, one_by_one(3, 10)]);
    }

    #[test]
    fn pause_doubles_with_every_further_start_up_to_its_limit() {
        let resumes = starts(Guard::default(), &[0, 5, 10, 15, 20, 25, 30]);
        let want =
            [(3, 10), (4, 20), (5, 30), (6, 30), (7, 30)].map(|(boots, pause)| one_by_one(boots, pause));
        assert_eq!(resumes[2..], want);
        let slow = Guard { stable: Duration::from_secs(90), ..Guard::default() };
        assert_eq!(starts(slow, &[0, 5, 10, 15])[2..], [one_by_one(3, 90), one_by_one(4, 180)]);
    }

    #[test]
    fn a_slow_loop_is_a_loop_as_long_as_its_gaps_are_short() {
        assert_eq!(
            starts(Guard::default(), &[1000, 1300, 1600, 1901]),
            [AT_ONCE, AT_ONCE, one_by_one(3, 10), AT_ONCE]
        );
        assert_eq!(starts(Guard::default(), &[1000, 1150, 1451, 1600]), [AT_ONCE; 4]);
    }

    #[test]
    fn a_wide_window_counts_what_is_in_it_whatever_the_gaps() {
        let guard = Guard { window: Duration::from_secs(3600), ..Guard::default() };
        assert_eq!(starts(guard, &[0, 1000, 2000]), [AT_ONCE, AT_ONCE, one_by_one(3, 10)]);
        assert_eq!(starts(guard, &[0, 1000, 3601, 9000]), [AT_ONCE; 4]);
    }

    #[test]
    fn zero_disables_it_and_one_trips_at_the_first_start() {
        for guard in [
            Guard { max_restarts: 0, ..Guard::default() },
            Guard { window: Duration::ZERO, ..Guard::default() },
        ] {
            assert_eq!(starts(guard, &[1, 2, 3, 4]), [AT_ONCE; 4]);
        }
        assert_eq!(starts(Guard { max_restarts: 1, ..Guard::default() }, &[1]), [one_by_one(1, 10)]);
    }

    #[test]
    fn a_clock_set_back_forgets_the_starts_that_lie_ahead() {
        assert_eq!(starts(Guard::default(), &[5000, 5001, 100]), [AT_ONCE; 3]);
    }

    #[test]
    fn twenty_starts_are_remembered_and_more_cannot_be_asked_for() {
        let guard = Guard { max_restarts: 1000, ..Guard::default() };
        let seconds: Vec<u64> = (0..50).collect();
        let resumes = starts(guard, &seconds);
        assert!(resumes[..19].iter().all(|resume| *resume == AT_ONCE));
        assert!(resumes[19..].iter().all(|resume| *resume != AT_ONCE));
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
