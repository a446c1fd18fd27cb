//! How questions end: an answer, the end of their time or their turn, or a start that finds them.

use petasos_agent::Question;
use petasos_approval::{Answer, Choice, Effect, Ending, Event, Queue, Which};
use petasos_core::capability::Capabilities;
use petasos_core::journal::Write;
use petasos_core::outbox::{Draft, State};
use petasos_core::transcript::Message;
use petasos_core::{LaneId, Millis, SessionKey, Source, TurnId};
use petasos_store::{Error as StoreError, QuestionRow, Reads, Tx};

use super::{Questions, Settled, as_ask, outcome, read};
use crate::links::channels::Channels;
use crate::runtime::commit::Commit;
use crate::runtime::tasks;
use crate::{Error, clock};

/// Who answers, and from where.
#[derive(Debug, Clone)]
pub(crate) struct Who {
    /// The session they write in.
    pub(crate) key: SessionKey,
    pub(crate) source: Source,
    /// It is the owner's own place: questions of every session may be answered there.
    pub(crate) owner: bool,
    /// When they wrote, as far as is known: nobody answers what was asked after that.
    pub(crate) written_at: Millis,
}

/// What an answer met.
#[derive(Debug)]
pub(crate) enum Found {
    /// At least one of them.
    Settled(Vec<Settled>),
    /// That question has ended before, like this.
    Over(String),
    /// Nothing waits, or nothing of that name.
    Nothing,
    /// It was asked elsewhere, of others.
    NotTheirs,
}

impl Questions {
    /// Ends one question, unless it has ended: gives the ending that stands.
    pub(super) async fn end(&self, id: &str, ending: Ending) -> Result<Ending, Error> {
        let (questions, id) = (self.clone(), id.to_owned());
        tasks::uncancelled(async move { questions.end_stored(id, ending).await }).await?
    }

