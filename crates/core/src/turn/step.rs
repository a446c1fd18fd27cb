//! The turn machine itself: one function per phase. `acting.rs` has the one of tools, `end.rs` the ways a turn ends.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::acting::{Batch, acting};
use super::end::{
    Whole, close, end_with_answer, end_with_notice, give_up, given_up, interrupted, owe, stalled,
};
use super::guard::{Patience, Progress};
use super::{Phase, Turn};
use crate::compaction::Relief;
use crate::ids::InboxId;
use crate::journal::{Outcome, Write};
use crate::message::LaneId;
use crate::outbox::Kind;
use crate::time::Millis;
use crate::transcript::{Bill, EffectState, Message, ToolCall};

/// Bounds of every turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Model answers per turn that may ask for tools; one more sums up without them.
    pub steps: u32,
    /// How often room may be made for one turn.
    pub reliefs: u32,
    /// A turn that took the process down this often is given up.
    pub crashes: u32,
    /// How long a turn may go round in circles.
    pub patience: Patience,
}

impl Default for Limits {
    fn default() -> Self {
        Self { steps: 90, reliefs: 3, crashes: 3, patience: Patience::default() }
    }
}

/// What a model call brought back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub text: String,
    pub calls: Vec<ToolCall>,
    /// The sizes of the groups that run one after the other. Empty: all at once.
    pub groups: Vec<u32>,
    /// None of the tools it asks for exists.
    pub astray: bool,
    pub bill: Bill,
    /// The text is not all there: a turn that ends like this proves nothing about its session.
    pub partial: bool,
}

/// What a tool gave back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolEnd {
    pub content: String,
    pub effect: EffectState,
    pub progress: Progress,
}

/// Why the model gets no more tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closing {
    /// Its steps are used up.
    Spent,
    /// It goes round in circles.
    Circling,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The claimed messages, as transcript rows.
    Started {
        rows: Vec<Message>,
    },
    /// The process came back and found this turn open. `clean`: it had stopped on purpose.
    /// `repeatable`: open calls without side effects. `unstarted`: those that certainly never ran, because somebody
    /// had to agree first and had not.
    Recovered {
        clean: bool,
        repeatable: Vec<String>,
        unstarted: Vec<String>,
    },
    Answered {
        attempt: u32,
        answer: Answer,
    },
    /// The conversation had become too long for the model. What makes room, and what finding it has cost.
    Relieved {
        attempt: u32,
        relief: Relief,
        bill: Bill,
    },
    /// The model cannot be had; the text tells the user why and what to do.
    CallFailed {
        attempt: u32,
        notice: String,
    },
    /// A tool ended. `steer`: messages to be shown to the model beside this result.
    ToolEnded {
        attempt: u32,
        call: String,
        end: ToolEnd,
        steer: Vec<(InboxId, String)>,
    },
    /// It will not be taken up again. The notice tells its author; `None`: nobody is to be told.
    GivenUp {
        notice: Option<String>,
    },
    /// Nothing has happened for too long. `shown`: as below. The notice says what it was waiting for.
    Stalled {
        shown: String,
        notice: String,
    },
    /// The author wants it to end. `shown`: what they have seen of the answer so far. `unstarted`: as above.
    Interrupted {
        shown: String,
        unstarted: Vec<String>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Ask the model. `closing`: for the last time, and without tools.
    CallModel { attempt: u32, closing: Option<Closing> },
    /// All of them at the same time; the next ones come when these have ended.
    RunTools { attempt: u32, calls: Vec<ToolCall> },
    /// Something became due in this lane.
    Deliver { lane: LaneId },
    /// The turn is over; the session may start the next one.
    Finished { outcome: Outcome },
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    /// One transaction, in this order.
    pub writes: Vec<Write>,
    /// Started after the commit, in this order.
    pub effects: Vec<Effect>,
}

/// Feeds one event to a turn.
pub fn step(turn: Turn, limits: Limits, now: Millis, event: Event) -> (Turn, Decision) {
    match turn.phase.clone() {
        Phase::Thinking => thinking(turn, limits, now, event),
        Phase::Acting { calls, open, groups } => {
            acting(turn, Batch { calls, open, groups }, limits, now, event)
        }
        Phase::Over => (turn, Decision::default()),
    }
}

