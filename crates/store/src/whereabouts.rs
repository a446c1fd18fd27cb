//! Where a message is, for `/where`: one look across inbox, turns and outbox.

use petasos_core::journal::Outcome;
use petasos_core::outbox::Item;
use petasos_core::{InboxId, Millis, SessionKey, TurnId};
use rusqlite::{OptionalExtension, Row};

use crate::error::{Error, Result};
use crate::group::Reads;
use crate::value::{count, time, time_at};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whereabouts {
    pub id: InboxId,
    pub key: SessionKey,
    pub received_at: Millis,
    pub stage: Stage,
    /// What its turn has said so far, and how far each piece has got.
    pub said: Vec<Item>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// `place` 1 is next.
    Queued {
        place: u64,
    },
    /// Part of an open turn.
    Running {
        turn: TurnId,
        since: Millis,
    },
    Settled {
        outcome: Outcome,
        at: Millis,
    },
}

struct Place {
    key: String,
    state: String,
    turn: Option<i64>,
    outcome: Option<String>,
    received_at: Millis,
    settled_at: Option<i64>,
}

impl Reads {
    pub fn where_is(&self, id: InboxId) -> Result<Option<Whereabouts>> {
        let mut read = self.sql(
            "SELECT session_key, state, turn, outcome, received_at, settled_at FROM inbox WHERE id = ?1",
        )?;
        let Some(place) = read.query_and_then([id.0], place)?.next().transpose()? else {
            return Ok(None);
        };
        let stage = self.stage(id, &place)?;
        let said = place.turn.map_or(Ok(Vec::new()), |turn| self.items_of_turn(TurnId(turn)))?;
        let received_at = place.received_at;
        Ok(Some(Whereabouts { id, key: SessionKey(place.key), received_at, stage, said }))
    }

    /// The last message accepted for a session before this one.
    pub fn latest_before(&self, key: &SessionKey, id: InboxId) -> Result<Option<InboxId>> {
        let mut read =
            self.sql("SELECT id FROM inbox WHERE session_key = ?1 AND id < ?2 ORDER BY id DESC LIMIT 1")?;
        Ok(read.query_row(rusqlite::params![key.as_str(), id.0], |row| row.get(0).map(InboxId)).optional()?)
    }

    /// The last message accepted for a session.
    pub fn latest_of(&self, key: &SessionKey) -> Result<Option<InboxId>> {
        let mut read = self.sql("SELECT id FROM inbox WHERE session_key = ?1 ORDER BY id DESC LIMIT 1")?;
        Ok(read.query_row([key.as_str()], |row| row.get(0).map(InboxId)).optional()?)
    }

    fn stage(&self, id: InboxId, place: &Place) -> Result<Stage> {
        match (place.state.as_str(), place.turn, place.outcome.as_deref(), place.settled_at) {
            ("queued", ..) => {
                let mut read = self.sql(
                    "SELECT count(*) FROM inbox
                     WHERE state <> 'settled' AND state = 'queued' AND session_key = ?1 AND id <= ?2",
                )?;
                let place = read.query_row((&place.key, id.0), |row| row.get(0).map(count))?;
                Ok(Stage::Queued { place })
            }
            ("claimed", Some(turn), ..) => {
                let mut read = self.sql("SELECT started_at FROM turns WHERE id = ?1")?;
                let since = read.query_row([turn], |row| row.get(0).map(time)).optional()?;
                Ok(Stage::Running { turn: TurnId(turn), since: since.unwrap_or(place.received_at) })
            }
            ("settled", _, Some(name), Some(at)) => {
                let outcome = Outcome::parse(name).ok_or(Error::Unreadable("outcome"))?;
                Ok(Stage::Settled { outcome, at: time(at) })
            }
            _ => Err(Error::Unreadable("inbox state")),
        }
    }
}

fn place(row: &Row<'_>) -> Result<Place> {
    Ok(Place {
        key: row.get("session_key")?,
        state: row.get("state")?,
        turn: row.get("turn")?,
        outcome: row.get("outcome")?,
        received_at: time_at(row, "received_at")?,
        settled_at: row.get("settled_at")?,
    })
}