    async fn end_stored(&self, id: String, ending: Ending) -> Result<Ending, Error> {
        let (channels, fallback) = (self.0.channels.clone(), ending.clone());
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

/// Ends a question and says so where it was asked. `None`: it had ended before.
pub(super) fn settle(
    tx: &Tx<'_>,
    channels: &Channels,
    row: &QuestionRow,
    ending: Ending,
    now: Millis,
) -> Result<Option<Settled>, StoreError> {
    let written = serde_json::to_string(&ending).map_err(|_| StoreError::Unreadable("ending"))?;
    if !tx.end_question(&row.id, &written, now)? {
        return Ok(None);
    }
    let question = read(row)?;
    if let (Question::Approval { categories, .. }, Ending::Allowed { choice }) = (&question, &ending) {
        tx.approve(&row.session, categories, *choice, now)?;
    }
    let text = outcome(&question, &ending);
    let mut last = None;
    let lane = match row.outbox {
        Some(item) => {
            let route = tx.item(item)?.map(|item| item.draft.route);
            let edits = route.as_ref().is_some_and(|route| channels.capabilities(route.platform).edit);
            match &route {
                Some(_) if edits => tx.amend(item, &text, now)?,
                Some(route) => {
                    let said =
                        Draft { session_key: Some(row.key.clone()), ..Draft::notice(route.clone(), &text) };
                    tx.apply(&[Write::Owe(said)], now)?;
                }
                // A person dropped it.
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
    let (id, key) = (row.id.clone(), row.key.clone());
    Ok(Some(Settled { id, key, ending, text, lane, last }))
}

/// Carries out what somebody answered to questions of consent.
pub(crate) fn answer(
    tx: &Tx<'_>,
    channels: &Channels,
    who: &Who,
    answer: Answer,
    now: Millis,
) -> Result<Found, StoreError> {
    let mut key = who.key.clone();
    if let Which::Id(id) = &answer.which {
        let Some(row) = tx.question(id)? else { return Ok(Found::Nothing) };
        if row.key != who.key && !who.owner && !is_same_person(&row.origin, &who.source) {
            return Ok(Found::NotTheirs);
        }
        if let Some(ending) = row.ending.as_deref().and_then(|it| serde_json::from_str(it).ok()) {
            return Ok(Found::Over(outcome(&read(&row)?, &ending)));
        }
        key = row.key;
    }
    let named = matches!(answer.which, Which::Id(_));
    let mut rows = Vec::new();
    for row in tx.open_questions(&key)? {
        if named || can_be_meant(tx, channels, &row, who.written_at)? {
            rows.push(row);
        }
    }
    settle_meant(tx, channels, &rows, answer, now)
}

/// The same for what one turn asked: whoever answers it answers no other.
pub(crate) fn answer_turn(
    tx: &Tx<'_>,
    channels: &Channels,
    turn: TurnId,
    answer: Answer,
    now: Millis,
) -> Result<Found, StoreError> {
    let mut rows = tx.questions_of_turn(turn)?;
    rows.retain(|row| row.ending.is_none());
    settle_meant(tx, channels, &rows, answer, now)
}

fn settle_meant(
    tx: &Tx<'_>,
    channels: &Channels,
    rows: &[QuestionRow],
    answer: Answer,
    now: Millis,
) -> Result<Found, StoreError> {
    let mut asks = Vec::new();
    for row in rows {
        let question = read(row)?;
        asks.extend(as_ask(&row.id, &question, row.expires_at));
        // A question in words can only be turned away.
        let meant = matches!(&answer.which, Which::Id(id) if *id == row.id);
        if matches!(question, Question::Clarify { .. }) && meant && answer.choice == Choice::Deny {
            let ending = Ending::Denied { reason: answer.reason.clone() };
            return Ok(Found::Settled(settle(tx, channels, row, ending, now)?.into_iter().collect()));
        }
    }
    let (_, effects) = Queue::of(asks).step(now, Event::Answered(answer));
    let mut settled = Vec::new();
    for effect in effects {
        match effect {
            Effect::Settle { id, ending } => {
                let Some(row) = rows.iter().find(|row| row.id == id) else { continue };
                settled.extend(settle(tx, channels, row, ending, now)?);
            }
            // Settling remembers; nothing is asked by an answer.
            Effect::Remember { .. } | Effect::Show { .. } => {}
        }
    }
    Ok(if settled.is_empty() { Found::Nothing } else { Found::Settled(settled) })
}

/// Words that answer the oldest question in words. `None`: none waits.
pub(crate) fn said(
    tx: &Tx<'_>,
    channels: &Channels,
    who: &Who,
    text: &str,
    now: Millis,
) -> Result<Option<Settled>, StoreError> {
    for row in tx.open_questions(&who.key)? {
        if let Question::Clarify { choices, .. } = read(&row)?
            && can_be_meant(tx, channels, &row, who.written_at)?
        {
            let chosen = text.trim().parse::<usize>().ok().and_then(|at| choices.get(at.checked_sub(1)?));
            let text = chosen.map_or(text, String::as_str).to_owned();
            return settle(tx, channels, &row, Ending::Said { text }, now);
        }
    }
    Ok(None)
}

/// Whether words that name no question can be about this one: they were written after it was asked, and all of it was on
/// its way to the author.
fn can_be_meant(
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
    // A question of several messages can be answered once its last message has arrived: an approval must cover the whole command.
    // Of one that fits into one message, what may have arrived counts: its author may have read it.
    let split = may_be_split(&channels.capabilities(item.draft.route.platform), &item.draft.text);
    let on_its_way = item.tried_at.is_some() || !item.sent.is_empty();
    Ok(item.state == State::Done || (on_its_way && !split))
}

/// Markup and the mark of a repeated message may double a text.
fn may_be_split(can: &Capabilities, text: &str) -> bool {
    can.unit.len(text).saturating_mul(2) > can.max_message
}

/// A new process: nobody waits for these any more. Gives the lanes through which people hear of it.
pub(crate) fn lose(tx: &Tx<'_>, channels: &Channels, now: Millis) -> Result<Vec<LaneId>, StoreError> {
    let rows = tx.all_open_questions()?;
    if !rows.is_empty() {
        tracing::warn!(count = rows.len(), "questions are lost; what they were about was not run");
    }
    let mut lanes = Vec::new();
    for row in &rows {
        lanes.extend(settle(tx, channels, row, Ending::Lost, now)?.and_then(|settled| settled.lane));
    }
    Ok(lanes)
}

/// The calls of a turn that had to wait for an answer and did not get their yes: they were not run.
pub(crate) fn unstarted(reads: &Reads, turn: TurnId) -> Result<Vec<String>, StoreError> {
    let rows = reads.questions_of_turn(turn)?;
    let agreed = |row: &&QuestionRow| {
        let ending = row.ending.as_deref().and_then(|ending| serde_json::from_str(ending).ok());
        matches!(ending, Some(Ending::Allowed { .. } | Ending::Said { .. }))
    };
    let began: Vec<_> = rows.iter().filter(agreed).map(|row| &row.call).collect();
    Ok(rows.iter().map(|row| &row.call).filter(|call| !began.contains(call)).cloned().collect())
}

fn is_same_person(asked: &Source, answering: &Source) -> bool {
    asked.platform == answering.platform && asked.user_id.is_some() && asked.user_id == answering.user_id
}
