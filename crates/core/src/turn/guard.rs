//! Noticing that a turn goes round in circles. What it says goes to the model with the result.
//!
//! The guard is part of the stored turn: a crash does not make it forget how often something has failed.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::transcript::ToolCall;

/// Calls, and tools, that are remembered. The oldest make room.
const REMEMBERED: usize = 64;

/// What a result says about getting on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    Failed,
    /// It worked, and cannot have changed anything.
    Read,
    /// It worked, and what was read before may be different now.
    Changed,
    /// It says nothing: the call was not run.
    None,
}

/// How often something may happen in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Circles {
    /// The same call fails.
    pub same_failure: u32,
    /// One tool fails, whatever it is called with.
    pub tool_failure: u32,
    /// The same call gives the same result.
    pub same_result: u32,
}

/// From where on the model is told, and from where on it gets no more tools. `None`: never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    pub warn: Option<Circles>,
    pub stop: Option<Circles>,
}

impl Patience {
    pub const WARN: Circles = Circles { same_failure: 2, tool_failure: 3, same_result: 2 };
    pub const STOP: Circles = Circles { same_failure: 5, tool_failure: 8, same_result: 5 };
}

impl Default for Patience {
    fn default() -> Self {
        Self { warn: Some(Self::WARN), stop: None }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Guard {
    /// Failures in a row of one call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    calls: Vec<(u64, u32)>,
    /// Failures in a row of one tool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tools: Vec<(u64, u32)>,
    /// What a call that changes nothing gave last, and how often in a row.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    results: Vec<(u64, (u64, u32))>,
    /// It was enough.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    stopped: bool,
}

impl Guard {
    /// No more tools in this turn.
    pub const fn has_stopped(&self) -> bool {
        self.stopped
    }

    /// Takes note of a result. `Some`: what the model is told beside it.
    pub(super) fn observe(
        &mut self,
        patience: Patience,
        call: &ToolCall,
        content: &str,
        progress: Progress,
    ) -> Option<String> {
        let asked = digest(&[&call.name, &call.arguments]);
        let tool = digest(&[&call.name]);
        let (reached, warning) = match progress {
            Progress::None => return None,
            Progress::Failed => {
                let same = up(&mut self.calls, asked);
                let failed = up(&mut self.tools, tool);
                let text = |limits: Circles| (same >= limits.same_failure, failed >= limits.tool_failure);
                let warning = match patience.warn.map(text) {
                    Some((true, _)) => format!(
                        "this call has failed {same} times with the same arguments. Do not repeat it unchanged: \
                         use other arguments or another way, or tell the user what is in the way."
                    ),
                    Some((false, true)) => format!(
                        "{} has failed {failed} times in a row. Find out why before you go on, or take another way.",
                        call.name
                    ),
                    Some((false, false)) | None => String::new(),
                };
                (patience.stop.map(text).is_some_and(|(same, failed)| same || failed), warning)
            }
            Progress::Changed => {
                self.worked(asked, tool);
                self.results.clear();
                return None;
            }
            Progress::Read => {
                self.worked(asked, tool);
                let times = self.again(asked, digest(&[content]));
                let often = |limits: Circles| times >= limits.same_result;
                let warning = match patience.warn.is_some_and(often) {
                    true => format!(
                        "this call has given the same result {times} times. Use what you have, or ask for something else."
                    ),
                    false => String::new(),
                };
                (patience.stop.is_some_and(often), warning)
            }
        };
        self.stopped |= reached;
        (!warning.is_empty()).then(|| format!("[Tool loop warning: {warning}]"))
    }

    fn worked(&mut self, asked: u64, tool: u64) {
        self.calls.retain(|(known, _)| *known != asked);
        self.tools.retain(|(known, _)| *known != tool);
    }

    /// How often in a row this call gave this result.
    fn again(&mut self, asked: u64, result: u64) -> u32 {
        let before = self.results.iter().position(|(known, _)| *known == asked);
        let (last, times) = before.map_or((result, 0), |at| self.results.remove(at).1);
        let times = if last == result { times.saturating_add(1) } else { 1 };
        remember(&mut self.results, (asked, (result, times)));
        times
    }
}

fn up(counts: &mut Vec<(u64, u32)>, what: u64) -> u32 {
    let before = counts.iter().position(|(known, _)| *known == what);
    let count = before.map_or(0, |at| counts.remove(at).1).saturating_add(1);
    remember(counts, (what, count));
    count
}

fn remember<T>(list: &mut Vec<T>, new: T) {
    if list.len() >= REMEMBERED {
        list.remove(0);
    }
    list.push(new);
}

/// FNV-1a: a chance hit costs a needless hint, nothing more.
fn digest(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use Progress::{Changed, Failed, Read};

    use super::*;

    /// After each of these calls (tool, arguments, result): whether the model was told, and whether it was enough.
    #[track_caller]
    fn check(patience: Patience, calls: &[(&str, &str, &str, Progress)], told: &[bool], enough: bool) {
        let mut guard = Guard::default();
        let mut seen = Vec::new();
        for (name, arguments, content, progress) in calls {
            let call = ToolCall { id: "c".into(), name: (*name).into(), arguments: (*arguments).into() };
            let warning = guard.observe(patience, &call, content, *progress);
            assert!(warning.iter().all(|text| text.starts_with("[Tool loop warning: ")));
            seen.push(warning.is_some());
        }
        assert_eq!((seen.as_slice(), guard.has_stopped()), (told, enough));
    }

    #[test]
    fn the_second_identical_failure_and_the_third_of_one_tool_are_pointed_out() {
        let warn = Patience::default();
        let same = [
            ("a", "{}", "e", Failed),
            ("a", "{}", "f", Failed),
            ("a", "{}", "ok", Changed),
            ("a", "{}", "e", Failed),
        ];
        check(warn, &same, &[false, true, false, false], false);
        let tool = [
            ("a", "1", "e", Failed),
            ("b", "1", "e", Failed),
            ("a", "2", "e", Failed),
            ("a", "3", "e", Failed),
        ];
        check(warn, &tool, &[false, false, false, true], false);
    }

    #[test]
    fn reading_the_same_twice_is_pointed_out_unless_something_may_have_changed() {
        let warn = Patience::default();
        let read = ("r", "{}", "x", Read);
        check(
            warn,
            &[read, read, ("r", "{}", "y", Read), ("r", "{}", "y", Read)],
            &[false, true, false, true],
            false,
        );
        check(warn, &[read, ("w", "{}", "ok", Changed), read], &[false; 3], false);
        check(warn, &[("d", "{}", "same as x", Progress::None); 4], &[false; 4], false);
    }

    #[test]
    fn it_is_enough_only_where_somebody_said_so() {
        let stop = Patience { warn: None, stop: Some(Patience::STOP) };
        let fails = |count| alloc::vec![("a", "{}", "e", Failed); count];
        check(
            Patience::default(),
            &fails(9),
            &[false, true, true, true, true, true, true, true, true],
            false,
        );
        check(stop, &fails(4), &[false; 4], false);
        check(stop, &fails(5), &[false; 5], true);
        let reads = [("r", "{}", "x", Read); 5];
        check(stop, &reads, &[false; 5], true);
        let arguments = ["1", "2", "3", "4", "5", "6", "7", "8"];
        let tool = arguments.map(|arguments| ("a", arguments, "e", Failed));
        check(stop, &tool[..7], &[false; 7], false);
        check(stop, &tool, &[false; 8], true);
    }

    #[test]
    fn what_it_remembers_is_bounded() {
        let mut guard = Guard::default();
        for number in 0..1_000 {
            let call = ToolCall { id: "c".into(), name: format!("t{number}"), arguments: "{}".into() };
            guard.observe(Patience::default(), &call, "x", Read);
            guard.observe(Patience::default(), &call, "x", Failed);
        }
        assert_eq!((guard.calls.len(), guard.tools.len(), guard.results.len()), (64, 64, 64));
    }
}
