//! The turn machine itself: one function per phase.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::{Phase, Turn};
use crate::compaction::Relief;
use crate::ids::InboxId;
use crate::journal::{Outcome, Write};
use crate::message::Delivery;
use crate::outbox::{Draft, Kind};
use crate::text::is_silence_marker;
use crate::time::Millis;
use crate::transcript::{Bill, EffectState, Message, ToolCall};

/// Bounds of every turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Model answers per turn; the last one is asked for without tools.
    pub steps: u32,
    /// How often room may be made for one turn.
    pub reliefs: u32,
    /// How often a turn may take the process down before it is given up.
    pub crashes: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { steps: 90, reliefs: 3, crashes: 3 }
    }
}

/// What a model call brought back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub text: String,
    pub calls: Vec<ToolCall>,
    pub bill: Bill,
    /// The text is not all there: a turn that ends like this proves nothing about its session.
    pub partial: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The claimed messages, as transcript rows.
    Started {
        rows: Vec<Message>,
    },
    /// The process came back and found this turn open. `clean`: it had stopped on purpose.
    /// `repeatable`: open calls without side effects.
    Recovered {
        clean: bool,
        repeatable: Vec<String>,
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
        content: String,
        effect: EffectState,
        steer: Vec<(InboxId, String)>,
    },
    /// It will not be taken up again. The notice tells its author; `None`: nobody is to be told.
    GivenUp {
        notice: Option<String>,
    },
    /// The author wants it to end. `shown`: what they have seen of the answer so far.
    Interrupted {
        shown: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Ask the model. `last`: without tools, because the budget is spent.
    CallModel {
        attempt: u32,
        last: bool,
    },
    RunTools {
        attempt: u32,
        calls: Vec<ToolCall>,
    },
    /// Something became due in this lane.
    Deliver {
        lane: String,
    },
    /// The turn is over; the session may start the next one.
    Finished {
        outcome: Outcome,
    },
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
        Phase::Acting { calls, open } => acting(turn, calls, open, limits, now, event),
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
            if turn.crashes > limits.crashes {
                return give_up(turn, now);
            }
            ask(turn, limits, vec![])
        }
        Event::Answered { attempt, answer } if attempt == turn.attempt => answered(turn, limits, now, answer),
        Event::Relieved { attempt, relief, bill } if attempt == turn.attempt => {
            turn.relieved += 1;
            let (key, session) = (turn.key.clone(), turn.session.clone());
            let spend = Write::Spend { key: key.clone(), session: session.clone(), bill };
            ask(turn, limits, vec![spend, Write::Relieve { key, session, relief, at: now }])
        }
        Event::CallFailed { attempt, notice } if attempt == turn.attempt => {
            end_with_notice(turn, Outcome::Refused, notice, now)
        }
        Event::Interrupted { shown } => interrupted(turn, &shown, vec![], now),
        Event::GivenUp { notice } => given_up(turn, notice, now),
        // Answers to a call we have given up on, and tools of an attempt that is over.
        Event::Answered { .. }
        | Event::Relieved { .. }
        | Event::CallFailed { .. }
        | Event::ToolEnded { .. } => (turn, Decision::default()),
    }
}

fn acting(
    mut turn: Turn,
    calls: Vec<ToolCall>,
    mut open: Vec<String>,
    limits: Limits,
    now: Millis,
    event: Event,
) -> (Turn, Decision) {
    match event {
        Event::ToolEnded { attempt, call, content, effect, steer } if attempt == turn.attempt => {
            let Some(ended) = calls.iter().find(|c| c.id == call).cloned() else {
                return (turn, Decision::default());
            };
            if !open.contains(&call) {
                return (turn, Decision::default());
            }
            open.retain(|id| *id != call);
            let mut writes = claim_steered(&mut turn, &steer);
            let content = steered(content, &steer);
            writes.push(Write::Append {
                session: turn.session.clone(),
                message: Message::tool(&ended, content, effect, now),
            });
            go_on_acting(turn, calls, open, limits, writes)
        }
        Event::Recovered { clean, repeatable } => {
            turn.crashes += u32::from(!clean);
            if turn.crashes > limits.crashes {
                return give_up(turn, now);
            }
            let lost = |id: &String| !repeatable.contains(id);
            let writes =
                lost_results(&turn, &calls, open.iter().filter(|id| lost(id)), LOST_IN_A_RESTART, now);
            open.retain(|id| !lost(id));
            turn.attempt += 1;
            let again = calls.iter().filter(|call| open.contains(&call.id)).cloned().collect();
            let attempt = turn.attempt;
            let (turn, mut decision) = go_on_acting(turn, calls, open, limits, writes);
            if matches!(turn.phase, Phase::Acting { .. }) {
                decision.effects.insert(0, Effect::RunTools { attempt, calls: again });
            }
            (turn, decision)
        }
        Event::Interrupted { shown } => {
            let writes = lost_results(&turn, &calls, open.iter(), STOPPED_BY_THE_USER, now);
            interrupted(turn, &shown, writes, now)
        }
        Event::GivenUp { notice } => given_up(turn, notice, now),
        Event::Started { .. }
        | Event::Answered { .. }
        | Event::Relieved { .. }
        | Event::CallFailed { .. }
        | Event::ToolEnded { .. } => (turn, Decision::default()),
    }
}

