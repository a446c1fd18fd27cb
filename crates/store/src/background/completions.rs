//! Background completions: one durable event per dispatch, addressed to a session.
//!
//! A completion is queued, then delivered as an inbox message, then consumed with that message. It is consumed early if
//! the session learned the result another way, and undeliverable if its transcript has ended.

use petasos_core::{Inbound, InboxId, Millis, SessionId, SessionKey, Source};
use rusqlite::{Row, params};

use crate::connection::{Reads, Tx};
use crate::error::{Error, Result};
use crate::inbox::PendingMessage;
use crate::value::{at, json, parse, skip_unreadable, time_at};

const COLUMNS: &str = "id, dispatch, session_key, session, origin, kind, payload, state, reason, created_at";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CompletionId(pub i64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionState {
    Queued,
    /// Accepted as an inbox message that is not settled yet.
    Delivered,
    Consumed,
    /// The target transcript has ended; the reason is stored.
    Undeliverable,
}

impl CompletionState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Delivered => "delivered",
            Self::Consumed => "consumed",
            Self::Undeliverable => "undeliverable",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        [Self::Queued, Self::Delivered, Self::Consumed, Self::Undeliverable]
            .into_iter()
            .find(|state| state.as_str() == name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    pub id: CompletionId,
    pub dispatch: String,
    pub key: SessionKey,
    /// Transcript in which the work was started; `None`: the current one.
    pub session: Option<SessionId>,
    pub origin: Source,
    pub kind: String,
    /// JSON text from the producer.
    pub payload: String,
    pub state: CompletionState,
    pub reason: Option<String>,
    pub created_at: Millis,
}

impl Reads {
    /// Unconsumed completions of a session, oldest first.
    pub fn completions(&self, key: &SessionKey) -> Result<Vec<Completion>> {
        let mut read = self.sql(&format!(
            "SELECT {COLUMNS} FROM completions WHERE state IN ('queued', 'delivered') AND state <> 'consumed' AND session_key = ?1 ORDER BY id"
        ))?;
        read.query_and_then([key.as_str()], completion)?.filter_map(skip_unreadable).collect()
    }

    /// Completions not delivered yet, oldest first.
    pub fn queued_completions(&self) -> Result<Vec<Completion>> {
        let mut read = self.sql(&format!(
            "SELECT {COLUMNS} FROM completions WHERE state <> 'consumed' AND state = 'queued' ORDER BY +id"
        ))?;
        read.query_and_then([], completion)?.filter_map(skip_unreadable).collect()
    }

    /// Queued and undeliverable completions, newest first.
    pub fn unreported_completions(&self, most: u32) -> Result<Vec<Completion>> {
        let mut read = self.sql(&format!(
            "SELECT {COLUMNS} FROM completions WHERE state <> 'consumed' AND state IN ('queued', 'undeliverable')
             ORDER BY +id DESC LIMIT ?1"
        ))?;
        read.query_and_then([most], completion)?.filter_map(skip_unreadable).collect()
    }

    pub fn is_queued(&self, id: CompletionId) -> Result<bool> {
        let mut read = self.sql("SELECT 1 FROM completions WHERE id = ?1 AND state = 'queued'")?;
        Ok(read.exists([id.0])?)
    }

    /// Completion that this inbox message delivers, unless it was consumed meanwhile.
    pub fn completion_of(&self, inbox: InboxId) -> Result<Option<Completion>> {
        let mut read =
            self.sql(&format!("SELECT {COLUMNS} FROM completions WHERE inbox = ?1 AND state = 'delivered'"))?;
        read.query_and_then([inbox.0], completion)?.next().transpose()
    }

    /// Whether this inbox message delivers a completion that was consumed another way.
    pub fn is_consumed_completion(&self, inbox: InboxId) -> Result<bool> {
        let mut read = self.sql("SELECT 1 FROM completions WHERE inbox = ?1 AND state = 'consumed'")?;
        Ok(read.exists([inbox.0])?)
    }
}

impl Tx<'_> {
    /// Idempotent by `dispatch`: a repeated report returns the existing completion.
    pub fn record_completion(
        &self,
        dispatch: &str,
        to: (&SessionKey, Option<&SessionId>),
        origin: &Source,
        kind: &str,
        payload: &str,
        now: Millis,
    ) -> Result<CompletionId> {
        let (key, session) = to;
        self.sql(
            "INSERT INTO completions (dispatch, session_key, session, origin, kind, payload, state, created_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'queued', ?7) ON CONFLICT (dispatch) DO NOTHING",
        )?
        .execute(params![
            dispatch,
            key.as_str(),
            session.map(SessionId::as_str),
            json(origin)?,
            kind,
            payload,
            at(now)
        ])?;
        let mut read = self.sql("SELECT id FROM completions WHERE dispatch = ?1")?;
        Ok(read.query_row([dispatch], |row| row.get(0).map(CompletionId))?)
    }

    /// Delivers the completion as an inbox message with `text`, in one transaction. `None`: it was consumed meanwhile.
    pub fn deliver_completion(
        &self,
        completion: Completion,
        text: String,
        now: Millis,
    ) -> Result<Option<PendingMessage>> {
        if !self.is_queued(completion.id)? {
            return Ok(None);
        }
        let inbound =
            Inbound::internal(completion.origin, format!("completion:{}", completion.dispatch), text);
        let id = self.accept(&inbound, &completion.key, now)?.id();
        self.completion_delivered(completion.id, id)?;
        Ok(Some(PendingMessage { id, key: completion.key, inbound, received_at: now }))
    }

    /// `false`: it was already delivered or consumed.
    pub fn completion_delivered(&self, id: CompletionId, inbox: InboxId) -> Result<bool> {
        let mut mark = self.sql(
            "UPDATE completions SET state = 'delivered', inbox = ?2 WHERE id = ?1 AND state = 'queued'",
        )?;
        Ok(mark.execute([id.0, inbox.0])? > 0)
    }

    /// `false`: it was already consumed.
    pub fn completion_undeliverable(&self, id: CompletionId, reason: &str, now: Millis) -> Result<bool> {
        let mut mark = self.sql(
            "UPDATE completions SET state = 'undeliverable', reason = ?2, consumed_at = ?3
             WHERE id = ?1 AND state IN ('queued', 'delivered')",
        )?;
        Ok(mark.execute(params![id.0, reason, at(now)])? > 0)
    }

    /// `false`: there is none, or it was already consumed.
    pub fn completion_consumed(&self, dispatch: &str, now: Millis) -> Result<bool> {
        let mut mark = self.sql(
            "UPDATE completions SET state = 'consumed', reason = NULL, consumed_at = ?2
             WHERE dispatch = ?1 AND state <> 'consumed'",
        )?;
        Ok(mark.execute(params![dispatch, at(now)])? > 0)
    }

    /// Marks the completion of a settled inbox message as consumed.
    pub(crate) fn completion_settled(&self, inbox: InboxId, now: Millis) -> Result<()> {
        self.sql(
            "UPDATE completions SET state = 'consumed', consumed_at = ?2 WHERE inbox = ?1 AND state = 'delivered'",
        )?
        .execute(params![inbox.0, at(now)])?;
        Ok(())
    }
}

fn completion(row: &Row<'_>) -> Result<Completion> {
    let state: String = row.get("state")?;
    let origin: String = row.get("origin")?;
    Ok(Completion {
        id: CompletionId(row.get("id")?),
        dispatch: row.get("dispatch")?,
        key: SessionKey(row.get("session_key")?),
        session: row.get::<_, Option<String>>("session")?.map(SessionId),
        origin: parse(&origin, "origin of a completion")?,
        kind: row.get("kind")?,
        payload: row.get("payload")?,
        state: CompletionState::parse(&state).ok_or(Error::Unreadable("completion state"))?,
        reason: row.get("reason")?,
        created_at: time_at(row, "created_at")?,
    })
}
