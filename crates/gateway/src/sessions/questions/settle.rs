//! Ends questions: by an answer, a timeout, the end of the turn, or a restart.

use petasos_agent::Question;
use petasos_approval::{
    ApprovalOutcome, ApprovalReply, Choice, Event, QueueEffect, RequestQueue, RequestSelector,
};
use petasos_core::capability::Capabilities;
use petasos_core::journal::Write;
use petasos_core::outbox::{Draft, State};
use petasos_core::transcript::Message;
use petasos_core::{LaneId, Millis, SessionKey, Source, TurnId};
use petasos_store::{Error as StoreError, QuestionRow, Reads, Tx};

use super::{Questions, SettledQuestion, decode, render_outcome, to_ask};
use crate::links::channels::Channels;
use crate::runtime::commit::Commit;
use crate::runtime::tasks;
use crate::{Error, clock};

#[derive(Debug, Clone)]
pub(crate) struct Answerer {
    /// The session of their message.
    pub(crate) key: SessionKey,
    pub(crate) source: Source,
    /// Local channel or home channel: may answer questions of every session.
    pub(crate) owner: bool,
    /// When the message was written: it cannot answer a question that was asked later.
    pub(crate) written_at: Millis,
}

#[derive(Debug)]
pub(crate) enum AnswerOutcome {
    Settled(Vec<SettledQuestion>),
    /// The question had already ended, with this notice.
    AlreadyEnded(String),
    /// No open question, or none with this id.
    NoneOpen,
    /// Asked in another chat, of another person.
    NotAllowed,
}

impl Questions {
    /// Ends a question unless it has ended already; returns the outcome that stands.
    pub(super) async fn end(&self, id: &str, ending: ApprovalOutcome) -> Result<ApprovalOutcome, Error> {
        let questions = self.clone();
        let id = id.to_owned();
        tasks::uncancelled(async move { questions.end_stored(id, ending).await }).await?
    }

    async fn end_stored(&self, id: String, ending: ApprovalOutcome) -> Result<ApprovalOutcome, Error> {
        let channels = self.0.channels.clone();
        let fallback = ending.clone();
        let ended = self.0.db.write(Commit::Question, move |tx| {
            let Some(row) = tx.question(&id)? else { return Ok((None, None)) };
            let settled = settle(tx, &channels, &row, ending, clock::now())?;
            let stands = row.ending.as_deref().and_then(|ending| serde_json::from_str(ending).ok());
            Ok((settled, stands))
        });
        let (settled, stands) = ended.await?;
        let stands = settled.as_ref().map(|settled| settled.ending.clone()).or(stands).unwrap_or(fallback);
        self.release(settled.into_iter().collect()).await;
        Ok(stands)
    }
}

/// Ends a question and enqueues the notice. `None`: it had already ended.
pub(super) fn settle(
    tx: &Tx<'_>,
    channels: &Channels,
    row: &QuestionRow,
    ending: ApprovalOutcome,
    now: Millis,
) -> Result<Option<SettledQuestion>, StoreError> {
    let written = serde_json::to_string(&ending).map_err(|_| StoreError::Unreadable("ending"))?;
    if !tx.end_question(&row.id, &written, now)? {
        return Ok(None);
    }
    let question = decode(row)?;
    if let (Question::Approval { categories, .. }, ApprovalOutcome::Allowed { choice }) = (&question, &ending)
    {
        tx.approve(&row.session, categories, *choice, now)?;
    }
    let text = render_outcome(&question, &ending);
    let mut last = None;
    let lane = match row.outbox {
        Some(item) => {
            let route = tx.item(item)?.map(|item| item.draft.route);
            let edits = route.as_ref().is_some_and(|route| channels.capabilities(route.platform).edit);
            match &route {
                Some(_) if edits => tx.amend(item, &text, now)?,
                Some(route) => {
                    let notice =
                        Draft { session_key: Some(row.key.clone()), ..Draft::notice(route.clone(), &text) };
                    tx.apply(&[Write::Enqueue(notice)], now)?;
                }
                // The owner dropped the item.
                None => {}
            }
            route.map(|route| route.lane())
        }
        None => {
            let message = Message::notice(text.clone(), now);
            tx.apply(&[Write::Append { session: row.session.clone(), message }], now)?;
            last = tx.last_row(&row.session)?;
            if let Some(last) = last {
                tx.put_ended_row(&row.id, last)?;
            }
            None
        }
    };
    let id = row.id.clone();
    let key = row.key.clone();
    Ok(Some(SettledQuestion { id, key, ending, text, lane, last }))
}

/// Applies an answer to open approval requests.
pub(crate) fn answer_approval(
    tx: &Tx<'_>,
    channels: &Channels,
    who: &Answerer,
    answer: ApprovalReply,
    now: Millis,
) -> Result<AnswerOutcome, StoreError> {
    let mut key = who.key.clone();
    if let RequestSelector::Id(id) = &answer.which {
        let Some(row) = tx.question(id)? else { return Ok(AnswerOutcome::NoneOpen) };
        if row.key != who.key && !who.owner && !is_same_person(&row.origin, &who.source) {
            return Ok(AnswerOutcome::NotAllowed);
        }
        if let Some(ending) = row.ending.as_deref().and_then(|it| serde_json::from_str(it).ok()) {
            return Ok(AnswerOutcome::AlreadyEnded(render_outcome(&decode(&row)?, &ending)));
        }
        key = row.key;
    }
    let named = matches!(answer.which, RequestSelector::Id(_));
    let mut rows = Vec::new();
    for row in tx.open_questions(&key)? {
        if named || may_refer_to(tx, channels, &row, who.written_at)? {
            rows.push(row);
        }
    }
    settle_matching(tx, channels, &rows, answer, now)
}

