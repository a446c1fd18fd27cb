//! Selects the rows to compact: the first and the newest rows stay, the middle is summarised or its tool
//! results are emptied.
//!
//! A tool call is never separated from its results, and the newest user message always stays.

use std::ops::Range;

use petasos_core::compaction::ReplacedRows;
use petasos_core::ids::RowId;
use petasos_core::transcript::{CLEARED_TOOL_OUTPUT, Message, Role};

use super::CompactionLimits;
use crate::conversation::history::estimate_tokens;

const HEAD: usize = 3;
/// Rows kept at the end, if they fit.
const TAIL: usize = 20;
/// Rows kept at the end after the provider has refused the prompt.
const SHORT_TAIL: usize = 4;
/// Minimum number of rows worth a summary.
const MIDDLE: usize = 3;
/// Minimum length of a tool result worth emptying.
const OUTPUT: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionTrigger {
    /// The conversation reached our own limit.
    Threshold,
    /// A person asked for it, or the provider refused the prompt.
    Forced,
}

/// The transcript that would be sent to the model.
#[derive(Debug, Clone, Copy)]
pub struct CompactionInput<'a> {
    pub rows: &'a [Message],
    pub ids: &'a [RowId],
    /// Tokens of the system prompt and the tools.
    pub fixed: usize,
    /// Tokens of the last prompt as counted by the provider; 0 if unknown.
    pub reported: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionPlan {
    emptied: Vec<usize>,
    middle: Option<Range<usize>>,
}

/// Estimated size after a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactedSize {
    pub tokens: usize,
    /// Tokens up to the newest assistant row, as the provider would count them.
    pub prompt: u64,
}

