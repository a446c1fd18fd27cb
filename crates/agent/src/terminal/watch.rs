//! Which lines of a process's output are worth a turn. Pure.
//!
//! A process that matches all the time must not keep its session busy: one match is told every fifteen seconds, and
//! one that goes on like that for three windows is not listened to any more. All processes together are held to a
//! rate, too.

use std::collections::VecDeque;
use std::time::Duration;

use petasos_core::Millis;

use super::text;

/// Windows in a row with more matches than one.
const STRIKES: u32 = 3;
/// What is quoted of a match.
const LINES: usize = 20;
const CHARS: usize = 2000;
/// Patterns of one process, and the longest of them.
pub(super) const PATTERNS: usize = 32;
pub(super) const PATTERN: usize = 500;

/// How often matches are told. Only tests are in more of a hurry than this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// One match of a process is told in this time.
    pub window: Duration,
    /// [`BURST`] matches of all processes are.
    pub burst: Duration,
    /// Nobody is heard for so long if there were more.
    pub rest: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(15),
            burst: Duration::from_secs(10),
            rest: Duration::from_secs(30),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Watch {
    patterns: Vec<String>,
    window: Duration,
    told_at: Option<Millis>,
    /// More came in the present window.
    struck: bool,
    strikes: u32,
    suppressed: u32,
    /// Of the suppressed, some were kept back because all processes together were too loud.
    held: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Seen {
    Nothing,
    Match {
        pattern: String,
        output: String,
        suppressed: u32,
    },
    /// Not listened to any more.
    TooMuch {
        suppressed: u32,
    },
}

impl Watch {
    pub(super) fn new(patterns: Vec<String>, window: Duration) -> Self {
        Self { patterns, window, told_at: None, struck: false, strikes: 0, suppressed: 0, held: false }
    }

    /// Whole lines that are new.
    pub(super) fn look(&mut self, now: Millis, lines: &str) -> Seen {
        let Some((pattern, output)) = self.matched(lines) else { return Seen::Nothing };
        if self.told_at.is_none_or(|told| now.since(told) >= self.window) {
            if !self.struck {
                self.strikes = 0;
            }
            self.struck = false;
            self.told_at = Some(now);
            return Seen::Match { pattern, output, suppressed: self.release() };
        }
        self.suppressed += 1;
        if !self.struck {
            self.struck = true;
            self.strikes += 1;
        }
        if self.strikes >= STRIKES {
            return Seen::TooMuch { suppressed: self.suppressed };
        }
        Seen::Nothing
    }

    /// A match that was not told after all: all together are too loud. `before`: those it would have counted.
    pub(super) fn hold(&mut self, before: u32) {
        self.suppressed += before + 1;
        self.held = true;
    }

    /// Whether matches were kept back that nobody has been told of.
    pub(super) fn holds(&self) -> bool {
        self.held
    }

    /// How many were not told, once they may be.
    pub(super) fn release(&mut self) -> u32 {
        self.held = false;
        std::mem::take(&mut self.suppressed)
    }

    fn matched(&self, lines: &str) -> Option<(String, String)> {
        let hit = |line: &&str| self.patterns.iter().any(|pattern| line.contains(pattern.as_str()));
        let lines: Vec<&str> = lines.lines().filter(hit).take(LINES).collect();
        let first = lines.first()?;
        let pattern = self.patterns.iter().find(|pattern| first.contains(pattern.as_str()))?.clone();
        let output: String = text::redact(&lines.join("\n")).chars().take(CHARS).collect();
        Some((pattern, output))
    }
}

/// All processes together.
#[derive(Debug)]
pub(super) struct Breaker {
    pace: Pace,
    recent: VecDeque<Millis>,
    closed_until: Option<Millis>,
}

/// Matches that may be told in [`Pace::burst`].
const BURST: usize = 15;

/// What becomes of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    Told,
    /// It was one too many: nobody is heard for a while.
    Trips,
    Held,
}

impl Breaker {
    pub(super) fn new(pace: Pace) -> Self {
        Self { pace, recent: VecDeque::new(), closed_until: None }
    }

    pub(super) fn hear(&mut self, now: Millis) -> Heard {
        if self.rests(now) {
            return Heard::Held;
        }
        while self.recent.front().is_some_and(|at| now.since(*at) >= self.pace.burst) {
            self.recent.pop_front();
        }
        if self.recent.len() >= BURST {
            self.recent.clear();
            self.closed_until = Some(now.after(self.pace.rest));
            tracing::warn!(seconds = self.pace.rest.as_secs(), "background processes match too much");
            return Heard::Trips;
        }
        self.recent.push_back(now);
        Heard::Told
    }

