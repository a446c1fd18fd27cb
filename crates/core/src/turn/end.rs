//! The ways a turn ends. Each is one transaction: the last row, what is owed, the end, and the inbox settled.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::step::{Decision, Effect};
use super::{Phase, Turn};
use crate::ids::InboxId;
use crate::journal::{Outcome, Write};
use crate::media;
use crate::message::Delivery;
use crate::outbox::{Button, Draft, Kind};
use crate::text::is_silence_marker;
use crate::time::Millis;
use crate::transcript::Message;

pub(super) enum Whole {
    Yes,
    No,
}

/// The answer, its delivery and the end of the turn: one transaction.
pub(super) fn end_with_answer(
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
pub(super) fn end_with_notice(turn: Turn, outcome: Outcome, notice: String, now: Millis) -> (Turn, Decision) {
    let mut decision = Decision::default();
    decision
        .writes
        .push(Write::Append { session: turn.session.clone(), message: Message::notice(notice.clone(), now) });
    owe(&turn, Some(turn.step), Kind::Notice, notice, &mut decision);
    over(turn, outcome, now, decision)
}

impl Turn {
    /// Something is said beside the answer: kept for its reader, never shown to the model, and owed where nobody comes for it.
    pub fn notice(&self, text: String, now: Millis) -> Vec<Write> {
        let mut decision = Decision::default();
        decision.writes.push(Write::Append {
            session: self.session.clone(),
            message: Message::notice(text.clone(), now),
        });
        owe(self, None, Kind::Notice, text, &mut decision);
        decision.writes
    }
}

pub(super) fn give_up(turn: Turn, now: Millis) -> (Turn, Decision) {
    let notice = format!(
        "⚠️ I could not finish this: the gateway was interrupted {} times while working on it, so I have \
         stopped trying. Nothing else is affected.",
        turn.crashes
    );
    given_up(turn, Some(notice), now)
}

/// With a notice, its author may have it tried again, with other words if need be, or drop it.
pub(super) fn given_up(turn: Turn, notice: Option<String>, now: Millis) -> (Turn, Decision) {
    match notice {
        Some(notice) => {
            let id = turn.id;
            let text = format!(
                "{notice}\n\n/retry {id} tries it again, /retry {id} <new text> tries it with other words, /drop {id} \
                 drops it."
            );
            let button = |label: &str, data| Button { label: label.to_owned(), data };
            let buttons =
                vec![button("Try again", format!("/retry {id}")), button("Drop", format!("/drop {id}"))];
            let (turn, mut decision) = end_with_notice(turn, Outcome::Dead, text, now);
            for write in &mut decision.writes {
                if let Write::Owe(draft) = write {
                    draft.buttons.clone_from(&buttons);
                }
            }
            (turn, decision)
        }
        None => {
            let mut decision = Decision::default();
            close(&turn, turn.step, String::new(), &mut decision);
            over(turn, Outcome::Dead, now, decision)
        }
    }
}

/// Ends at its author's wish: what was shown stays, marked as stopped.
pub(super) fn interrupted(turn: Turn, shown: &str, writes: Vec<Write>, now: Millis) -> (Turn, Decision) {
    let decision = broken_off(&turn, shown, writes, now);
    over(turn, Outcome::Cancelled, now, decision)
}

/// Ends because nothing happens any more: what was shown stays, and the notice comes after it.
pub(super) fn stalled(
    turn: Turn,
    shown: &str,
    writes: Vec<Write>,
    notice: String,
    now: Millis,
) -> (Turn, Decision) {
    let mut decision = broken_off(&turn, shown, writes, now);
    decision
        .writes
        .push(Write::Append { session: turn.session.clone(), message: Message::notice(notice.clone(), now) });
    owe(&turn, None, Kind::Notice, notice, &mut decision);
    over(turn, Outcome::Refused, now, decision)
}

/// The transcript is closed with what the author has seen.
fn broken_off(turn: &Turn, shown: &str, writes: Vec<Write>, now: Millis) -> Decision {
    let mut decision = Decision { writes, effects: vec![] };
    let shown = media::broken_off(shown.trim_end());
    let kept = if shown.is_empty() {
        "(stopped before an answer)".to_owned()
    } else {
        format!("{shown}\n\n(stopped)")
    };
    let text = if shown.is_empty() { String::new() } else { kept.clone() };
    decision
        .writes
        .push(Write::Append { session: turn.session.clone(), message: Message::assistant(kept, now) });
    close(turn, turn.step, text, &mut decision);
    decision
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
pub(super) fn owe(turn: &Turn, step: Option<u32>, kind: Kind, text: String, decision: &mut Decision) {
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
pub(super) fn close(turn: &Turn, step: u32, text: String, decision: &mut Decision) {
    match turn.route.delivery {
        Delivery::Pull => {}
        Delivery::Push => {
            decision.writes.push(Write::ClosePreview { turn: turn.id, step, text });
            decision.effects.push(Effect::Deliver { lane: turn.route.lane() });
        }
    }
}