/// Results are in, or still awaited.
fn go_on_acting(
    mut turn: Turn,
    calls: Vec<ToolCall>,
    open: Vec<String>,
    limits: Limits,
    mut writes: Vec<Write>,
) -> (Turn, Decision) {
    if open.is_empty() {
        return ask(turn, limits, writes);
    }
    turn.phase = Phase::Acting { calls, open };
    writes.push(Write::PutTurn(turn.clone()));
    (turn, Decision { writes, effects: vec![] })
}

/// Asks the model under a new attempt.
fn ask(mut turn: Turn, limits: Limits, mut writes: Vec<Write>) -> (Turn, Decision) {
    turn.phase = Phase::Thinking;
    turn.attempt += 1;
    writes.push(Write::PutTurn(turn.clone()));
    let call = Effect::CallModel { attempt: turn.attempt, last: turn.step + 1 >= limits.steps };
    (turn, Decision { writes, effects: vec![call] })
}

fn answered(mut turn: Turn, limits: Limits, now: Millis, answer: Answer) -> (Turn, Decision) {
    let step = turn.step;
    turn.step += 1;
    let spend = Write::Spend { key: turn.key.clone(), session: turn.session.clone(), bill: answer.bill };
    if answer.calls.is_empty() || turn.step >= limits.steps {
        let spent = !answer.calls.is_empty();
        let text = match answer.text.trim().is_empty() {
            false => answer.text,
            true if spent => STEPS_SPENT.to_owned(),
            true => NOTHING_SAID.to_owned(),
        };
        let whole = if answer.partial { Whole::No } else { Whole::Yes };
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
    turn.phase = Phase::Acting { calls: answer.calls.clone(), open };
    decision.writes.push(Write::PutTurn(turn.clone()));
    decision.effects.push(Effect::RunTools { attempt: turn.attempt, calls: answer.calls });
    (turn, decision)
}

enum Whole {
    Yes,
    No,
}

/// The answer, its delivery and the end of the turn: one transaction.
fn end_with_answer(
    turn: Turn,
    step: u32,
    text: String,
    whole: Whole,
    spend: Write,
    now: Millis,
) -> (Turn, Decision) {
    let mut decision = Decision { writes: vec![spend], effects: vec![] };
    decision.writes.push(Write::Append {
        session: turn.session.clone(),
        message: Message::assistant(text.clone(), now),
    });
    if is_silence_marker(&text) {
        close(&turn, step, String::new(), &mut decision);
    } else {
        owe(&turn, Some(step), Kind::Answer, text, &mut decision);
    }
    match whole {
        Whole::Yes => decision.writes.push(Write::ClearResume { key: turn.key.clone() }),
        Whole::No => {}
    }
    over(turn, Outcome::Answered, now, decision)
}

/// No answer, but the truth about it. The model never sees the notice.
fn end_with_notice(turn: Turn, outcome: Outcome, notice: String, now: Millis) -> (Turn, Decision) {
    let mut decision = Decision::default();
    decision
        .writes
        .push(Write::Append { session: turn.session.clone(), message: Message::notice(notice.clone(), now) });
    owe(&turn, Some(turn.step), Kind::Notice, notice, &mut decision);
    over(turn, outcome, now, decision)
}

fn give_up(turn: Turn, now: Millis) -> (Turn, Decision) {
    let notice = format!(
        "⚠️ I could not finish this: the gateway was interrupted {} times while working on it, so I have \
         stopped trying. Nothing else is affected. Send it again if you still want it (reference {}).",
        turn.crashes, turn.id
    );
    end_with_notice(turn, Outcome::Dead, notice, now)
}

fn given_up(turn: Turn, notice: Option<String>, now: Millis) -> (Turn, Decision) {
    match notice {
        Some(notice) => end_with_notice(turn, Outcome::Dead, notice, now),
        None => {
            let mut decision = Decision::default();
            close(&turn, turn.step, String::new(), &mut decision);
            over(turn, Outcome::Dead, now, decision)
        }
    }
}

/// Ends at its author's wish: what was shown stays, marked as stopped.
fn interrupted(turn: Turn, shown: &str, writes: Vec<Write>, now: Millis) -> (Turn, Decision) {
    let mut decision = Decision { writes, effects: vec![] };
    let shown = shown.trim_end();
    let kept = if shown.is_empty() {
        "(stopped before an answer)".to_owned()
    } else {
        format!("{shown}\n\n(stopped)")
    };
    let text = if shown.is_empty() { String::new() } else { kept.clone() };
    decision
        .writes
        .push(Write::Append { session: turn.session.clone(), message: Message::assistant(kept, now) });
    let step = turn.step;
    close(&turn, step, text, &mut decision);
    over(turn, Outcome::Cancelled, now, decision)
}

fn over(mut turn: Turn, outcome: Outcome, now: Millis, mut decision: Decision) -> (Turn, Decision) {
    turn.phase = Phase::Over;
    decision.writes.push(Write::PutTurn(turn.clone()));
    decision.writes.push(Write::EndTurn { turn: turn.id, outcome, at: now });
    let own = InboxId::from(turn.id);
    let others: Vec<_> = turn.inbox.iter().copied().filter(|id| *id != own).collect();
    decision.writes.push(Write::SettleInbox { inbox: vec![own], outcome, at: now });
    if !others.is_empty() {
        let shared = if outcome == Outcome::Answered { Outcome::Merged } else { outcome };
        decision.writes.push(Write::SettleInbox { inbox: others, outcome: shared, at: now });
    }
    decision.effects.push(Effect::Finished { outcome });
    (turn, decision)
}

/// Owes a text to the turn's route. A reader who comes for it needs no parcel.
fn owe(turn: &Turn, step: Option<u32>, kind: Kind, text: String, decision: &mut Decision) {
    match turn.route.delivery {
        Delivery::Pull => {}
        Delivery::Push => {
            decision.writes.push(Write::Owe(Draft {
                route: turn.route.clone(),
                session_key: Some(turn.key.clone()),
                turn: step.map(|step| (turn.id, step)),
                kind,
                text,
                buttons: vec![],
            }));
            decision.effects.push(Effect::Deliver { lane: turn.route.lane() });
        }
    }
}

/// Ends what is visible of a step. Only what was pushed can be.
fn close(turn: &Turn, step: u32, text: String, decision: &mut Decision) {
    match turn.route.delivery {
        Delivery::Pull => {}
        Delivery::Push => {
            decision.writes.push(Write::ClosePreview { turn: turn.id, step, text });
            decision.effects.push(Effect::Deliver { lane: turn.route.lane() });
        }
    }
}

fn lost_results<'a>(
    turn: &Turn,
    calls: &[ToolCall],
    lost: impl Iterator<Item = &'a String>,
    why: &str,
    now: Millis,
) -> Vec<Write> {
    lost.filter_map(|id| calls.iter().find(|call| call.id == *id))
        .map(|call| Write::Append {
            session: turn.session.clone(),
            message: Message::tool(call, why, EffectState::Unknown, now),
        })
        .collect()
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
    for (at, (_, text)) in steer.iter().enumerate() {
        if at > 0 {
            content.push('\n');
        }
        content.push_str(text);
    }
    content.push_str("\n[/OUT-OF-BAND USER MESSAGE]");
    content
}

const LOST_IN_A_RESTART: &str = "{\"error\":\"The gateway was interrupted while this tool ran. Its effect is UNKNOWN: \
it may or may not have happened, and it was not run again. Check before repeating it.\"}";
const STOPPED_BY_THE_USER: &str = "{\"error\":\"Stopped by the user while this tool ran. Its effect is UNKNOWN: it may \
have happened in part.\"}";
const NOTHING_SAID: &str = "I have nothing to say to that. Please put it differently.";
const STEPS_SPENT: &str = "I have used up the number of steps allowed for one message and have to stop here. Tell me to \
go on and I will continue from what has been done so far.";

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