    pub(super) fn rests(&self, now: Millis) -> bool {
        self.closed_until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Millis {
        Millis(1_000_000 + seconds * 1000)
    }

    fn watch() -> Watch {
        Watch::new(vec!["ERROR".into(), "ready".into()], Pace::default().window)
    }

    #[test]
    fn lines_that_contain_a_pattern_are_quoted() {
        let seen = watch().look(at(0), "starting\nserver ready on 80\nan ERROR\nbye\n");
        let (pattern, output) = ("ready".to_owned(), "server ready on 80\nan ERROR".to_owned());
        assert_eq!(seen, Seen::Match { pattern, output, suppressed: 0 });
        assert_eq!(watch().look(at(0), "error Ready\n"), Seen::Nothing);
    }

    #[test]
    fn a_line_each_second_is_told_three_times_and_then_no_more() {
        let mut watch = watch();
        let seen: Vec<_> = (0..60).map(|second| (second, watch.look(at(second), "ready\n"))).collect();
        let told: Vec<_> =
            seen.iter().filter(|(_, it)| matches!(it, Seen::Match { .. })).map(|(at, _)| *at).collect();
        assert_eq!(told[..3], [0, 15, 30]);
        let end = seen.iter().find(|(_, it)| matches!(it, Seen::TooMuch { .. }));
        assert_eq!(end, Some(&(31, Seen::TooMuch { suppressed: 1 })));
    }

    #[test]
    fn a_quiet_window_makes_up_for_the_loud_ones() {
        let mut watch = watch();
        for start in [0, 20, 40, 60, 80, 100] {
            assert!(matches!(watch.look(at(start), "ready\n"), Seen::Match { .. }), "{start}");
            // Every other window is loud.
            if start % 40 == 0 {
                assert_eq!(watch.look(at(start + 1), "ready\n"), Seen::Nothing);
            }
        }
    }

    #[test]
    fn what_was_not_told_is_counted_with_the_next() {
        let mut watch = watch();
        watch.look(at(0), "ready\n");
        watch.look(at(1), "ready\n");
        watch.look(at(2), "ready\n");
        let seen = watch.look(at(20), "ready\n");
        assert!(matches!(seen, Seen::Match { suppressed: 2, .. }), "{seen:?}");
    }

    #[test]
    fn three_loud_windows_end_it_and_a_quiet_one_between_them_does_not() {
        // Each window: the second of its match, and whether another comes in it.
        let end_of = |windows: &[(u64, bool)]| {
            let mut watch = watch();
            windows.iter().find_map(|(start, loud)| {
                assert!(matches!(watch.look(at(*start), "ready\n"), Seen::Match { .. }), "{start}");
                let more = if *loud { watch.look(at(start + 14), "ready\n") } else { Seen::Nothing };
                matches!(more, Seen::TooMuch { .. }).then_some(*start)
            })
        };
        assert_eq!(end_of(&[(0, true), (15, true), (30, true)]), Some(30));
        assert_eq!(end_of(&[(0, true), (15, true), (30, false), (45, true), (60, true)]), None);
        assert_eq!(
            end_of(&[(0, true), (100, true), (200, true)]),
            Some(200),
            "windows, not time, are counted"
        );
    }

    #[test]
    fn what_all_together_kept_back_is_counted_until_it_may_be_told() {
        let mut watch = watch();
        watch.look(at(0), "ready\n");
        watch.look(at(1), "ready\n");
        let Seen::Match { suppressed: 1, .. } = watch.look(at(15), "ready\n") else { panic!("a match") };
        watch.hold(1);
        assert!(watch.holds());
        assert_eq!((watch.release(), watch.holds()), (2, false));
        watch.look(at(30), "ready\n");
        watch.hold(0);
        assert!(matches!(watch.look(at(45), "ready\n"), Seen::Match { suppressed: 1, .. }));
        assert!(!watch.holds(), "it was counted with the next");
    }

    #[test]
    fn all_together_are_held_to_a_rate() {
        let mut breaker = Breaker::new(Pace::default());
        let heard: Vec<_> = (0..17).map(|_| breaker.hear(at(0))).collect();
        assert_eq!(heard[..15], [Heard::Told; 15]);
        assert_eq!(heard[15..], [Heard::Trips, Heard::Held]);
        assert_eq!((breaker.hear(at(29)), breaker.rests(at(29))), (Heard::Held, true));
        assert_eq!((breaker.rests(at(30)), breaker.hear(at(30))), (false, Heard::Told));
        let mut calm = Breaker::new(Pace::default());
        assert!((0..100).all(|second| calm.hear(at(second)) == Heard::Told));
    }
}
