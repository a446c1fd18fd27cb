//! Restart breaker: detects restart loops, and decides whether suspects are resumed at once or one at a time.
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
const MAX_GAP: Duration = Duration::from_secs(300);
const MAX_STARTS: usize = 20;
/// The pause before the first suspect grows up to this many stable intervals. Only suspects wait, so a longer pause would
/// protect nothing else.
const MAX_INTERVALS: u32 = 3;

/// Zero restarts or a zero window disables the breaker. At most [`MAX_STARTS`] restarts can be configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartBreaker {
    pub max_restarts: usize,
    pub window: Duration,
    /// A suspect that has run for this long is cleared, and the next one is resumed.
    pub stable: Duration,
}

impl Default for RestartBreaker {
    fn default() -> Self {
        Self { max_restarts: 3, window: Duration::from_secs(60), stable: Duration::from_secs(10) }
    }
}

/// Starts that found suspects, oldest first. On the wire `{"boots":[1000.0,1010.0]}`, in seconds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SuspectStarts(Vec<Millis>);

/// How this start resumes its suspects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumePacing {
    AtOnce,
    /// One at a time, the first after `pause`: this is the `boots`th start in a row.
    OneByOne {
        boots: usize,
        pause: Duration,
    },
}

impl RestartBreaker {
    pub fn is_on(self) -> bool {
        self.max_restarts > 0 && !self.window.is_zero()
    }

    /// The stable interval, doubled for every start after the one that tripped the breaker.
    fn pause(self, boots: usize) -> Duration {
        let doublings = boots.saturating_sub(self.max_restarts.min(MAX_STARTS)).min(MAX_STARTS) as u32;
        self.stable.saturating_mul((1 << doublings).min(MAX_INTERVALS))
    }
}

impl SuspectStarts {
    /// Never fails: skips entries that are not numbers; anything but a list is empty.
    pub fn parse(bytes: &[u8]) -> Self {
        let file: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let boots = file.get("boots").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut boots: Vec<Millis> =
            boots.iter().filter_map(Value::as_f64).map(stamp::from_seconds).collect();
        boots.sort_unstable();
        Self(boots)
    }

    /// Records this start, drops old ones, and decides.
    pub fn record(&mut self, breaker: RestartBreaker, now: Millis) -> ResumePacing {
        if !breaker.is_on() {
            return ResumePacing::AtOnce;
        }
        // Starts in the future are from before the clock was set back.
        self.0.retain(|boot| *boot <= now);
        self.0.push(now);
        let recent = self.0.iter().filter(|boot| now.since(**boot) <= breaker.window).count();
        let in_a_row = recent.max(self.chain());
        self.0.drain(..self.0.len().saturating_sub(in_a_row.min(MAX_STARTS)));
        if in_a_row >= breaker.max_restarts.min(MAX_STARTS) {
            return ResumePacing::OneByOne { boots: in_a_row, pause: breaker.pause(in_a_row) };
        }
        ResumePacing::AtOnce
    }

    /// Length of the latest chain of starts with short gaps.
    fn chain(&self) -> usize {
        let close = self.0.windows(2).rev().take_while(|pair| pair[1].since(pair[0]) <= MAX_GAP);
        self.0.len().min(1 + close.count())
    }
}

impl Serialize for SuspectStarts {
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

    const AT_ONCE: ResumePacing = ResumePacing::AtOnce;

    fn one_by_one(boots: usize, pause: u64) -> ResumePacing {
        ResumePacing::OneByOne { boots, pause: Duration::from_secs(pause) }
    }

    /// The decisions of starts at these seconds, each of which reads the file of the previous one.
    fn starts(breaker: RestartBreaker, seconds: &[u64]) -> Vec<ResumePacing> {
        let mut file = Vec::new();
        let start = |second: &u64| {
            let mut boots = SuspectStarts::parse(&file);
            let resume = boots.record(breaker, Millis(second * 1000));
            file = serde_json::to_vec(&boots).unwrap();
            resume
        };
        seconds.iter().map(start).collect()
    }

