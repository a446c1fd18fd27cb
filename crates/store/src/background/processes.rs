//! Background processes: recorded before they are started, ended once.

use petasos_core::{Millis, SessionId, SessionKey, Source};
use rusqlite::{Row, params};

use crate::connection::{Reads, Tx};
use crate::error::{Error, Result};
use crate::value::{at, json, parse, skip_unreadable, time, time_at};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessRow {
    pub id: String,
    pub key: SessionKey,
    pub session: SessionId,
    pub origin: Source,
    pub command: String,
    pub cwd: String,
    /// Which notifications the session requested, as JSON of the terminal.
    pub notification: String,
    pub started_at: Millis,
    /// `None`: the process died before its id was stored.
    pub pid: Option<u32>,
    /// Start marker that distinguishes it from a later process with the same pid.
    pub born: Option<String>,
    pub end: Option<ProcessEnd>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessEnd {
    pub exit_code: Option<i32>,
    pub reason: String,
    pub ended_by: String,
    pub at: Millis,
}

impl Reads {
    /// Running processes, and those that ended after `since`.
    pub fn processes(&self, since: Millis) -> Result<Vec<ProcessRow>> {
        let mut read = self.sql(
            "SELECT * FROM processes WHERE ended_at IS NULL
             UNION ALL SELECT * FROM processes WHERE ended_at IS NOT NULL AND ended_at > ?1",
        )?;
        read.query_and_then([at(since)], process)?.filter_map(skip_unreadable).collect()
    }

    /// Whether the session has a running process that was started after `since`.
    pub fn has_live_process(&self, key: &SessionKey, since: Millis) -> Result<bool> {
        let mut read = self
            .sql("SELECT 1 FROM processes WHERE session_key = ?1 AND ended_at IS NULL AND started_at > ?2")?;
        Ok(read.exists(params![key.as_str(), at(since)])?)
    }
}

impl Tx<'_> {
    pub fn begin_process(&self, row: &ProcessRow) -> Result<()> {
        self.sql(
            "INSERT INTO processes (id, session_key, session, origin, command, cwd, promise, started_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            row.id,
            row.key.as_str(),
            row.session.as_str(),
            json(&row.origin)?,
            row.command,
            row.cwd,
            row.notification,
            at(row.started_at)
        ])?;
        Ok(())
    }

    pub fn process_started(&self, id: &str, pid: u32, born: Option<&str>) -> Result<()> {
        self.sql("UPDATE processes SET pid = ?2, born = ?3 WHERE id = ?1")?
            .execute(params![id, pid, born])?;
        Ok(())
    }

    pub fn put_process_notification(&self, id: &str, notification: &str) -> Result<()> {
        self.sql("UPDATE processes SET promise = ?2 WHERE id = ?1")?.execute([id, notification])?;
        Ok(())
    }

    /// `false`: it had already ended.
    pub fn process_ended(&self, id: &str, end: &ProcessEnd) -> Result<bool> {
        let mut mark = self.sql(
            "UPDATE processes SET ended_at = ?2, exit_code = ?3, reason = ?4, ended_by = ?5
             WHERE id = ?1 AND ended_at IS NULL",
        )?;
        Ok(mark.execute(params![id, at(end.at), end.exit_code, end.reason, end.ended_by])? > 0)
    }
}

fn process(row: &Row<'_>) -> Result<ProcessRow> {
    let ended_at: Option<i64> = row.get("ended_at")?;
    let end = match ended_at {
        Some(ended_at) => Some(ProcessEnd {
            exit_code: row.get("exit_code")?,
            reason: row.get("reason")?,
            ended_by: row.get("ended_by")?,
            at: time(ended_at),
        }),
        None => None,
    };
    let origin: String = row.get("origin")?;
    let pid: Option<i64> = row.get("pid")?;
    Ok(ProcessRow {
        id: row.get("id")?,
        key: SessionKey(row.get("session_key")?),
        session: SessionId(row.get("session")?),
        origin: parse(&origin, "origin of a process")?,
        command: row.get("command")?,
        cwd: row.get("cwd")?,
        notification: row.get("promise")?,
        started_at: time_at(row, "started_at")?,
        pid: pid.map(|pid| u32::try_from(pid).map_err(|_| Error::Unreadable("pid"))).transpose()?,
        born: row.get("born")?,
        end,
    })
}
