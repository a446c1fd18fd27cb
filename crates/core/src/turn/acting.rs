//! The tool phase: groups of calls run one after the other.
//!
//! The result of the last call of a group and the start of the next group are one commit. After a crash, therefore, only
//! the calls of the current group can have had an effect. A call whose outcome is unknown is reported to the model; only a
//! read-only one is repeated.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::end::{give_up, given_up, interrupted, stalled};
use super::step::{Decision, Event, ToolReport, TurnEffect, TurnLimits, call_model};
use super::{Phase, Turn};
use crate::ids::InboxId;
use crate::journal::Write;
use crate::time::Millis;
use crate::transcript::{EffectState, Message, ToolCall};

pub(super) struct Batch {
    pub(super) calls: Vec<ToolCall>,
    /// Ids of calls without a result.
    pub(super) open: Vec<String>,
    pub(super) groups: Vec<u32>,
}

impl Batch {
    /// The open calls of the current group.
    pub(super) fn current(&self) -> Vec<ToolCall> {
        let mut calls = self.calls.iter();
        for size in self.groups.iter().map(|size| *size as usize).chain([usize::MAX]) {
            let group = calls.by_ref().take(size).filter(|call| self.open.contains(&call.id));
            let group: Vec<_> = group.cloned().collect();
            if !group.is_empty() {
                return group;
            }
            if calls.len() == 0 {
                break;
            }
        }
        vec![]
    }

    /// Result rows for calls that will have no result. Running calls may have had an effect; waiting calls and calls with a
    /// pending approval have not started.
    fn missing_results(
        &self,
        turn: &Turn,
        reason: NoResult,
        unstarted: &[String],
        now: Millis,
    ) -> Vec<Write> {
        let current = self.current();
        let open = self.calls.iter().filter(|call| self.open.contains(&call.id));
        let row = |call: &ToolCall| {
            let (content, effect) = if !current.contains(call) {
                (reason.before_start(), EffectState::Cancelled)
            } else if unstarted.contains(&call.id) {
                (reason.awaiting_approval(), EffectState::Cancelled)
            } else {
                (reason.while_running(), EffectState::Unknown)
            };
            let message = Message::tool(call, content, effect, now);
            Write::Append { session: turn.session.clone(), message }
        };
        open.map(row).collect()
    }
}

impl Turn {
    /// The tool calls that run or wait for approval.
    pub fn running_calls(&self) -> Vec<ToolCall> {
        match self.phase.clone() {
            Phase::Acting { calls, open, groups } => Batch { calls, open, groups }.current(),
            Phase::Thinking | Phase::Over => vec![],
        }
    }
}

impl From<Batch> for Phase {
    fn from(Batch { calls, open, groups }: Batch) -> Self {
        Self::Acting { calls, open, groups }
    }
}

pub(super) fn acting(
    mut turn: Turn,
    mut batch: Batch,
    limits: TurnLimits,
    now: Millis,
    event: Event,
) -> (Turn, Decision) {
    match event {
        Event::ToolFinished { attempt, call, report: end, steer } if attempt == turn.attempt => {
            let running = batch.current();
            let Some(ended) = running.iter().find(|known| known.id == call) else {
                return (turn, Decision::default());
            };
            batch.open.retain(|id| *id != call);
            let mut writes = claim_steered(&mut turn, &steer);
            let ToolReport { mut content, effect, progress } = end;
            if let Some(warning) = turn.guard.observe(limits.loops, ended, &content, progress) {
                content = format!("{content}\n\n{warning}");
            }
            let message = Message::tool(ended, steered(content, &steer), effect, now);
            writes.push(Write::Append { session: turn.session.clone(), message });
            let start = if running.len() == 1 { batch.current() } else { vec![] };
            proceed(turn, batch, start, limits, writes)
        }
        Event::Recovered { clean, repeatable, unstarted } => {
            turn.crashes += u32::from(!clean);
            if turn.crashes >= limits.crashes {
                return give_up(turn, now);
            }
            turn.attempt += 1;
            let (again, lost): (Vec<_>, Vec<_>) =
                batch.current().into_iter().partition(|call| repeatable.contains(&call.id));
            if lost.is_empty() {
                return proceed(turn, batch, again, limits, vec![]);
            }
            // Later calls may depend on the lost ones, so the model decides again. Only repeatable calls are repeated.
            let kept: Vec<_> = again.iter().map(|call| call.id.clone()).collect();
            let given_up: Vec<_> = batch.open.iter().filter(|id| !kept.contains(id)).cloned().collect();
            let rows = batch.missing_results(&turn, NoResult::Crash, &unstarted, now).into_iter();
            let writes = rows.filter(|row| is_result_of(row, &given_up)).collect();
            batch.open = kept;
            proceed(turn, batch, again, limits, writes)
        }
        Event::Interrupted { shown, unstarted } => {
            let writes = batch.missing_results(&turn, NoResult::Stopped, &unstarted, now);
            interrupted(turn, &shown, writes, now)
        }
        Event::Stalled { shown, notice } => {
            let writes = batch.missing_results(&turn, NoResult::Stalled, &[], now);
            stalled(turn, &shown, writes, notice, now)
        }
        Event::GivenUp { notice } => given_up(turn, notice, now),
        Event::Started { .. }
        | Event::Answered { .. }
        | Event::Compacted { .. }
        | Event::CallFailed { .. }
        | Event::ToolFinished { .. } => (turn, Decision::default()),
    }
}

