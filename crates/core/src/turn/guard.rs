//! The loop guard: warns a model that repeats itself, then ends its access to tools.
//!
//! Stored with the turn, so that a crash does not reset the counts.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::transcript::ToolCall;

/// Maximum entries of each list; the oldest are dropped.
const REMEMBERED: usize = 64;

/// The progress that a tool result indicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallProgress {
    Failed,
    /// Succeeded without side effects.
    Read,
    /// Succeeded and may have changed earlier results.
    Changed,
    None,
}

/// Consecutive repetitions that trigger the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopThresholds {
    pub same_failure: u32,
    /// A tool fails, with any arguments.
    pub tool_failure: u32,
    pub same_result: u32,
}

/// Thresholds for the warning and for the end of tool use. `None`: never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopLimits {
    pub warn: Option<LoopThresholds>,
    pub stop: Option<LoopThresholds>,
}

impl LoopLimits {
    pub const WARN: LoopThresholds = LoopThresholds { same_failure: 2, tool_failure: 3, same_result: 2 };
    pub const STOP: LoopThresholds = LoopThresholds { same_failure: 5, tool_failure: 8, same_result: 5 };
}

impl Default for LoopLimits {
    fn default() -> Self {
        Self { warn: Some(Self::WARN), stop: None }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LoopGuard {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    calls: Vec<(u64, u32)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tools: Vec<(u64, u32)>,
    /// Last result of each read-only call and its consecutive repetitions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    results: Vec<(u64, (u64, u32))>,
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    stopped: bool,
}

impl LoopGuard {
    pub const fn has_stopped(&self) -> bool {
        self.stopped
    }

    /// Records a result and returns a warning for the model.
    pub(super) fn observe(
        &mut self,
        limits: LoopLimits,
        call: &ToolCall,
        content: &str,
        progress: CallProgress,
    ) -> Option<String> {
        let call_digest = digest(&[&call.name, &call.arguments]);
        let tool_digest = digest(&[&call.name]);
        let (reached, warning) = match progress {
            CallProgress::None => return None,
            CallProgress::Failed => {
                let same = increment(&mut self.calls, call_digest);
                let failed = increment(&mut self.tools, tool_digest);
                let text = |at: LoopThresholds| (same >= at.same_failure, failed >= at.tool_failure);
                let warning = match limits.warn.map(text) {
                    Some((true, _)) => format!(
                        "this call has failed {same} times with the same arguments. Do not repeat it unchanged: \
                         use other arguments or another way, or tell the user about the obstacle."
                    ),
                    Some((false, true)) => format!(
                        "{} has failed {failed} times in a row. Find out why before you continue, or try another way.",
                        call.name
                    ),
                    Some((false, false)) | None => String::new(),
                };
                (limits.stop.map(text).is_some_and(|(same, failed)| same || failed), warning)
            }
            CallProgress::Changed => {
                self.reset_failures(call_digest, tool_digest);
                self.results.clear();
                return None;
            }
            CallProgress::Read => {
                self.reset_failures(call_digest, tool_digest);
                let times = self.count_result(call_digest, digest(&[content]));
                let repeats = |at: LoopThresholds| times >= at.same_result;
                let warning = if limits.warn.is_some_and(repeats) {
                    format!(
                        "this call has given the same result {times} times. Use what you have, or ask for something else."
                    )
                } else {
                    String::new()
                };
                (limits.stop.is_some_and(repeats), warning)
            }
        };
        self.stopped |= reached;
        (!warning.is_empty()).then(|| format!("[Tool loop warning: {warning}]"))
    }

    fn reset_failures(&mut self, call_digest: u64, tool: u64) {
        self.calls.retain(|(known, _)| *known != call_digest);
        self.tools.retain(|(known, _)| *known != tool);
    }

    /// Consecutive times that this call gave this result.
    fn count_result(&mut self, call_digest: u64, result: u64) -> u32 {
        let before = self.results.iter().position(|(known, _)| *known == call_digest);
        let (last, times) = before.map_or((result, 0), |at| self.results.remove(at).1);
        let times = if last == result { times.saturating_add(1) } else { 1 };
        remember(&mut self.results, (call_digest, (result, times)));
        times
    }
}

fn increment(counts: &mut Vec<(u64, u32)>, key: u64) -> u32 {
    let before = counts.iter().position(|(known, _)| *known == key);
    let count = before.map_or(0, |at| counts.remove(at).1).saturating_add(1);
    remember(counts, (key, count));
    count
}

fn remember<T>(list: &mut Vec<T>, new: T) {
    if list.len() >= REMEMBERED {
        list.remove(0);
    }
    list.push(new);
}

/// FNV-1a. A collision costs one needless warning.
fn digest(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use CallProgress::{Changed, Failed, Read};

    use super::*;

    /// For each call (tool, arguments, result): whether a warning is given; `stopped`: whether the guard stops at the end.
    #[track_caller]
    fn check(limits: LoopLimits, calls: &[(&str, &str, &str, CallProgress)], warned: &[bool], stopped: bool) {
        let mut guard = LoopGuard::default();
        let mut seen = Vec::new();
        for (name, arguments, content, progress) in calls {
            let call = ToolCall { id: "c".into(), name: (*name).into(), arguments: (*arguments).into() };
            let warning = guard.observe(limits, &call, content, *progress);
            assert!(warning.iter().all(|text| text.starts_with("[Tool loop warning: ")));
            seen.push(warning.is_some());
        }
        assert_eq!((seen.as_slice(), guard.has_stopped()), (warned, stopped));
    }

    #[test]
    fn warns_at_second_same_call_or_third_same_tool_failure() {
        let warn = LoopLimits::default();
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
    fn warns_about_repeated_reads_without_a_change() {
        let warn = LoopLimits::default();
        let read = ("r", "{}", "x", Read);
        check(
            warn,
            &[read, read, ("r", "{}", "y", Read), ("r", "{}", "y", Read)],
            &[false, true, false, true],
            false,
        );
        check(warn, &[read, ("w", "{}", "ok", Changed), read], &[false; 3], false);
        check(warn, &[("d", "{}", "same as x", CallProgress::None); 4], &[false; 4], false);
    }

    #[test]
    fn stops_only_if_configured() {
        let stop = LoopLimits { warn: None, stop: Some(LoopLimits::STOP) };
        let fails = |count| alloc::vec![("a", "{}", "e", Failed); count];
        check(
            LoopLimits::default(),
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
    fn bounds_its_lists() {
        let mut guard = LoopGuard::default();
        for number in 0..1_000 {
            let call = ToolCall { id: "c".into(), name: format!("t{number}"), arguments: "{}".into() };
            guard.observe(LoopLimits::default(), &call, "x", Read);
            guard.observe(LoopLimits::default(), &call, "x", Failed);
        }
        assert_eq!((guard.calls.len(), guard.tools.len(), guard.results.len()), (64, 64, 64));
    }
}