impl CompactionInput<'_> {
    /// Tokens of the next prompt: the provider's last count plus an estimate of the rows since.
    pub fn tokens(&self) -> usize {
        match (self.reported, self.newest()) {
            (reported @ 1.., Some(newest)) => {
                usize::try_from(reported).unwrap_or(usize::MAX).saturating_add(size(&self.rows[newest..]))
            }
            _ => self.estimate(),
        }
    }

    pub fn is_long(&self, limits: CompactionLimits) -> bool {
        self.rows.len() > limits.rows || self.tokens() >= limits.tokens
    }

    /// `None` if nothing can be removed.
    pub fn plan(&self, limits: CompactionLimits, trigger: CompactionTrigger) -> Option<CompactionPlan> {
        let head = self.head(limits);
        let tail = self.tail(limits, trigger).max(head);
        let old = self.outputs(head..tail);
        if trigger == CompactionTrigger::Threshold
            && self.rows.len() <= limits.rows
            && self.frees_enough(&old, limits)
        {
            return Some(CompactionPlan { emptied: old, middle: None });
        }
        if tail - head >= MIDDLE {
            let emptied = if trigger == CompactionTrigger::Forced {
                self.outputs(tail..self.last_batch())
            } else {
                vec![]
            };
            return Some(CompactionPlan { emptied, middle: Some(head..tail) });
        }
        let emptied = self.outputs(0..self.last_batch());
        (!emptied.is_empty()).then_some(CompactionPlan { emptied, middle: None })
    }

    /// The rows to summarise, including an earlier summary.
    pub fn rows_to_summarise(&self, plan: &CompactionPlan) -> Vec<&Message> {
        let question = self.question();
        let middle = plan.middle.clone().unwrap_or_default();
        middle.filter(|at| Some(*at) != question).map(|at| &self.rows[at]).collect()
    }

    pub fn rows_to_empty(&self, plan: &CompactionPlan) -> Vec<RowId> {
        plan.emptied.iter().map(|at| self.ids[*at]).collect()
    }

    /// The replacement for the store to apply; `None` if no rows are replaced.
    pub fn replacement(&self, plan: &CompactionPlan, summary: String) -> Option<ReplacedRows> {
        let middle = plan.middle.clone()?;
        let question = self.question().filter(|at| middle.contains(at));
        let head = self.ids[..middle.start].iter().copied();
        let keep = head.chain(question.map(|at| self.ids[at])).collect();
        let through = self.ids[middle.end - 1];
        // The summary goes before the open question, unless the question comes first.
        let place = match question {
            Some(at) if at > middle.start => self.ids[at - 1],
            Some(_) | None => through,
        };
        Some(ReplacedRows { through, keep, position: place, summary })
    }

    pub fn size_after(&self, plan: &CompactionPlan, summary: &str) -> CompactedSize {
        let question = self.question();
        let newest = self.newest().unwrap_or(0);
        let removed = |at: usize| {
            plan.middle.as_ref().is_some_and(|middle| middle.contains(&at)) && Some(at) != question
        };
        let remaining = |range: Range<usize>| -> usize {
            let rows = range.filter(|at| !removed(*at));
            rows.map(|at| {
                if plan.emptied.contains(&at) {
                    CLEARED_TOOL_OUTPUT.len() / 4 + 4
                } else {
                    estimate_tokens(&self.rows[at])
                }
            })
            .sum()
        };
        let before = self.fixed + summary.len() / 4 + remaining(0..newest);
        let all = before + remaining(newest..self.rows.len());
        CompactedSize { tokens: self.corrected(all), prompt: self.corrected(before) as u64 }
    }

    fn estimate(&self) -> usize {
        self.fixed.saturating_add(size(self.rows))
    }

    /// Scales an estimate by the ratio of the provider's last count to our own.
    fn corrected(&self, estimate: usize) -> usize {
        let counted = self.tokens() as u128;
        let ours = self.estimate().max(1) as u128;
        let scaled = (estimate as u128) * counted.clamp(ours / 2, ours * 4) / ours;
        usize::try_from(scaled).unwrap_or(usize::MAX)
    }

    fn newest(&self) -> Option<usize> {
        self.rows.iter().rposition(|row| row.role == Role::Assistant)
    }

    fn question(&self) -> Option<usize> {
        self.rows.iter().rposition(|row| row.role == Role::User)
    }

    /// Index of the first row that the model has not seen yet.
    fn last_batch(&self) -> usize {
        self.newest().unwrap_or(self.rows.len())
    }

    fn head(&self, limits: CompactionLimits) -> usize {
        let mut head = HEAD.min(self.rows.len());
        while head > 0 && size(&self.rows[..head]) > limits.tokens / 5 {
            head -= 1;
        }
        // An earlier summary must lie in the middle so that it is updated.
        let summary = self.rows.iter().position(|row| row.role == Role::Summary);
        self.call_boundary(head.min(summary.unwrap_or(head)))
    }

    fn tail(&self, limits: CompactionLimits, trigger: CompactionTrigger) -> usize {
        let (budget, least) = match trigger {
            CompactionTrigger::Threshold => (limits.tokens / 5, TAIL),
            CompactionTrigger::Forced => ((limits.tokens / 10).min(size(self.rows) / 4), SHORT_TAIL),
        };
        let most = (limits.rows / 4).max(least);
        let mut tokens = 0;
        let mut start = self.rows.len();
        while start > 0 {
            tokens += estimate_tokens(&self.rows[start - 1]);
            let count = self.rows.len() - start + 1;
            if count > most || tokens > limits.tokens / 2 || (count > least && tokens > budget) {
                break;
            }
            start -= 1;
        }
        self.call_boundary(start)
    }

    /// The nearest index at or before `at` that does not separate a call from its results.
    fn call_boundary(&self, mut at: usize) -> usize {
        while at > 0 && self.rows.get(at).is_some_and(|row| row.role == Role::Tool) {
            at -= 1;
        }
        at
    }

    fn outputs(&self, range: Range<usize>) -> Vec<usize> {
        let worth_emptying = |row: &Message| row.role == Role::Tool && row.content.len() > OUTPUT;
        range.filter(|at| worth_emptying(&self.rows[*at])).collect()
    }

    /// Whether emptying outputs alone leaves a quarter of the limit free.
    fn frees_enough(&self, outputs: &[usize], limits: CompactionLimits) -> bool {
        let plan = CompactionPlan { emptied: outputs.to_vec(), middle: None };
        !outputs.is_empty() && self.size_after(&plan, "").tokens < limits.tokens / 4 * 3
    }
}

fn size(rows: &[Message]) -> usize {
    rows.iter().map(estimate_tokens).sum()
}

#[cfg(test)]
mod tests {
    use petasos_core::Millis;
    use petasos_core::transcript::{EffectState, ToolCall};

    use super::*;

    const LIMITS: CompactionLimits = CompactionLimits { tokens: 4_000, rows: 400 };

    const IDS: [RowId; 1_000] = {
        let mut ids = [RowId(0); 1_000];
        let mut at = 0;
        while at < 1_000 {
            ids[at] = RowId(at as i64 + 1);
            at += 1;
        }
        ids
    };

    fn user(size: usize) -> Message {
        Message::user("u".repeat(size), Millis(0))
    }

    fn answer(size: usize) -> Message {
        Message::assistant("a".repeat(size), Millis(0))
    }

    fn used(id: usize, size: usize) -> [Message; 2] {
        let call = ToolCall { id: format!("c{id}"), name: "clock".into(), arguments: "{}".into() };
        let result = Message::tool(&call, "r".repeat(size), EffectState::Known, Millis(0));
        [Message::tool_request("", vec![call], Millis(0)), result]
    }

