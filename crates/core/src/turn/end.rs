//! Final transitions of a turn. Each is one transaction: last transcript row, outbox item, end of the turn, settled inbox.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::step::{Decision, TurnEffect};
use super::{Phase, Turn};
use crate::ids::InboxId;
use crate::journal::{MessageOutcome, Write};
use crate::media;
use crate::message::Delivery;
use crate::notices;
use crate::outbox::{Button, Draft, Kind};
use crate::text::is_silence_marker;
use crate::time::Millis;
use crate::transcript::Message;

pub(super) enum Completeness {
    Complete,
    Partial,
}

pub(super) fn end_with_answer(
    turn: Turn,
    step: u32,
    text: String,
    completeness: Completeness,
    add_usage: Write,
    now: Millis,
) -> (Turn, Decision) {
    let mut decision = Decision { writes: vec![add_usage], effects: vec![] };
    decision.writes.push(Write::Append {
        session: turn.session.clone(),
        message: Message::assistant(text.clone(), now),
    });
    if is_silence_marker(&text) {
        close_preview(&turn, step, String::new(), &mut decision);
    } else {
        enqueue(&turn, Some(step), Kind::Answer, text, &mut decision);
    }
    match completeness {
        Completeness::Complete => decision.writes.push(Write::ClearResume { key: turn.key.clone() }),
        Completeness::Partial => {}
    }
    finish(turn, MessageOutcome::Answered, now, decision)
}

/// Ends the turn with a notice that the model never sees.
pub(super) fn end_with_notice(
    turn: Turn,
    outcome: MessageOutcome,
    notice: String,
    now: Millis,
) -> (Turn, Decision) {
    let mut decision = Decision::default();
    decision
        .writes
        .push(Write::Append { session: turn.session.clone(), message: Message::notice(notice.clone(), now) });
    enqueue(&turn, Some(turn.step), Kind::Notice, notice, &mut decision);
    finish(turn, outcome, now, decision)
}

impl Turn {
    /// A notice beside the answer: stored in the transcript, hidden from the model, enqueued on push routes.
    pub fn notice(&self, text: String, now: Millis) -> Vec<Write> {
        let mut decision = Decision::default();
        decision.writes.push(Write::Append {
            session: self.session.clone(),
            message: Message::notice(text.clone(), now),
        });
        enqueue(self, None, Kind::Notice, text, &mut decision);
        decision.writes
    }
}

pub(super) fn give_up(turn: Turn, now: Millis) -> (Turn, Decision) {
    let notice = notices::gave_up(turn.crashes);
    given_up(turn, Some(notice), now)
}

/// Ends the turn as a dead letter. With a notice, the author can retry or drop the message.
pub(super) fn given_up(turn: Turn, notice: Option<String>, now: Millis) -> (Turn, Decision) {
    match notice {
        Some(notice) => {
            let id = turn.id;
            let text = notices::retry_options(&notice, id);
            let button = |label: &str, data| Button { label: label.to_owned(), data };
            let buttons = vec![
                button(notices::RETRY_BUTTON, format!("/retry {id}")),
                button(notices::DROP_BUTTON, format!("/drop {id}")),
            ];
            let (turn, mut decision) = end_with_notice(turn, MessageOutcome::Dead, text, now);
            for write in &mut decision.writes {
                if let Write::Enqueue(draft) = write {
                    draft.buttons.clone_from(&buttons);
                }
            }
            (turn, decision)
        }
        None => {
            let mut decision = Decision::default();
            close_preview(&turn, turn.step, String::new(), &mut decision);
            finish(turn, MessageOutcome::Dead, now, decision)
        }
    }
}

/// Ends the turn at the author's request: the visible part of the answer stays, marked as stopped.
pub(super) fn interrupted(turn: Turn, shown: &str, writes: Vec<Write>, now: Millis) -> (Turn, Decision) {
    let decision = store_visible_part(&turn, shown, writes, now);
    finish(turn, MessageOutcome::Cancelled, now, decision)
}

/// Ends the turn after the idle timeout: the visible part of the answer stays, followed by the notice.
pub(super) fn stalled(
    turn: Turn,
    shown: &str,
    writes: Vec<Write>,
    notice: String,
    now: Millis,
) -> (Turn, Decision) {
    let mut decision = store_visible_part(&turn, shown, writes, now);
    decision
        .writes
        .push(Write::Append { session: turn.session.clone(), message: Message::notice(notice.clone(), now) });
    enqueue(&turn, None, Kind::Notice, notice, &mut decision);
    finish(turn, MessageOutcome::Refused, now, decision)
}

fn store_visible_part(turn: &Turn, shown: &str, writes: Vec<Write>, now: Millis) -> Decision {
    let mut decision = Decision { writes, effects: vec![] };
    let shown = media::truncated_text(shown.trim_end());
    let stored = if shown.is_empty() {
        notices::STOPPED_BEFORE_ANSWER.to_owned()
    } else {
        format!("{shown}{}", notices::STOPPED_SUFFIX)
    };
    let text = if shown.is_empty() { String::new() } else { stored.clone() };
    decision
        .writes
        .push(Write::Append { session: turn.session.clone(), message: Message::assistant(stored, now) });
    close_preview(turn, turn.step, text, &mut decision);
    decision
}

fn finish(mut turn: Turn, outcome: MessageOutcome, now: Millis, mut decision: Decision) -> (Turn, Decision) {
    turn.phase = Phase::Over;
    decision.writes.push(Write::PutTurn(turn.clone()));
    decision.writes.push(Write::EndTurn { turn: turn.id, outcome, at: now });
    let own = InboxId::from(turn.id);
    let others: Vec<_> = turn.inbox.iter().copied().filter(|id| *id != own).collect();
    decision.writes.push(Write::SettleInbox { inbox: vec![own], outcome, at: now });
    if !others.is_empty() {
        let joint = if outcome == MessageOutcome::Answered { MessageOutcome::Merged } else { outcome };
        decision.writes.push(Write::SettleInbox { inbox: others, outcome: joint, at: now });
    }
    decision.effects.push(TurnEffect::Finished { outcome });
    (turn, decision)
}

/// Enqueues a text on a push route. On a pull route the transcript row is the delivery.
pub(super) fn enqueue(turn: &Turn, step: Option<u32>, kind: Kind, text: String, decision: &mut Decision) {
    match turn.route.delivery {
        Delivery::Pull => {}
        Delivery::Push => {
            decision.writes.push(Write::Enqueue(Draft {
                route: turn.route.clone(),
                session_key: Some(turn.key.clone()),
                turn: step.map(|step| (turn.id, step)),
                kind,
                text,
                buttons: vec![],
            }));
            decision.effects.push(TurnEffect::Deliver { lane: turn.route.lane() });
        }
    }
}

/// Completes or deletes the preview of a step. Only push routes have one.
pub(super) fn close_preview(turn: &Turn, step: u32, text: String, decision: &mut Decision) {
    match turn.route.delivery {
        Delivery::Pull => {}
        Delivery::Push => {
            decision.writes.push(Write::ClosePreview { turn: turn.id, step, text });
            decision.effects.push(TurnEffect::Deliver { lane: turn.route.lane() });
        }
    }
}