/// Waits for further results, or calls the model when all are in. `start`: calls to start now.
fn proceed(
    mut turn: Turn,
    batch: Batch,
    start: Vec<ToolCall>,
    limits: TurnLimits,
    mut writes: Vec<Write>,
) -> (Turn, Decision) {
    if batch.open.is_empty() {
        return call_model(turn, limits, writes);
    }
    turn.phase = batch.into();
    writes.push(Write::PutTurn(turn.clone()));
    let attempt = turn.attempt;
    let start = (!start.is_empty()).then_some(TurnEffect::RunTools { attempt, calls: start });
    (turn, Decision { writes, effects: start.into_iter().collect() })
}

#[derive(Clone, Copy)]
enum NoResult {
    Crash,
    Stopped,
    Stalled,
}

impl NoResult {
    const fn while_running(self) -> &'static str {
        match self {
            Self::Crash => {
                r#"{"error":"The gateway was interrupted while this tool ran. Its effect is UNKNOWN: it may or may not have happened, and it was not run again. Check before repeating it.","effect_disposition":"unknown"}"#
            }
            Self::Stopped => {
                r#"{"error":"Stopped by the user while this tool ran. Its effect is UNKNOWN: it may have happened in part.","effect_disposition":"unknown"}"#
            }
            Self::Stalled => {
                r#"{"error":"This tool did not end and was abandoned. Its effect is UNKNOWN: it may have happened in part.","effect_disposition":"unknown"}"#
            }
        }
    }

    const fn awaiting_approval(self) -> &'static str {
        match self {
            Self::Crash => {
                r#"{"error":"NOT RUN: the gateway was interrupted while the user was being asked about this call, and the question is lost. There is no consent. Ask the user before you try it again.","effect_disposition":"none"}"#
            }
            Self::Stopped | Self::Stalled => {
                r#"{"error":"NOT RUN: the turn was stopped while the user was being asked about this call. There is no consent.","effect_disposition":"none"}"#
            }
        }
    }

    const fn before_start(self) -> &'static str {
        match self {
            Self::Crash => {
                r#"{"error":"Not started: the gateway was interrupted during an earlier call of the same answer. Ask for it again if it is still wanted.","effect_disposition":"none"}"#
            }
            Self::Stopped => {
                r#"{"error":"Not started: the user stopped the work first.","effect_disposition":"none"}"#
            }
            Self::Stalled => {
                r#"{"error":"Not started: an earlier call of the same answer did not end.","effect_disposition":"none"}"#
            }
        }
    }
}

fn is_result_of(row: &Write, calls: &[String]) -> bool {
    matches!(row, Write::Append { message, .. } if message.tool_call_id.as_ref().is_some_and(|id| calls.contains(id)))
}

fn claim_steered(turn: &mut Turn, steer: &[(InboxId, String)]) -> Vec<Write> {
    if steer.is_empty() {
        return vec![];
    }
    let inbox: Vec<_> = steer.iter().map(|(id, _)| *id).collect();
    turn.inbox.extend(inbox.iter().copied());
    vec![Write::ClaimInbox { inbox, turn: turn.id }]
}

fn steered(mut content: String, steer: &[(InboxId, String)]) -> String {
    if steer.is_empty() {
        return content;
    }
    content.push_str("\n\n[OUT-OF-BAND USER MESSAGE — written while this tool ran; take it into account]\n");
    let texts: Vec<_> = steer.iter().map(|(_, text)| text.as_str()).collect();
    content.push_str(&texts.join("\n"));
    content.push_str("\n[/OUT-OF-BAND USER MESSAGE]");
    content
}