fn thinking(mut turn: Turn, limits: Limits, now: Millis, event: Event) -> (Turn, Decision) {
    match event {
        Event::Started { rows } => {
            let mut writes = vec![Write::ClaimInbox { inbox: turn.inbox.clone(), turn: turn.id }];
            let session = &turn.session;
            writes
                .extend(rows.into_iter().map(|message| Write::Append { session: session.clone(), message }));
            ask(turn, limits, writes)
        }
        Event::Recovered { clean, .. } => {
            turn.crashes += u32::from(!clean);
            if turn.crashes >= limits.crashes {
                return give_up(turn, now);
            }
            ask(turn, limits, vec![])
        }
        Event::Answered { attempt, answer } if attempt == turn.attempt => answered(turn, limits, now, answer),
        Event::Relieved { attempt, relief, bill } if attempt == turn.attempt => {
            turn.relieved += 1;
            turn.usage.add(bill.usage);
            let (key, session) = (turn.key.clone(), turn.session.clone());
            let spend = Write::Spend { key: key.clone(), session: session.clone(), bill };
            ask(turn, limits, vec![spend, Write::Relieve { key, session, relief, at: now }])
        }
        Event::CallFailed { attempt, notice } if attempt == turn.attempt => {
            end_with_notice(turn, Outcome::Refused, notice, now)
        }
        Event::Interrupted { shown, .. } => interrupted(turn, &shown, vec![], now),
        Event::Stalled { shown, notice } => stalled(turn, &shown, vec![], notice, now),
        Event::GivenUp { notice } => given_up(turn, notice, now),
        // Answers to a call we have given up on, and tools of an attempt that is over.
        Event::Answered { .. }
        | Event::Relieved { .. }
        | Event::CallFailed { .. }
        | Event::ToolEnded { .. } => (turn, Decision::default()),
    }
}

/// Asks the model under a new attempt.
pub(super) fn ask(mut turn: Turn, limits: Limits, mut writes: Vec<Write>) -> (Turn, Decision) {
    turn.phase = Phase::Thinking;
    turn.attempt += 1;
    writes.push(Write::PutTurn(turn.clone()));
    let call = Effect::CallModel { attempt: turn.attempt, closing: closing(&turn, limits) };
    (turn, Decision { writes, effects: vec![call] })
}

fn closing(turn: &Turn, limits: Limits) -> Option<Closing> {
    if turn.step >= limits.steps {
        return Some(Closing::Spent);
    }
    turn.guard.has_stopped().then_some(Closing::Circling)
}

fn answered(mut turn: Turn, limits: Limits, now: Millis, answer: Answer) -> (Turn, Decision) {
    let (step, closing) = (turn.step, closing(&turn, limits));
    turn.step += 1;
    turn.astray = if answer.astray { turn.astray + 1 } else { 0 };
    turn.usage.add(answer.bill.usage);
    turn.partial = answer.partial;
    let spend = Write::Spend { key: turn.key.clone(), session: turn.session.clone(), bill: answer.bill };
    let lost = turn.astray >= ASTRAY;
    if answer.calls.is_empty() || closing.is_some() || lost {
        let whole = if answer.partial || lost { Whole::No } else { Whole::Yes };
        let text = last_words(answer.text, closing, lost);
        return end_with_answer(turn, step, text, whole, spend, now);
    }
    let mut decision = Decision { writes: vec![spend], effects: vec![] };
    decision.writes.push(Write::Append {
        session: turn.session.clone(),
        message: Message::asking(answer.text.clone(), answer.calls.clone(), now),
    });
    if answer.text.trim().is_empty() {
        close(&turn, step, String::new(), &mut decision);
    } else {
        owe(&turn, Some(step), Kind::Answer, answer.text, &mut decision);
    }
    turn.attempt += 1;
    let open = answer.calls.iter().map(|call| call.id.clone()).collect();
    let batch = Batch { calls: answer.calls, open, groups: answer.groups };
    let first = batch.current();
    turn.phase = batch.into();
    decision.writes.push(Write::PutTurn(turn.clone()));
    decision.effects.push(Effect::RunTools { attempt: turn.attempt, calls: first });
    (turn, decision)
}

/// What an answer ends with if the model was kept from going on.
fn last_words(text: String, closing: Option<Closing>, lost: bool) -> String {
    let why = match closing {
        Some(Closing::Spent) => STEPS_SPENT,
        Some(Closing::Circling) => CIRCLING,
        None if lost => NO_SUCH_TOOLS,
        None if text.trim().is_empty() => NOTHING_SAID,
        None => return text,
    };
    if text.trim().is_empty() {
        return why.to_owned();
    }
    format!("{}\n\n{why}", text.trim_end())
}

/// So many answers in a row may ask only for tools that do not exist.
const ASTRAY: u32 = 3;
const NOTHING_SAID: &str = "I have nothing to say to that. Please put it differently.";
const STEPS_SPENT: &str = "(I have stopped here: the number of steps allowed for one message is used up. Say “go on” and I \
will continue from what has been done so far.)";
const CIRCLING: &str = "(I have stopped here: I was going round in circles. Tell me how to go on.)";
const NO_SUCH_TOOLS: &str =
    "(I have stopped here: I kept asking for tools that I do not have. Please put it differently.)";

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
