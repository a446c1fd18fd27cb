//! Rate limits of watch-pattern notifications. Pure.
//!
//! A process reports one match per window; one that exceeds this in three consecutive windows is no longer
//! watched. All processes together share a second limit.

use std::collections::VecDeque;
use std::time::Duration;

use petasos_core::Millis;

use crate::terminal::redaction;

/// Consecutive windows with more than one match, after which watching stops.
const STRIKES: u32 = 3;
const LINES: usize = 20;
const CHARS: usize = 2000;
/// Maximum number and length of a process's patterns.
pub(in crate::terminal) const PATTERNS: usize = 32;
pub(in crate::terminal) const PATTERN: usize = 500;

/// Rate limits of notifications; shorter in tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchLimits {
    /// At most one match of a process per window.
    pub window: Duration,
    /// At most [`BURST`] matches of all processes in this time.
    pub burst: Duration,
    /// Pause after the burst limit was exceeded.
    pub pause: Duration,
}

impl Default for WatchLimits {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(15),
            burst: Duration::from_secs(10),
            pause: Duration::from_secs(30),
        }
    }
}

#[derive(Debug, Clone)]
pub(in crate::terminal) struct Watch {
    patterns: Vec<String>,
    window: Duration,
    reported_at: Option<Millis>,
    /// Another match came in the current window.
    exceeded: bool,
    strikes: u32,
    suppressed: u32,
    /// Matches were suppressed by the limit of all processes.
    globally_suppressed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::terminal) enum ScanResult {
    Nothing,
    Match { pattern: String, output: String, suppressed: u32 },
    TooMany { suppressed: u32 },
}

impl Watch {
    pub(in crate::terminal) fn new(patterns: Vec<String>, window: Duration) -> Self {
        Self {
            patterns,
            window,
            reported_at: None,
            exceeded: false,
            strikes: 0,
            suppressed: 0,
            globally_suppressed: false,
        }
    }

    /// Searches new, complete lines.
    pub(in crate::terminal) fn scan(&mut self, now: Millis, lines: &str) -> ScanResult {
        let Some((pattern, output)) = self.find_match(lines) else { return ScanResult::Nothing };
        if self.reported_at.is_none_or(|reported| now.since(reported) >= self.window) {
            if !self.exceeded {
                self.strikes = 0;
            }
            self.exceeded = false;
            self.reported_at = Some(now);
            return ScanResult::Match { pattern, output, suppressed: self.take_suppressed() };
        }
        self.suppressed += 1;
        if !self.exceeded {
            self.exceeded = true;
            self.strikes += 1;
        }
        if self.strikes >= STRIKES {
            return ScanResult::TooMany { suppressed: self.suppressed };
        }
        ScanResult::Nothing
    }

    /// Counts a match that the limit of all processes suppressed. `before`: suppressed ones it would have
    /// reported.
    pub(in crate::terminal) fn suppress(&mut self, before: u32) {
        self.suppressed += before + 1;
        self.globally_suppressed = true;
    }

    /// Whether suppressed matches are waiting to be reported.
    pub(in crate::terminal) fn has_suppressed(&self) -> bool {
        self.globally_suppressed
    }

    pub(in crate::terminal) fn take_suppressed(&mut self) -> u32 {
        self.globally_suppressed = false;
        std::mem::take(&mut self.suppressed)
    }

    fn find_match(&self, lines: &str) -> Option<(String, String)> {
        let hit = |line: &&str| self.patterns.iter().any(|pattern| line.contains(pattern.as_str()));
        let lines: Vec<&str> = lines.lines().filter(hit).take(LINES).collect();
        let first = lines.first()?;
        let pattern = self.patterns.iter().find(|pattern| first.contains(pattern.as_str()))?.clone();
        let output: String = redaction::redact(&lines.join("\n")).chars().take(CHARS).collect();
        Some((pattern, output))
    }
}

/// The limit of all processes together.
#[derive(Debug)]
pub(in crate::terminal) struct GlobalWatchLimit {
    limits: WatchLimits,
    recent: VecDeque<Millis>,
    paused_until: Option<Millis>,
}

/// Matches allowed in [`WatchLimits::burst`].
const BURST: usize = 15;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::terminal) enum Admission {
    Reported,
    /// It exceeded the limit: a pause begins.
    Tripped,
    Suppressed,
}

impl GlobalWatchLimit {
    pub(in crate::terminal) fn new(limits: WatchLimits) -> Self {
        Self { limits, recent: VecDeque::new(), paused_until: None }
    }

