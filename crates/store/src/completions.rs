//! Background work that ended: durable events addressed to a session, one for each dispatch. One is queued, then a
//! message of the inbox, then consumed: with that message, or before, if the session learned of it otherwise. One whose
//! transcript has ended is undeliverable, and listed.

use petasos_core::{Inbound, InboxId, Millis, SessionId, SessionKey, Source};
use rusqlite::{Row, params};

use crate::error::{Error, Result};
use crate::group::{Reads, Tx};
use crate::inbox::Pending;
use crate::value::{at, json, legible, parse, time_at};

const COLUMNS: &str = "id, dispatch, session_key, session, origin, kind, payload, state, reason, created_at";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CompletionId(pub i64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionState {
    Queued,
    /// A message of the inbox, which is not settled yet.
    Delivered,
    Consumed,
    /// Nobody is left to be told; the reason is stored.
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
    /// The transcript that the work was started in; `None`: whichever is current.
    pub session: Option<SessionId>,
    /// Where the session is told.
    pub origin: Source,
    pub kind: String,
    /// JSON text, as the producer wrote it.
    pub payload: String,
    pub state: CompletionState,
    /// Why it is undeliverable.
    pub reason: Option<String>,
    pub created_at: Millis,
}

impl Reads {
    /// What a session has not used yet, in order.
    pub fn completions(&self, key: &SessionKey) -> Result<Vec<Completion>> {
        let mut read = self.sql(&format!(
            "SELECT {COLUMNS} FROM completions WHERE state IN ('queued', 'delivered') AND state <> 'consumed' AND session_key = ?1 ORDER BY id"
        ))?;
        read.query_and_then([key.as_str()], completion)?.filter_map(legible).collect()
    }

    /// What nobody has handed over yet, in order.
    pub fn queued_completions(&self) -> Result<Vec<Completion>> {
        let mut read = self.sql(&format!(
            "SELECT {COLUMNS} FROM completions WHERE state <> 'consumed' AND state = 'queued' ORDER BY +id"
        ))?;
        read.query_and_then([], completion)?.filter_map(legible).collect()
    }

    /// What nobody has been told: what waits, and what is undeliverable, the latest first.
    pub fn untold_completions(&self, most: u32) -> Result<Vec<Completion>> {
        let mut read = self.sql(&format!(
            "SELECT {COLUMNS} FROM completions WHERE state <> 'consumed' AND state IN ('queued', 'undeliverable')
             ORDER BY +id DESC LIMIT ?1"
        ))?;
        read.query_and_then([most], completion)?.filter_map(legible).collect()
    }

    /// Whether it still waits to be handed over.
    pub fn is_queued(&self, id: CompletionId) -> Result<bool> {
        let mut read = self.sql("SELECT 1 FROM completions WHERE id = ?1 AND state = 'queued'")?;
        Ok(read.exists([id.0])?)
    }

    /// The ended work that this message is to tell; `None`: it tells none, or not any more.
    pub fn completion_of(&self, inbox: InboxId) -> Result<Option<Completion>> {
        let mut read =
            self.sql(&format!("SELECT {COLUMNS} FROM completions WHERE inbox = ?1 AND state = 'delivered'"))?;
        read.query_and_then([inbox.0], completion)?.next().transpose()
    }

    /// Whether this message tells what its session has learned otherwise.
    pub fn is_old_news(&self, inbox: InboxId) -> Result<bool> {
        let mut read = self.sql("SELECT 1 FROM completions WHERE inbox = ?1 AND state = 'consumed'")?;
        Ok(read.exists([inbox.0])?)
    }
}

impl Tx<'_> {
    /// Once per dispatch: a second report of the same work is the first one.
    pub fn complete_work(
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

    /// From a row to a message that says `text`: both, or neither. `None`: its session has learned of it meanwhile.
    pub fn hand_over(&self, completion: Completion, text: String, now: Millis) -> Result<Option<Pending>> {
        if !self.is_queued(completion.id)? {
            return Ok(None);
        }
        let inbound =
            Inbound::internal(completion.origin, format!("completion:{}", completion.dispatch), text);
        let id = self.accept(&inbound, &completion.key, now)?.id();
        self.completion_delivered(completion.id, id)?;
        Ok(Some(Pending { id, key: completion.key, inbound, received_at: now }))
    }

    /// It is this message of the inbox now. `false`: it was consumed or delivered before.
    pub fn completion_delivered(&self, id: CompletionId, inbox: InboxId) -> Result<bool> {
        let mut mark = self.sql(
            "UPDATE completions SET state = 'delivered', inbox = ?2 WHERE id = ?1 AND state = 'queued'",
        )?;
        Ok(mark.execute([id.0, inbox.0])? > 0)
    }

    /// Nobody is left to be told. `false`: somebody was.
    pub fn completion_undeliverable(&self, id: CompletionId, reason: &str, now: Millis) -> Result<bool> {
        let mut mark = self.sql(
            "UPDATE completions SET state = 'undeliverable', reason = ?2, consumed_at = ?3
             WHERE id = ?1 AND state IN ('queued', 'delivered')",
        )?;
        Ok(mark.execute(params![id.0, reason, at(now)])? > 0)
    }

    /// The session has learned of it. `false`: there is none, or it was consumed before.
    pub fn completion_consumed(&self, dispatch: &str, now: Millis) -> Result<bool> {
        let mut mark = self.sql(
            "UPDATE completions SET state = 'consumed', reason = NULL, consumed_at = ?2
             WHERE dispatch = ?1 AND state <> 'consumed'",
        )?;
        Ok(mark.execute(params![dispatch, at(now)])? > 0)
    }

    /// The message it came as has its outcome.
    pub(crate) fn completion_settled(&self, inbox: InboxId, now: Millis) -> Result<()> {
        self.sql(
            "UPDATE completions SET state = 'consumed', consumed_at = ?2 WHERE inbox = ?1 AND state = 'delivered'",
        )?
        .execute(params![inbox.0, at(now)])?;
        Ok(())
    }
}

fn completion(row: &Row<'_>) -> Result<Completion> {
    let (state, origin): (String, String) = (row.get("state")?, row.get("origin")?);
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
