//! Receipts: the state of a message across inbox, turns and outbox, for `/where`.

use petasos_core::journal::MessageOutcome;
use petasos_core::outbox::Item;
use petasos_core::{InboxId, Millis, SessionKey, TurnId};
use rusqlite::{OptionalExtension, Row};

use crate::connection::Reads;
use crate::error::{Error, Result};
use crate::value::{count, time, time_at};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageReceipt {
    pub id: InboxId,
    pub key: SessionKey,
    pub received_at: Millis,
    pub stage: MessageStage,
    /// Outbox items of its turn, with their delivery states.
    pub items: Vec<Item>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageStage {
    /// 1 is next.
    Queued {
        position: u64,
    },
    Running {
        turn: TurnId,
        since: Millis,
    },
    Settled {
        outcome: MessageOutcome,
        at: Millis,
    },
}

struct InboxRow {
    key: String,
    state: String,
    turn: Option<i64>,
    outcome: Option<String>,
    received_at: Millis,
    settled_at: Option<i64>,
}

impl Reads {
    pub fn receipt_of(&self, id: InboxId) -> Result<Option<MessageReceipt>> {
        let mut read = self.sql(
            "SELECT session_key, state, turn, outcome, received_at, settled_at FROM inbox WHERE id = ?1",
        )?;
        let Some(row) = read.query_and_then([id.0], inbox_row)?.next().transpose()? else {
            return Ok(None);
        };
        let stage = self.stage(id, &row)?;
        let items = row.turn.map_or(Ok(Vec::new()), |turn| self.items_of_turn(TurnId(turn)))?;
        let received_at = row.received_at;
        Ok(Some(MessageReceipt { id, key: SessionKey(row.key), received_at, stage, items }))
    }

    /// Last accepted message of a session before `id`.
    pub fn latest_inbox_before(&self, key: &SessionKey, id: InboxId) -> Result<Option<InboxId>> {
        let mut read =
            self.sql("SELECT id FROM inbox WHERE session_key = ?1 AND id < ?2 ORDER BY id DESC LIMIT 1")?;
        Ok(read.query_row(rusqlite::params![key.as_str(), id.0], |row| row.get(0).map(InboxId)).optional()?)
    }

    fn stage(&self, id: InboxId, row: &InboxRow) -> Result<MessageStage> {
        match (row.state.as_str(), row.turn, row.outcome.as_deref(), row.settled_at) {
            ("queued", ..) => {
                let mut read = self.sql(
                    "SELECT count(*) FROM inbox
                     WHERE state <> 'settled' AND state = 'queued' AND session_key = ?1 AND id <= ?2",
                )?;
                let position = read.query_row((&row.key, id.0), |row| row.get(0).map(count))?;
                Ok(MessageStage::Queued { position })
            }
            ("claimed", Some(turn), ..) => {
                let mut read = self.sql("SELECT started_at FROM turns WHERE id = ?1")?;
                let since = read.query_row([turn], |row| row.get(0).map(time)).optional()?;
                Ok(MessageStage::Running { turn: TurnId(turn), since: since.unwrap_or(row.received_at) })
            }
            ("settled", _, Some(name), Some(at)) => {
                let outcome = MessageOutcome::parse(name).ok_or(Error::Unreadable("outcome"))?;
                Ok(MessageStage::Settled { outcome, at: time(at) })
            }
            _ => Err(Error::Unreadable("inbox state")),
        }
    }
}

fn inbox_row(row: &Row<'_>) -> Result<InboxRow> {
    Ok(InboxRow {
        key: row.get("session_key")?,
        state: row.get("state")?,
        turn: row.get("turn")?,
        outcome: row.get("outcome")?,
        received_at: time_at(row, "received_at")?,
        settled_at: row.get("settled_at")?,
    })
}