/// Applies an answer to the approval requests of one turn only.
pub(crate) fn answer_turn_approval(
    tx: &Tx<'_>,
    channels: &Channels,
    turn: TurnId,
    answer: ApprovalReply,
    now: Millis,
) -> Result<AnswerOutcome, StoreError> {
    let mut rows = tx.questions_of_turn(turn)?;
    rows.retain(|row| row.ending.is_none());
    settle_matching(tx, channels, &rows, answer, now)
}

fn settle_matching(
    tx: &Tx<'_>,
    channels: &Channels,
    rows: &[QuestionRow],
    answer: ApprovalReply,
    now: Millis,
) -> Result<AnswerOutcome, StoreError> {
    let mut asks = Vec::new();
    for row in rows {
        let question = decode(row)?;
        asks.extend(to_ask(&row.id, &question, row.expires_at));
        // A clarifying question can only be declined this way.
        let meant = matches!(&answer.which, RequestSelector::Id(id) if *id == row.id);
        if matches!(question, Question::Clarify { .. }) && meant && answer.choice == Choice::Deny {
            let ending = ApprovalOutcome::Denied { reason: answer.reason.clone() };
            return Ok(AnswerOutcome::Settled(settle(tx, channels, row, ending, now)?.into_iter().collect()));
        }
    }
    let (_, effects) = RequestQueue::of(asks).step(now, Event::Answered(answer));
    let mut settled = Vec::new();
    for effect in effects {
        match effect {
            QueueEffect::Settle { id, ending } => {
                let Some(row) = rows.iter().find(|row| row.id == id) else { continue };
                settled.extend(settle(tx, channels, row, ending, now)?);
            }
            // `settle` stores lasting approvals, and an answer shows no further request.
            QueueEffect::Remember { .. } | QueueEffect::Show { .. } => {}
        }
    }
    Ok(if settled.is_empty() { AnswerOutcome::NoneOpen } else { AnswerOutcome::Settled(settled) })
}

/// Answers the oldest clarifying question. `None`: none is open.
pub(crate) fn answer_clarification(
    tx: &Tx<'_>,
    channels: &Channels,
    who: &Answerer,
    text: &str,
    now: Millis,
) -> Result<Option<SettledQuestion>, StoreError> {
    for row in tx.open_questions(&who.key)? {
        if let Question::Clarify { choices, .. } = decode(&row)?
            && may_refer_to(tx, channels, &row, who.written_at)?
        {
            let chosen = text.trim().parse::<usize>().ok().and_then(|at| choices.get(at.checked_sub(1)?));
            let text = chosen.map_or(text, String::as_str).to_owned();
            return settle(tx, channels, &row, ApprovalOutcome::Answered { text }, now);
        }
    }
    Ok(None)
}

/// Whether a reply without a question id can refer to this question: it was written later, and the whole question was on its way
/// to the author.
fn may_refer_to(
    tx: &Tx<'_>,
    channels: &Channels,
    row: &QuestionRow,
    written_at: Millis,
) -> Result<bool, StoreError> {
    if written_at < row.asked_at {
        return Ok(false);
    }
    let Some(item) = row.outbox else { return Ok(true) };
    let Some(item) = tx.item(item)? else { return Ok(false) };
    // An approval must cover the whole command: a question of several messages counts when the last one has arrived. A question of
    // one message may have been read even if its delivery is unconfirmed.
    let split = may_be_split(&channels.capabilities(item.draft.route.platform), &item.draft.text);
    let on_its_way = item.tried_at.is_some() || !item.sent.is_empty();
    Ok(item.state == State::Done || (on_its_way && !split))
}

/// Markup and the duplicate prefix may double the length.
fn may_be_split(can: &Capabilities, text: &str) -> bool {
    can.unit.len(text).saturating_mul(2) > can.max_message
}

/// Ends all open questions at startup as lost; returns the lanes of their notices.
pub(crate) fn mark_all_lost(
    tx: &Tx<'_>,
    channels: &Channels,
    now: Millis,
) -> Result<Vec<LaneId>, StoreError> {
    let rows = tx.all_open_questions()?;
    if !rows.is_empty() {
        tracing::warn!(count = rows.len(), "open questions lost in the restart; their commands were not run");
    }
    let mut lanes = Vec::new();
    for row in &rows {
        lanes.extend(settle(tx, channels, row, ApprovalOutcome::Lost, now)?.and_then(|settled| settled.lane));
    }
    Ok(lanes)
}

/// The calls of a turn whose approval was not given: they were not run.
pub(crate) fn unapproved_calls(reads: &Reads, turn: TurnId) -> Result<Vec<String>, StoreError> {
    let rows = reads.questions_of_turn(turn)?;
    let is_allowed = |row: &&QuestionRow| {
        let ending = row.ending.as_deref().and_then(|ending| serde_json::from_str(ending).ok());
        matches!(ending, Some(ApprovalOutcome::Allowed { .. } | ApprovalOutcome::Answered { .. }))
    };
    let allowed: Vec<_> = rows.iter().filter(is_allowed).map(|row| &row.call).collect();
    Ok(rows.iter().map(|row| &row.call).filter(|call| !allowed.contains(call)).cloned().collect())
}

fn is_same_person(original: &Source, answering: &Source) -> bool {
    original.platform == answering.platform
        && original.user_id.is_some()
        && original.user_id == answering.user_id
}
