//! While tools run: group by group, in the order in which the model asked for them.
//!
//! The result of the last call of a group and the start of the next group are one commit, so after a crash it is
//! certain which calls can have had an effect: those of the group that was under way. Nothing of a later one has begun.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::end::{give_up, given_up, interrupted, stalled};
use super::step::{Decision, Effect, Event, Limits, ToolEnd, ask};
use super::{Phase, Turn};
use crate::ids::InboxId;
use crate::journal::Write;
use crate::time::Millis;
use crate::transcript::{EffectState, Message, ToolCall};

/// The calls of one answer.
pub(super) struct Batch {
    pub(super) calls: Vec<ToolCall>,
    /// Those without a result.
    pub(super) open: Vec<String>,
    pub(super) groups: Vec<u32>,
}

impl Batch {
    /// The open calls of the first group that has any.
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

    /// Rows for calls that will have no result: those under way may have had an effect, the others have not begun, and
    /// neither have those that waited for somebody's consent.
    fn broken_off(&self, turn: &Turn, why: Why, unstarted: &[String], now: Millis) -> Vec<Write> {
        let current = self.current();
        let open = self.calls.iter().filter(|call| self.open.contains(&call.id));
        let row = |call: &ToolCall| {
            let (content, effect) = match current.contains(call) {
                true if unstarted.contains(&call.id) => (why.unanswered(), EffectState::Cancelled),
                true => (why.running(), EffectState::Unknown),
                false => (why.waiting(), EffectState::Cancelled),
            };
            let message = Message::tool(call, content, effect, now);
            Write::Append { session: turn.session.clone(), message }
        };
        open.map(row).collect()
    }
}

impl Turn {
    /// The tool calls under way, or waiting for approval.
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
    limits: Limits,
    now: Millis,
    event: Event,
) -> (Turn, Decision) {
    match event {
        Event::ToolEnded { attempt, call, end, steer } if attempt == turn.attempt => {
            let running = batch.current();
            let Some(ended) = running.iter().find(|known| known.id == call) else {
                return (turn, Decision::default());
            };
            batch.open.retain(|id| *id != call);
            let mut writes = claim_steered(&mut turn, &steer);
            let ToolEnd { mut content, effect, progress } = end;
            if let Some(warning) = turn.guard.observe(limits.patience, ended, &content, progress) {
                content = format!("{content}\n\n{warning}");
            }
            let message = Message::tool(ended, steered(content, &steer), effect, now);
            writes.push(Write::Append { session: turn.session.clone(), message });
            let begins = if running.len() == 1 { batch.current() } else { vec![] };
            go_on(turn, batch, begins, limits, writes)
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
                return go_on(turn, batch, again, limits, vec![]);
            }
            // What came after them may have relied on them: the model decides anew. Only what can be had again is.
            let kept: Vec<_> = again.iter().map(|call| call.id.clone()).collect();
            let given_up: Vec<_> = batch.open.iter().filter(|id| !kept.contains(id)).cloned().collect();
            let rows = batch.broken_off(&turn, Why::Crash, &unstarted, now).into_iter();
            let writes = rows.filter(|row| names(row, &given_up)).collect();
            batch.open = kept;
            go_on(turn, batch, again, limits, writes)
        }
        Event::Interrupted { shown, unstarted } => {
            let writes = batch.broken_off(&turn, Why::Stopped, &unstarted, now);
            interrupted(turn, &shown, writes, now)
        }
        Event::Stalled { shown, notice } => {
            let writes = batch.broken_off(&turn, Why::Stalled, &[], now);
            stalled(turn, &shown, writes, notice, now)
        }
        Event::GivenUp { notice } => given_up(turn, notice, now),
        Event::Started { .. }
        | Event::Answered { .. }
        | Event::Relieved { .. }
        | Event::CallFailed { .. }
        | Event::ToolEnded { .. } => (turn, Decision::default()),
    }
}

/// Results are in, or still awaited. `begins`: what is started now.
fn go_on(
    mut turn: Turn,
    batch: Batch,
    begins: Vec<ToolCall>,
    limits: Limits,
    mut writes: Vec<Write>,
) -> (Turn, Decision) {
    if batch.open.is_empty() {
        return ask(turn, limits, writes);
    }
    turn.phase = batch.into();
    writes.push(Write::PutTurn(turn.clone()));
    let attempt = turn.attempt;
    let begins = (!begins.is_empty()).then_some(Effect::RunTools { attempt, calls: begins });
    (turn, Decision { writes, effects: begins.into_iter().collect() })
}

/// Why calls have no result.
#[derive(Clone, Copy)]
enum Why {
    Crash,
    Stopped,
    Stalled,
}

impl Why {
    const fn running(self) -> &'static str {
        match self {
            Self::Crash => {
                r#"{"error":"The gateway was interrupted while this tool ran. Its effect is UNKNOWN: it may or may not have happened, and it was not run again. Check before repeating it.","effect_disposition":"unknown"}"#
            }
            Self::Stopped => {
                r#"{"error":"Stopped by the user while this tool ran. Its effect is UNKNOWN: it may have happened in part.","effect_disposition":"unknown"}"#
            }
            Self::Stalled => {
                r#"{"error":"This tool did not come to an end and was given up. Its effect is UNKNOWN: it may have happened in part.","effect_disposition":"unknown"}"#
            }
        }
    }

    const fn unanswered(self) -> &'static str {
        match self {
            Self::Crash => {
                r#"{"error":"NOT RUN: the gateway was interrupted while the user was being asked about this call, and the question is lost. There is no consent. Ask the user before you try it again.","effect_disposition":"none"}"#
            }
            Self::Stopped | Self::Stalled => {
                r#"{"error":"NOT RUN: the turn was stopped while the user was being asked about this call. There is no consent.","effect_disposition":"none"}"#
            }
        }
    }

    const fn waiting(self) -> &'static str {
        match self {
            Self::Crash => {
                r#"{"error":"Not started: the gateway was interrupted during an earlier call of the same answer. Ask for it again if it is still wanted.","effect_disposition":"none"}"#
            }
            Self::Stopped => {
                r#"{"error":"Not started: the user stopped the work first.","effect_disposition":"none"}"#
            }
            Self::Stalled => {
                r#"{"error":"Not started: an earlier call of the same answer did not come to an end.","effect_disposition":"none"}"#
            }
        }
    }
}

/// Whether a row is the result of one of these calls.
fn names(row: &Write, calls: &[String]) -> bool {
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