    fn of(rows: &[Message]) -> CompactionInput<'_> {
        CompactionInput { rows, ids: &IDS[..rows.len()], fixed: 0, reported: 0 }
    }

    fn talk(exchanges: usize, size: usize) -> Vec<Message> {
        (0..exchanges).flat_map(|_| [user(size), answer(size)]).collect()
    }

    #[test]
    fn provider_count_replaces_estimate() {
        let rows = talk(3, 400);
        let ours = CompactionInput { fixed: 50, ..of(&rows) };
        assert_eq!(ours.tokens(), 50 + 6 * 104);
        let reported = CompactionInput { reported: 3_000, ..ours };
        assert_eq!(reported.tokens(), 3_000 + 104, "the newest answer came after that prompt");
        assert!(!ours.is_long(LIMITS) && reported.is_long(CompactionLimits { tokens: 3_100, ..LIMITS }));
        assert!(ours.is_long(CompactionLimits { rows: 5, ..LIMITS }));
    }

    #[test]
    fn keeps_first_and_newest_rows() {
        let rows = talk(40, 400);
        let conversation = of(&rows);
        let plan = conversation.plan(LIMITS, CompactionTrigger::Threshold).expect("a plan");
        let middle = plan.middle.clone().expect("rows to sum up");
        assert_eq!((middle.start, rows.len() - middle.end), (3, 19), "half of the limit at most");
        let replaced = conversation.replacement(&plan, "s".into()).expect("replaced");
        assert_eq!(replaced.keep, [RowId(1), RowId(2), RowId(3)]);
        assert_eq!((replaced.through, replaced.position), (RowId(61), RowId(61)));
        let after = conversation.size_after(&plan, "s");
        assert!(after.tokens < LIMITS.tokens / 4 * 3, "{after:?}");
    }

    #[test]
    fn compacts_many_short_rows() {
        let rows = talk(300, 4);
        let plan = of(&rows).plan(LIMITS, CompactionTrigger::Threshold).expect("a plan");
        let middle = plan.middle.expect("rows to sum up");
        assert_eq!(rows.len() - middle.end, 100);
    }

    #[test]
    fn empties_old_outputs_first() {
        let mut rows: Vec<Message> = (0..6).flat_map(|id| used(id, 2_000)).collect();
        rows.insert(0, user(10));
        rows.extend((0..12).flat_map(|_| [user(40), answer(40)]));
        let conversation = of(&rows);
        let plan = conversation
            .plan(CompactionLimits { tokens: 3_000, rows: 400 }, CompactionTrigger::Threshold)
            .expect("a plan");
        assert_eq!(plan.middle, None);
        assert!(conversation.rows_to_empty(&plan).contains(&RowId(5)));
        assert!(conversation.size_after(&plan, "").tokens < 2_250);
    }

    #[test]
    fn keeps_calls_with_their_results() {
        let rows: Vec<Message> =
            [vec![user(4)], (0..60).flat_map(|id| used(id, 150)).collect(), vec![answer(4)]].concat();
        for extra in 0..4 {
            let rows = &rows[..rows.len() - extra];
            let plan = of(rows)
                .plan(CompactionLimits { tokens: 2_000, rows: 60 }, CompactionTrigger::Threshold)
                .expect("a plan");
            let middle = plan.middle.expect("rows to sum up");
            assert_ne!(rows[middle.start].role, Role::Tool);
            assert_ne!(rows[middle.end].role, Role::Tool);
        }
    }

    #[test]
    fn summary_goes_before_open_question() {
        let mut rows: Vec<Message> = (0..10).flat_map(|_| [user(40), answer(40)]).collect();
        rows.push(Message::user("the question", Millis(0)));
        rows.extend((0..40).flat_map(|id| used(id, 300)));
        let conversation = of(&rows);
        let plan = conversation
            .plan(CompactionLimits { tokens: 3_000, rows: 60 }, CompactionTrigger::Threshold)
            .expect("a plan");
        let replaced = conversation.replacement(&plan, "s".into()).expect("replaced");
        assert_eq!(replaced.keep, [RowId(1), RowId(2), RowId(3), RowId(21)]);
        assert_eq!(replaced.position, RowId(20));
        assert!(replaced.through > RowId(21));
        assert!(conversation.rows_to_summarise(&plan).iter().all(|row| row.content != "the question"));
    }

    #[test]
    fn summarises_earlier_summary_again() {
        let mut rows = vec![user(4), Message::summary("before", Millis(0))];
        rows.extend((0..40).flat_map(|_| [user(400), answer(400)]));
        let conversation = of(&rows);
        let plan = conversation.plan(LIMITS, CompactionTrigger::Threshold).expect("a plan");
        assert_eq!(conversation.rows_to_summarise(&plan)[0].content, "before");
    }

    #[test]
    fn forced_pass_empties_outputs_of_short_conversation() {
        let [ask, result] = used(1, 4_000);
        let rows = vec![user(4), ask, result, answer(4), user(4)];
        let conversation = of(&rows);
        let plan = conversation.plan(LIMITS, CompactionTrigger::Forced).expect("a plan");
        assert_eq!((conversation.rows_to_empty(&plan), plan.middle), (vec![RowId(3)], None));
        let rows = vec![user(40_000)];
        assert_eq!(of(&rows).plan(LIMITS, CompactionTrigger::Forced), None);
    }
}
