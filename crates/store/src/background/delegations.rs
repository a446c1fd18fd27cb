//! Asynchronous delegations: begun before a subagent starts, ended once.

use petasos_core::{DelegationId, Millis, SessionId, SessionKey, Source};
use rusqlite::{Row, params};

use crate::connection::{Reads, Tx};
use crate::error::Result;
use crate::value::{at, json, parse, skip_unreadable, time_at};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegationRow {
    pub id: DelegationId,
    pub key: SessionKey,
    /// The only transcript that is notified of the end.
    pub session: SessionId,
    pub origin: Source,
    /// The delegated tasks, as JSON of the gateway.
    pub tasks: String,
    pub started_at: Millis,
    /// `None`: still running.
    pub status: Option<String>,
}

impl Reads {
    pub fn delegation(&self, id: &DelegationId) -> Result<Option<DelegationRow>> {
        let mut read = self.sql("SELECT * FROM delegations WHERE id = ?1")?;
        read.query_and_then([id.as_str()], delegation)?.next().transpose()
    }

    pub fn open_delegations(&self) -> Result<Vec<DelegationRow>> {
        let mut read =
            self.sql("SELECT * FROM delegations WHERE ended_at IS NULL ORDER BY started_at, id")?;
        read.query_and_then([], delegation)?.filter_map(skip_unreadable).collect()
    }
}

impl Tx<'_> {
    pub fn begin_delegation(&self, row: &DelegationRow) -> Result<()> {
        self.sql(
            "INSERT INTO delegations (id, session_key, session, origin, tasks, started_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            row.id.as_str(),
            row.key.as_str(),
            row.session.as_str(),
            json(&row.origin)?,
            row.tasks,
            at(row.started_at)
        ])?;
        Ok(())
    }

    /// `false`: it had already ended.
    pub fn delegation_ended(
        &self,
        id: &DelegationId,
        status: &str,
        result: &str,
        now: Millis,
    ) -> Result<bool> {
        let mut end = self.sql(
            "UPDATE delegations SET status = ?2, result = ?3, ended_at = ?4 WHERE id = ?1 AND ended_at IS NULL",
        )?;
        Ok(end.execute(params![id.as_str(), status, result, at(now)])? > 0)
    }

    /// Records `parent` as the parent of the subagent's session.
    pub fn set_parent_session(&self, session: &SessionId, parent: &SessionId) -> Result<()> {
        self.sql("UPDATE sessions SET parent = ?2 WHERE id = ?1")?
            .execute([session.as_str(), parent.as_str()])?;
        Ok(())
    }
}

fn delegation(row: &Row<'_>) -> Result<DelegationRow> {
    let origin: String = row.get("origin")?;
    Ok(DelegationRow {
        id: DelegationId(row.get("id")?),
        key: SessionKey(row.get("session_key")?),
        session: SessionId(row.get("session")?),
        origin: parse(&origin, "origin of a delegation")?,
        tasks: row.get("tasks")?,
        started_at: time_at(row, "started_at")?,
        status: row.get("status")?,
    })
}
