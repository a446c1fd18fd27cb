//! Background work that ended: durable events addressed to a session, one for each dispatch, offered
//! until the session says it has used them.

use petasos_core::{Millis, SessionKey};
use rusqlite::{Row, params};

use crate::error::{Error, Result};
use crate::group::{Reads, Tx};
use crate::value::{at, time_at};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CompletionId(pub i64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionState {
    Queued,
    /// Handed to the session, which may have lost it: offered again after a crash.
    Delivered,
    Consumed,
}

impl CompletionState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Delivered => "delivered",
            Self::Consumed => "consumed",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        [Self::Queued, Self::Delivered, Self::Consumed].into_iter().find(|state| state.as_str() == name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    pub id: CompletionId,
    pub dispatch: String,
    pub key: SessionKey,
    pub kind: String,
    /// JSON text, as the producer wrote it.
    pub payload: String,
    pub state: CompletionState,
    pub created_at: Millis,
}

impl Reads {
    /// What a session has not used yet, in order.
    pub fn completions(&self, key: &SessionKey) -> Result<Vec<Completion>> {
        let mut read = self.sql(
            "SELECT id, dispatch, session_key, kind, payload, state, created_at FROM completions
             WHERE session_key = ?1 AND state <> 'consumed' ORDER BY id",
        )?;
        read.query_and_then([key.as_str()], completion)?.collect()
    }

    /// Sessions that have completions to use.
    pub fn keys_with_completions(&self) -> Result<Vec<SessionKey>> {
        let mut read =
            self.sql("SELECT DISTINCT session_key FROM completions WHERE state <> 'consumed' ORDER BY 1")?;
        read.query_and_then([], |row| Ok(SessionKey(row.get(0)?)))?.collect()
    }
}

impl Tx<'_> {
    /// Once per dispatch: a second report of the same work is the first one.
    pub fn complete_work(
        &self,
        dispatch: &str,
        key: &SessionKey,
        kind: &str,
        payload: &str,
        now: Millis,
    ) -> Result<CompletionId> {
        self.sql(
            "INSERT INTO completions (dispatch, session_key, kind, payload, state, created_at)
             VALUES (?1, ?2, ?3, ?4, 'queued', ?5) ON CONFLICT (dispatch) DO NOTHING",
        )?
        .execute(params![dispatch, key.as_str(), kind, payload, at(now)])?;
        let mut read = self.sql("SELECT id FROM completions WHERE dispatch = ?1")?;
        Ok(read.query_row([dispatch], |row| row.get(0).map(CompletionId))?)
    }

    pub fn completion_delivered(&self, id: CompletionId) -> Result<bool> {
        let mut mark =
            self.sql("UPDATE completions SET state = 'delivered' WHERE id = ?1 AND state = 'queued'")?;
        Ok(mark.execute([id.0])? > 0)
    }

    /// `false`: it was consumed before. Whoever gets `true` may act on it.
    pub fn completion_consumed(&self, id: CompletionId, now: Millis) -> Result<bool> {
        let mut mark = self.sql(
            "UPDATE completions SET state = 'consumed', consumed_at = ?2 WHERE id = ?1 AND state <> 'consumed'",
        )?;
        Ok(mark.execute(params![id.0, at(now)])? > 0)
    }
}

fn completion(row: &Row<'_>) -> Result<Completion> {
    let state: String = row.get("state")?;
    Ok(Completion {
        id: CompletionId(row.get("id")?),
        dispatch: row.get("dispatch")?,
        key: SessionKey(row.get("session_key")?),
        kind: row.get("kind")?,
        payload: row.get("payload")?,
        state: CompletionState::parse(&state).ok_or(Error::Unreadable("completion state"))?,
        created_at: time_at(row, "created_at")?,
    })
}
