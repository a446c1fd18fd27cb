//! Which lines of a process's output are worth a turn. Pure.
//!
//! A process that matches all the time must not keep its session busy: one match is told every fifteen seconds, and
//! one that goes on like that for three windows is not listened to any more. All processes together are held to a
//! rate, too.

use std::collections::VecDeque;
use std::time::Duration;

use petasos_core::Millis;

use super::text;

/// One match is told in this time.
const WINDOW: Duration = Duration::from_secs(15);
/// Windows in a row with more matches than that.
const STRIKES: u32 = 3;
/// What is quoted of a match.
const LINES: usize = 20;
const CHARS: usize = 2000;
/// Patterns of one process, and the longest of them.
pub(super) const PATTERNS: usize = 32;
pub(super) const PATTERN: usize = 500;

#[derive(Debug, Clone)]
pub(super) struct Watch {
    patterns: Vec<String>,
    told_at: Option<Millis>,
    /// More came in the present window.
    struck: bool,
    strikes: u32,
    suppressed: u32,
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
    pub(super) fn new(patterns: Vec<String>) -> Self {
        Self { patterns, told_at: None, struck: false, strikes: 0, suppressed: 0 }
    }

    /// Whole lines that are new.
    pub(super) fn look(&mut self, now: Millis, lines: &str) -> Seen {
        let Some((pattern, output)) = self.matched(lines) else { return Seen::Nothing };
        if self.told_at.is_none_or(|told| now.since(told) >= WINDOW) {
            if !self.struck {
                self.strikes = 0;
            }
            self.struck = false;
            self.told_at = Some(now);
            return Seen::Match { pattern, output, suppressed: std::mem::take(&mut self.suppressed) };
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

    /// Told by nobody: all together were too loud.
    pub(super) fn untold(&mut self) {
        self.suppressed += 1;
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
#[derive(Debug, Default)]
pub(super) struct Breaker {
    recent: VecDeque<Millis>,
    closed_until: Option<Millis>,
}

/// More than so many in so long a time, and nobody is heard for a while.
const BURST: usize = 15;
const BURST_TIME: Duration = Duration::from_secs(10);
const REST: Duration = Duration::from_secs(30);

impl Breaker {
    pub(super) fn admits(&mut self, now: Millis) -> bool {
        if self.closed_until.is_some_and(|until| now < until) {
            return false;
        }
        self.closed_until = None;
        while self.recent.front().is_some_and(|at| now.since(*at) >= BURST_TIME) {
            self.recent.pop_front();
        }
        if self.recent.len() >= BURST {
            self.recent.clear();
            self.closed_until = Some(now.after(REST));
            tracing::warn!("background processes match too much; nothing is told for {} s", REST.as_secs());
            return false;
        }
        self.recent.push_back(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Millis {
        Millis(1_000_000 + seconds * 1000)
    }

    fn watch() -> Watch {
        Watch::new(vec!["ERROR".into(), "ready".into()])
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
    fn all_together_are_held_to_a_rate() {
        let mut breaker = Breaker::default();
        let told = (0..16).filter(|_| breaker.admits(at(0))).count();
        assert_eq!(told, 15);
        assert!(!breaker.admits(at(29)) && breaker.admits(at(30)));
        let mut calm = Breaker::default();
        assert!((0..100).all(|second| calm.admits(at(second))));
    }
}