    pub(in crate::terminal) fn admit(&mut self, now: Millis) -> Admission {
        if self.is_paused(now) {
            return Admission::Suppressed;
        }
        while self.recent.front().is_some_and(|at| now.since(*at) >= self.limits.burst) {
            self.recent.pop_front();
        }
        if self.recent.len() >= BURST {
            self.recent.clear();
            self.paused_until = Some(now.after(self.limits.pause));
            tracing::warn!(
                seconds = self.limits.pause.as_secs(),
                "too many watch matches, notifications paused"
            );
            return Admission::Tripped;
        }
        self.recent.push_back(now);
        Admission::Reported
    }

    pub(in crate::terminal) fn is_paused(&self, now: Millis) -> bool {
        self.paused_until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Millis {
        Millis(1_000_000 + seconds * 1000)
    }

    fn watch() -> Watch {
        Watch::new(vec!["ERROR".into(), "ready".into()], WatchLimits::default().window)
    }

    #[test]
    fn quotes_matching_lines() {
        let scan = watch().scan(at(0), "starting\nserver ready on 80\nan ERROR\nbye\n");
        let pattern = "ready".to_owned();
        let output = "server ready on 80\nan ERROR".to_owned();
        assert_eq!(scan, ScanResult::Match { pattern, output, suppressed: 0 });
        assert_eq!(watch().scan(at(0), "error Ready\n"), ScanResult::Nothing);
    }

    #[test]
    fn stops_watching_after_three_loud_windows() {
        let mut watch = watch();
        let scan: Vec<_> = (0..60).map(|second| (second, watch.scan(at(second), "ready\n"))).collect();
        let reported: Vec<_> =
            scan.iter().filter(|(_, it)| matches!(it, ScanResult::Match { .. })).map(|(at, _)| *at).collect();
        assert_eq!(reported[..3], [0, 15, 30]);
        let end = scan.iter().find(|(_, it)| matches!(it, ScanResult::TooMany { .. }));
        assert_eq!(end, Some(&(31, ScanResult::TooMany { suppressed: 1 })));
    }

    #[test]
    fn quiet_window_resets_strikes() {
        let mut watch = watch();
        for start in [0, 20, 40, 60, 80, 100] {
            assert!(matches!(watch.scan(at(start), "ready\n"), ScanResult::Match { .. }), "{start}");
            // Every other window has more than one match.
            if start % 40 == 0 {
                assert_eq!(watch.scan(at(start + 1), "ready\n"), ScanResult::Nothing);
            }
        }
    }

    #[test]
    fn next_match_counts_suppressed_ones() {
        let mut watch = watch();
        watch.scan(at(0), "ready\n");
        watch.scan(at(1), "ready\n");
        watch.scan(at(2), "ready\n");
        let scan = watch.scan(at(20), "ready\n");
        assert!(matches!(scan, ScanResult::Match { suppressed: 2, .. }), "{scan:?}");
    }

    #[test]
    fn only_consecutive_loud_windows_stop_watching() {
        // Each window: the second of its match, and whether another match follows.
        let end_of = |windows: &[(u64, bool)]| {
            let mut watch = watch();
            windows.iter().find_map(|(start, loud)| {
                assert!(matches!(watch.scan(at(*start), "ready\n"), ScanResult::Match { .. }), "{start}");
                let more = if *loud { watch.scan(at(start + 14), "ready\n") } else { ScanResult::Nothing };
                matches!(more, ScanResult::TooMany { .. }).then_some(*start)
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
    fn globally_suppressed_matches_are_counted_until_reported() {
        let mut watch = watch();
        watch.scan(at(0), "ready\n");
        watch.scan(at(1), "ready\n");
        let ScanResult::Match { suppressed: 1, .. } = watch.scan(at(15), "ready\n") else {
            panic!("a match")
        };
        watch.suppress(1);
        assert!(watch.has_suppressed());
        assert_eq!((watch.take_suppressed(), watch.has_suppressed()), (2, false));
        watch.scan(at(30), "ready\n");
        watch.suppress(0);
        assert!(matches!(watch.scan(at(45), "ready\n"), ScanResult::Match { suppressed: 1, .. }));
        assert!(!watch.has_suppressed(), "it was counted with the next");
    }

    #[test]
    fn limits_matches_of_all_processes() {
        let mut breaker = GlobalWatchLimit::new(WatchLimits::default());
        let admissions: Vec<_> = (0..17).map(|_| breaker.admit(at(0))).collect();
        assert_eq!(admissions[..15], [Admission::Reported; 15]);
        assert_eq!(admissions[15..], [Admission::Tripped, Admission::Suppressed]);
        assert_eq!((breaker.admit(at(29)), breaker.is_paused(at(29))), (Admission::Suppressed, true));
        assert_eq!((breaker.is_paused(at(30)), breaker.admit(at(30))), (false, Admission::Reported));
        let mut quiet = GlobalWatchLimit::new(WatchLimits::default());
        assert!((0..100).all(|second| quiet.admit(at(second)) == Admission::Reported));
    }
}
