//! Transitions of the turn, one function per phase. `acting.rs` has the tool phase, `end.rs` the final transitions.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::acting::{Batch, acting};
use super::end::{
    Completeness, close_preview, end_with_answer, end_with_notice, enqueue, give_up, given_up, interrupted,
    stalled,
};
use super::guard::{CallProgress, LoopLimits};
use super::{Phase, Turn};
use crate::compaction::Compaction;
use crate::ids::InboxId;
use crate::journal::{MessageOutcome, Write};
use crate::message::LaneId;
use crate::notices;
use crate::outbox::Kind;
use crate::time::Millis;
use crate::transcript::{EffectState, Message, ToolCall, UsageRecord};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnLimits {
    /// Model calls per turn with tools; one more call without tools sums up.
    pub steps: u32,
    pub compactions: u32,
    pub crashes: u32,
    pub loops: LoopLimits,
}

impl Default for TurnLimits {
    fn default() -> Self {
        Self { steps: 90, compactions: 3, crashes: 3, loops: LoopLimits::default() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelAnswer {
    pub text: String,
    pub calls: Vec<ToolCall>,
    /// Sizes of the groups that run one after the other. Empty: one group.
    pub groups: Vec<u32>,
    pub unknown_tools_only: bool,
    pub usage: UsageRecord,
    /// The text is incomplete, so the turn does not clear the session's resume mark.
    pub partial: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolReport {
    pub content: String,
    pub effect: EffectState,
    pub progress: CallProgress,
}

/// Why the model is called without tools for its last answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cutoff {
    StepLimit,
    LoopDetected,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Started {
        rows: Vec<Message>,
    },
    /// The turn was found open at start. `clean`: the previous process stopped on purpose. `repeatable`: open calls
    /// without side effects. `unstarted`: calls that never ran because their approval was pending.
    Recovered {
        clean: bool,
        repeatable: Vec<String>,
        unstarted: Vec<String>,
    },
    Answered {
        attempt: u32,
        answer: ModelAnswer,
    },
    /// The transcript was too long for the model and is compacted.
    Compacted {
        attempt: u32,
        compaction: Compaction,
        usage: UsageRecord,
    },
    /// The model is unavailable; the notice tells the user the reason and the remedy.
    CallFailed {
        attempt: u32,
        notice: String,
    },
    /// `steer`: messages to show to the model with this result.
    ToolFinished {
        attempt: u32,
        call: String,
        report: ToolReport,
        steer: Vec<(InboxId, String)>,
    },
    /// The turn is not resumed. `notice` is for the author; `None`: no notice.
    GivenUp {
        notice: Option<String>,
    },
    /// The idle timeout expired. `shown`: the visible part of the answer.
    Stalled {
        shown: String,
        notice: String,
    },
    /// The author stopped the turn. `shown`: the visible part of the answer. `unstarted`: as above.
    Interrupted {
        shown: String,
        unstarted: Vec<String>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnEffect {
    /// `cutoff`: the last call, without tools.
    CallModel { attempt: u32, cutoff: Option<Cutoff> },
    /// Run these calls concurrently; the next group starts when all have finished.
    RunTools { attempt: u32, calls: Vec<ToolCall> },
    /// An outbox item became due in this lane.
    Deliver { lane: LaneId },
    /// The session may start its next turn.
    Finished { outcome: MessageOutcome },
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    /// One transaction, in this order.
    pub writes: Vec<Write>,
    pub effects: Vec<TurnEffect>,
}

pub fn step(turn: Turn, limits: TurnLimits, now: Millis, event: Event) -> (Turn, Decision) {
    match turn.phase.clone() {
        Phase::Thinking => thinking(turn, limits, now, event),
        Phase::Acting { calls, open, groups } => {
            acting(turn, Batch { calls, open, groups }, limits, now, event)
        }
        Phase::Over => (turn, Decision::default()),
    }
}

fn thinking(mut turn: Turn, limits: TurnLimits, now: Millis, event: Event) -> (Turn, Decision) {
    match event {
        Event::Started { rows } => {
            let mut writes = vec![Write::ClaimInbox { inbox: turn.inbox.clone(), turn: turn.id }];
            let session = &turn.session;
            writes
                .extend(rows.into_iter().map(|message| Write::Append { session: session.clone(), message }));
            call_model(turn, limits, writes)
        }
        Event::Recovered { clean, .. } => {
            turn.crashes += u32::from(!clean);
            if turn.crashes >= limits.crashes {
                return give_up(turn, now);
            }
            call_model(turn, limits, vec![])
        }
        Event::Answered { attempt, answer } if attempt == turn.attempt => answered(turn, limits, now, answer),
        Event::Compacted { attempt, compaction, usage } if attempt == turn.attempt => {
            turn.compactions += 1;
            turn.usage.add(usage.tokens);
            let key = turn.key.clone();
            let session = turn.session.clone();
            let add_usage = Write::AddUsage { key: key.clone(), session: session.clone(), usage };
            call_model(turn, limits, vec![add_usage, Write::Compact { key, session, compaction, at: now }])
        }
        Event::CallFailed { attempt, notice } if attempt == turn.attempt => {
            end_with_notice(turn, MessageOutcome::Refused, notice, now)
        }
        Event::Interrupted { shown, .. } => interrupted(turn, &shown, vec![], now),
        Event::Stalled { shown, notice } => stalled(turn, &shown, vec![], notice, now),
        Event::GivenUp { notice } => given_up(turn, notice, now),
        // Results of an older attempt.
        Event::Answered { .. }
        | Event::Compacted { .. }
        | Event::CallFailed { .. }
        | Event::ToolFinished { .. } => (turn, Decision::default()),
    }
}

pub(super) fn call_model(mut turn: Turn, limits: TurnLimits, mut writes: Vec<Write>) -> (Turn, Decision) {
    turn.phase = Phase::Thinking;
    turn.attempt += 1;
    writes.push(Write::PutTurn(turn.clone()));
    let call = TurnEffect::CallModel { attempt: turn.attempt, cutoff: cutoff(&turn, limits) };
    (turn, Decision { writes, effects: vec![call] })
}

fn cutoff(turn: &Turn, limits: TurnLimits) -> Option<Cutoff> {
    if turn.step >= limits.steps {
        return Some(Cutoff::StepLimit);
    }
    turn.guard.has_stopped().then_some(Cutoff::LoopDetected)
}

fn answered(mut turn: Turn, limits: TurnLimits, now: Millis, answer: ModelAnswer) -> (Turn, Decision) {
    let step = turn.step;
    let cutoff = cutoff(&turn, limits);
    turn.step += 1;
    turn.unknown_tool_answers = if answer.unknown_tools_only { turn.unknown_tool_answers + 1 } else { 0 };
    turn.usage.add(answer.usage.tokens);
    turn.partial = answer.partial;
    let add_usage =
        Write::AddUsage { key: turn.key.clone(), session: turn.session.clone(), usage: answer.usage };
    let lost = turn.unknown_tool_answers >= MAX_UNKNOWN_TOOL_ANSWERS;
    if answer.calls.is_empty() || cutoff.is_some() || lost {
        let completeness =
            if answer.partial || lost { Completeness::Partial } else { Completeness::Complete };
        let text = final_text(answer.text, cutoff, lost);
        return end_with_answer(turn, step, text, completeness, add_usage, now);
    }
    let mut decision = Decision { writes: vec![add_usage], effects: vec![] };
    decision.writes.push(Write::Append {
        session: turn.session.clone(),
        message: Message::tool_request(answer.text.clone(), answer.calls.clone(), now),
    });
    if answer.text.trim().is_empty() {
        close_preview(&turn, step, String::new(), &mut decision);
    } else {
        enqueue(&turn, Some(step), Kind::Answer, answer.text, &mut decision);
    }
    turn.attempt += 1;
    let open = answer.calls.iter().map(|call| call.id.clone()).collect();
    let batch = Batch { calls: answer.calls, open, groups: answer.groups };
    let first = batch.current();
    turn.phase = batch.into();
    decision.writes.push(Write::PutTurn(turn.clone()));
    decision.effects.push(TurnEffect::RunTools { attempt: turn.attempt, calls: first });
    (turn, decision)
}

/// The answer with the reason why the model was stopped, if it was.
fn final_text(text: String, cutoff: Option<Cutoff>, lost: bool) -> String {
    let reason = match cutoff {
        Some(Cutoff::StepLimit) => notices::STEP_LIMIT,
        Some(Cutoff::LoopDetected) => notices::LOOP_DETECTED,
        None if lost => notices::UNKNOWN_TOOLS,
        None if text.trim().is_empty() => notices::NOTHING_TO_SAY,
        None => return text,
    };
    if text.trim().is_empty() {
        return reason.to_owned();
    }
    format!("{}\n\n{reason}", text.trim_end())
}

/// Maximum consecutive answers with unknown tools only.
const MAX_UNKNOWN_TOOL_ANSWERS: u32 = 3;

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