    #[test]
    fn third_start_within_a_minute_resumes_suspects_one_by_one() {
        assert_eq!(
            starts(RestartBreaker::default(), &[1000, 1010, 1020]),
            [AT_ONCE, AT_ONCE, one_by_one(3, 10)]
        );
    }

    #[test]
    fn pause_doubles_with_every_further_start_up_to_its_limit() {
        let resumes = starts(RestartBreaker::default(), &[0, 5, 10, 15, 20, 25, 30]);
        let want =
            [(3, 10), (4, 20), (5, 30), (6, 30), (7, 30)].map(|(boots, pause)| one_by_one(boots, pause));
        assert_eq!(resumes[2..], want);
        let slow = RestartBreaker { stable: Duration::from_secs(90), ..RestartBreaker::default() };
        assert_eq!(starts(slow, &[0, 5, 10, 15])[2..], [one_by_one(3, 90), one_by_one(4, 180)]);
    }

    #[test]
    fn slow_loop_with_short_gaps_trips_the_breaker() {
        assert_eq!(
            starts(RestartBreaker::default(), &[1000, 1300, 1600, 1901]),
            [AT_ONCE, AT_ONCE, one_by_one(3, 10), AT_ONCE]
        );
        assert_eq!(starts(RestartBreaker::default(), &[1000, 1150, 1451, 1600]), [AT_ONCE; 4]);
    }

    #[test]
    fn wide_window_counts_starts_with_any_gap() {
        let breaker = RestartBreaker { window: Duration::from_secs(3600), ..RestartBreaker::default() };
        assert_eq!(starts(breaker, &[0, 1000, 2000]), [AT_ONCE, AT_ONCE, one_by_one(3, 10)]);
        assert_eq!(starts(breaker, &[0, 1000, 3601, 9000]), [AT_ONCE; 4]);
    }

    #[test]
    fn zero_disables_the_breaker_and_one_trips_at_once() {
        for breaker in [
            RestartBreaker { max_restarts: 0, ..RestartBreaker::default() },
            RestartBreaker { window: Duration::ZERO, ..RestartBreaker::default() },
        ] {
            assert_eq!(starts(breaker, &[1, 2, 3, 4]), [AT_ONCE; 4]);
        }
        assert_eq!(
            starts(RestartBreaker { max_restarts: 1, ..RestartBreaker::default() }, &[1]),
            [one_by_one(1, 10)]
        );
    }

    #[test]
    fn drops_future_starts_after_the_clock_was_set_back() {
        assert_eq!(starts(RestartBreaker::default(), &[5000, 5001, 100]), [AT_ONCE; 3]);
    }

    #[test]
    fn keeps_at_most_twenty_starts() {
        let breaker = RestartBreaker { max_restarts: 1000, ..RestartBreaker::default() };
        let seconds: Vec<u64> = (0..50).collect();
        let resumes = starts(breaker, &seconds);
        assert!(resumes[..19].iter().all(|resume| *resume == AT_ONCE));
        assert!(resumes[19..].iter().all(|resume| *resume != AT_ONCE));
        let mut boots = SuspectStarts::parse(format!(r#"{{"boots":{seconds:?}}}"#).as_bytes());
        boots.record(breaker, Millis(60_000));
        assert_eq!(boots.0.len(), MAX_STARTS);
    }

    #[test]
    fn ignores_invalid_entries() {
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
            let read = serde_json::to_string(&SuspectStarts::parse(text.as_bytes())).unwrap();
            assert_eq!(read, format!(r#"{{"boots":{want}}}"#), "{text}");
        }
    }

    proptest! {
        #[test]
        fn never_panics_on_arbitrary_input(bytes: Vec<u8>, boots: Vec<f64>, now: u64) {
            SuspectStarts::parse(&bytes).record(RestartBreaker::default(), Millis(now));
            let text = format!(r#"{{"boots":{boots:?}}}"#);
            let mut boots = SuspectStarts::parse(text.as_bytes());
            boots.record(RestartBreaker::default(), Millis(now));
            prop_assert!(boots.0.len() <= MAX_STARTS);
        }
    }
}
