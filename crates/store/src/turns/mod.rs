//! Turn journal. A turn is stored on every state change and ended once; an ended turn can neither be changed nor ended
//! again, so a turn never runs twice.

mod apply;
pub(crate) mod questions;
pub(crate) mod runs;
pub(crate) mod start;

use petasos_core::journal::MessageOutcome;
use petasos_core::turn::Turn;
use petasos_core::{Millis, SessionKey, TurnId};
use rusqlite::{Row, params};

use crate::connection::{Reads, Tx};
use crate::error::{Error, Result};
use crate::value::{at, json, parse, text_at, text_or_none, time};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournaledTurn {
    pub turn: Turn,
    /// `None`: open.
    pub ended: Option<(MessageOutcome, Millis)>,
}

impl Reads {
    /// Open turns, oldest first, for recovery.
    pub fn open_turns(&self) -> Result<Vec<Turn>> {
        let mut read = self.sql("SELECT state FROM turns WHERE ended_at IS NULL ORDER BY +id")?;
        read.query_and_then([], state)?.collect()
    }

    pub fn open_turn_of(&self, key: &SessionKey) -> Result<Option<Turn>> {
        let mut read = self.sql("SELECT state FROM turns WHERE ended_at IS NULL AND session_key = ?1")?;
        read.query_and_then([key.as_str()], state)?.next().transpose()
    }

    /// Whether the journal still has a turn of this session key.
    pub fn has_turns(&self, key: &SessionKey) -> Result<bool> {
        Ok(self
            .sql("SELECT 1 FROM inbox JOIN turns ON turns.id = inbox.turn WHERE inbox.session_key = ?1 LIMIT 1")?
            .exists([key.as_str()])?)
    }

    pub fn turn(&self, id: TurnId) -> Result<Option<JournaledTurn>> {
        let mut read = self.sql("SELECT state, outcome, ended_at FROM turns WHERE id = ?1")?;
        read.query_and_then([id.0], journaled)?.next().transpose()
    }
}

impl Tx<'_> {
    /// Ends open turns that cannot be read. Returns the number.
    pub(crate) fn end_unreadable_turns(&self, now: Millis) -> Result<usize> {
        let mut read = self.sql("SELECT id, state, session_key FROM turns WHERE ended_at IS NULL")?;
        let mut open = read.query([])?;
        let mut lost = Vec::new();
        while let Some(row) = open.next()? {
            let turn = text_at(row, 1).and_then(|state| parse::<Turn>(state, "turn"));
            if turn.is_err() || text_at(row, 2).is_err() {
                lost.push(TurnId(row.get(0)?));
            }
        }
        lost.iter().try_for_each(|id| self.end_turn(*id, MessageOutcome::Dead, now))?;
        Ok(lost.len())
    }

    pub(crate) fn put_turn(&self, turn: &Turn) -> Result<()> {
        let mut put = self.sql(
            "INSERT INTO turns (id, session_key, session, state, started_at) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (id) DO UPDATE SET state = excluded.state, session = excluded.session
             WHERE ended_at IS NULL AND session_key = excluded.session_key",
        )?;
        let Turn { id, key, session, started_at, .. } = turn;
        match put.execute(params![id.0, key.as_str(), session.as_str(), json(turn)?, at(*started_at)])? {
            0 => Err(Error::Conflict("the turn has ended")),
            _ => self.run_session_changed(turn),
        }
    }

    pub(crate) fn end_turn(&self, id: TurnId, outcome: MessageOutcome, now: Millis) -> Result<()> {
        let mut end =
            self.sql("UPDATE turns SET ended_at = ?3, outcome = ?2 WHERE id = ?1 AND ended_at IS NULL")?;
        match end.execute(params![id.0, outcome.as_str(), at(now)])? {
            0 => Err(Error::Conflict("the turn is not open")),
            _ => self.run_ended(id, outcome, now),
        }
    }
}

/// The state is the first column of every query here.
fn state(row: &Row<'_>) -> Result<Turn> {
    parse(text_at(row, 0)?, "turn")
}

fn journaled(row: &Row<'_>) -> Result<JournaledTurn> {
    let ended = match (text_or_none(row, 1)?, row.get(2)?) {
        (Some(name), Some(at)) => {
            Some((MessageOutcome::parse(name).ok_or(Error::Unreadable("outcome"))?, time(at)))
        }
        _ => None,
    };
    Ok(JournaledTurn { turn: state(row)?, ended })
}
