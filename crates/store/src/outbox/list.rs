//! Questions about the outbox.

use petasos_core::outbox::{Item, State};
use petasos_core::{LaneId, Millis, OutboxId, TurnId};
use rusqlite::params;

use super::{COLUMNS, item};
use crate::error::Result;
use crate::group::Reads;
use crate::value::{at, count, rows, time};

/// A lane with something to send, and when its first item may leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
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

    /// What a turn has said, in order.
    pub fn items_of_turn(&self, turn: TurnId) -> Result<Vec<Item>> {
        let mut read = self.sql(&format!("SELECT {COLUMNS} FROM outbox WHERE turn = ?1 ORDER BY id"))?;
        read.query_and_then([turn.0], item)?.collect()
    }

    /// Items of one state, oldest first.
    pub fn items_in(&self, state: State, limit: usize) -> Result<Vec<Item>> {
        let open = if state == State::Done { "" } else { "state <> 'done' AND" };
        let mut read =
            self.sql(&format!("SELECT {COLUMNS} FROM outbox WHERE {open} state = ?1 ORDER BY id LIMIT ?2"))?;
        read.query_and_then(params![state.as_str(), rows(limit)], item)?.collect()
    }

    /// Lanes whose first item may leave now. The first item holds back those behind it.
    pub fn due_lanes(&self, now: Millis) -> Result<Vec<LaneId>> {
        // With min(), SQLite takes the other columns from the row that holds the minimum.
        let mut read = self.sql(
            "SELECT lane FROM (
                 SELECT lane, min(id) AS id, not_before FROM outbox
                 WHERE state IN ('due', 'sending') GROUP BY lane)
             WHERE not_before <= ?1 ORDER BY id",
        )?;
        read.query_and_then([at(now)], lane)?.filter_map(Result::transpose).collect()
    }

    /// The first item of every lane that has one, soonest first.
    pub fn heads(&self) -> Result<Vec<Head>> {
        let mut read = self.sql(
            "SELECT lane, min(id), not_before FROM outbox
             WHERE state IN ('due', 'sending') GROUP BY lane ORDER BY not_before, 2",
        )?;
        let head = |row: &rusqlite::Row<'_>| {
            let Some(lane) = lane(row)? else { return Ok(None) };
            Ok(Some(Head { lane, item: OutboxId(row.get(1)?), not_before: time(row.get(2)?) }))
        };
        read.query_and_then([], head)?.filter_map(Result::transpose).collect()
    }

    /// When the next lane has something to do; `None`: nothing is owed.
    pub fn next_due(&self) -> Result<Option<Millis>> {
        let mut read = self.sql(
            "SELECT min(not_before) FROM (
                 SELECT min(id), not_before FROM outbox WHERE state IN ('due', 'sending') GROUP BY lane)",
        )?;
        Ok(read.query_row([], |row| row.get::<_, Option<i64>>(0))?.map(time))
    }

    /// What a lane still has to send, in order.
    pub fn due_of_lane(&self, lane: &LaneId, limit: usize) -> Result<Vec<Item>> {
        let mut read = self.sql(&format!(
            "SELECT {COLUMNS} FROM outbox WHERE lane = ?1 AND state IN ('due', 'sending') ORDER BY id LIMIT ?2"
        ))?;
        read.query_and_then(params![lane.to_string(), rows(limit)], item)?.collect()
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

/// `None`: the platform is not known any more; what is owed there waits.
fn lane(row: &rusqlite::Row<'_>) -> Result<Option<LaneId>> {
    Ok(LaneId::parse(&row.get::<_, String>(0)?))
}
