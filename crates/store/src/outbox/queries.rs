//! Outbox queries.

use petasos_core::outbox::{Item, State};
use petasos_core::{LaneId, Millis, OutboxId, TurnId};
use rusqlite::params;

use super::{COLUMNS, item};
use crate::connection::Reads;
use crate::error::Result;
use crate::value::{at, count, sql_limit, time};

/// First item of a lane, and its earliest send time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneHead {
    pub lane: LaneId,
    pub item: OutboxId,
    pub not_before: Millis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutboxCounts {
    pub streaming: u64,
    pub due: u64,
    pub sending: u64,
    pub dead: u64,
}

impl Reads {
    pub fn item(&self, id: OutboxId) -> Result<Option<Item>> {
        let mut read = self.sql(&format!("SELECT {COLUMNS} FROM outbox WHERE id = ?1"))?;
        read.query_and_then([id.0], item)?.next().transpose()
    }

    pub fn items_of_turn(&self, turn: TurnId) -> Result<Vec<Item>> {
        let mut read = self.sql(&format!("SELECT {COLUMNS} FROM outbox WHERE turn = ?1 ORDER BY id"))?;
        read.query_and_then([turn.0], item)?.collect()
    }

    /// Items in one state, oldest first.
    pub fn items_in(&self, state: State, limit: usize) -> Result<Vec<Item>> {
        let open = if state == State::Done { "" } else { "state <> 'done' AND" };
        let mut read =
            self.sql(&format!("SELECT {COLUMNS} FROM outbox WHERE {open} state = ?1 ORDER BY id LIMIT ?2"))?;
        read.query_and_then(params![state.as_str(), sql_limit(limit)], item)?.collect()
    }

    /// Lanes whose first item is due. The first item blocks those behind it.
    pub fn due_lanes(&self, now: Millis) -> Result<Vec<LaneId>> {
        // With min(), SQLite takes the other columns from the row with the minimum.
        let mut read = self.sql(
            "SELECT lane FROM (
                 SELECT lane, min(id) AS id, not_before FROM outbox
                 WHERE state IN ('due', 'sending') GROUP BY lane)
             WHERE not_before <= ?1 ORDER BY id",
        )?;
        read.query_and_then([at(now)], lane)?.filter_map(Result::transpose).collect()
    }

    /// Heads of all lanes, earliest send time first.
    pub fn heads(&self) -> Result<Vec<LaneHead>> {
        let mut read = self.sql(
            "SELECT lane, min(id), not_before FROM outbox
             WHERE state IN ('due', 'sending') GROUP BY lane ORDER BY not_before, 2",
        )?;
        let head = |row: &rusqlite::Row<'_>| {
            let Some(lane) = lane(row)? else { return Ok(None) };
            Ok(Some(LaneHead { lane, item: OutboxId(row.get(1)?), not_before: time(row.get(2)?) }))
        };
        read.query_and_then([], head)?.filter_map(Result::transpose).collect()
    }

    /// Unsent items of a lane, in order.
    pub fn due_of_lane(&self, lane: &LaneId, limit: usize) -> Result<Vec<Item>> {
        let mut read = self.sql(&format!(
            "SELECT {COLUMNS} FROM outbox WHERE lane = ?1 AND state IN ('due', 'sending') ORDER BY id LIMIT ?2"
        ))?;
        read.query_and_then(params![lane.to_string(), sql_limit(limit)], item)?.collect()
    }

    pub fn outbox_counts(&self) -> Result<OutboxCounts> {
        let mut read = self.sql("SELECT state, count(*) FROM outbox WHERE state <> 'done' GROUP BY state")?;
        let mut counts = OutboxCounts::default();
        let mut found = read.query([])?;
        while let Some(row) = found.next()? {
            let rows = count(row.get(1)?);
            match State::parse(row.get_ref(0)?.as_str().unwrap_or_default()) {
                Some(State::Streaming) => counts.streaming = rows,
                Some(State::Due) => counts.due = rows,
                Some(State::Sending) => counts.sending = rows,
                Some(State::Dead) => counts.dead = rows,
                Some(State::Done) | None => {}
            }
        }
        Ok(counts)
    }
}

/// `None`: the platform is unknown to this version, and its items wait.
fn lane(row: &rusqlite::Row<'_>) -> Result<Option<LaneId>> {
    Ok(LaneId::parse(&row.get::<_, String>(0)?))
}
