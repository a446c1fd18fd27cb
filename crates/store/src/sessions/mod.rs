//! Sessions: one row per transcript with its origin, end and usage. Submodules hold routing, transcripts and search.

pub(crate) mod binding;
mod failures;
pub(crate) mod import;
pub(crate) mod routing;
pub(crate) mod search;
pub(crate) mod summaries;
mod todos;
pub(crate) mod transcript;

use petasos_core::person::Person;
use petasos_core::transcript::Usage;
use petasos_core::{Millis, SessionId, SessionKey, Source};
use rusqlite::{OptionalExtension, Row, params};

use crate::connection::{Reads, Tx};
use crate::error::Result;
use crate::value::{amount, at, count, json, parse, sql_limit, time, time_at};

/// End reasons that the user did not cause; such a session may be reopened.
pub(crate) const ACCIDENTAL_ENDS: &str = "('agent_close', 'ws_orphan_reap')";

const COLUMNS: &str = "id, session_key, platform, display_name, parent, model, title, started_at, last_at, ended_at, \
                       end_reason, message_count, input_tokens, output_tokens, cache_read, cache_write";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    pub id: SessionId,
    pub key: SessionKey,
    pub platform: Option<String>,
    pub display_name: Option<String>,
    /// Session that this one continues.
    pub parent: Option<SessionId>,
    pub model: Option<String>,
    /// Truncated first line of the first user message.
    pub title: Option<String>,
    pub started_at: Millis,
    pub last_at: Millis,
    pub ended: Option<SessionEnd>,
    pub message_count: u64,
    pub usage: Usage,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionEnd {
    pub at: Millis,
    pub reason: String,
}

impl Reads {
    pub fn session(&self, id: &SessionId) -> Result<Option<SessionRow>> {
        let mut read = self.sql(&format!("SELECT {COLUMNS} FROM sessions WHERE id = ?1"))?;
        read.query_and_then([id.as_str()], session)?.next().transpose()
    }

    /// Source of the first message.
    pub fn session_origin(&self, id: &SessionId) -> Result<Option<Source>> {
        let mut read = self.sql("SELECT origin FROM sessions WHERE id = ?1")?;
        let origin: Option<Option<String>> = read.query_row([id.as_str()], |row| row.get(0)).optional()?;
        origin.flatten().map(|origin| parse(&origin, "origin of a session")).transpose()
    }

    /// Sessions by last activity, newest first; `None`: of all keys.
    pub fn sessions(&self, key: Option<&SessionKey>, limit: usize) -> Result<Vec<SessionRow>> {
        let scope = if key.is_some() { "session_key = ?1" } else { "?1 IS NULL" };
        let mut read = self.sql(&format!(
            "SELECT {COLUMNS} FROM sessions WHERE {scope} ORDER BY last_at DESC, id DESC LIMIT ?2"
        ))?;
        read.query_and_then(params![key.map(SessionKey::as_str), sql_limit(limit)], session)?.collect()
    }

    pub fn system_prompt(&self, id: &SessionId) -> Result<Option<String>> {
        let mut read = self.sql("SELECT system_prompt FROM sessions WHERE id = ?1")?;
        Ok(read.query_row([id.as_str()], |row| row.get(0)).optional()?.flatten())
    }

    /// Latest non-empty session of a key that is open or ended by accident.
    pub fn recoverable(&self, key: &SessionKey) -> Result<Option<SessionId>> {
        let mut read = self.sql(&format!(
            "SELECT id FROM sessions
             WHERE session_key = ?1 AND (ended_at IS NULL OR end_reason IN {ACCIDENTAL_ENDS}) AND message_count > 0
             ORDER BY last_at DESC, id DESC LIMIT 1"
        ))?;
        Ok(read.query_row([key.as_str()], |row| row.get(0).map(SessionId)).optional()?)
    }
}

impl Tx<'_> {
    pub fn create_session(
        &self,
        id: &SessionId,
        key: &SessionKey,
        source: Option<&Source>,
        parent: Option<&SessionId>,
        now: Millis,
    ) -> Result<()> {
        let name = source.and_then(|from| from.chat_name.as_ref().or(from.user_name.as_ref()));
        let mut insert = self.sql(
            "INSERT INTO sessions
                 (id, session_key, platform, display_name, origin, person, parent, started_at, last_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8) ON CONFLICT (id) DO NOTHING",
        )?;
        let created = insert.execute(params![
            id.as_str(),
            key.as_str(),
            source.map(|from| from.platform.as_str()),
            name,
            source.map(json).transpose()?,
            source.map(|from| Person::of(from, key).to_string()),
            parent.map(SessionId::as_str),
            at(now),
        ])?;
        if created > 0 {
            self.finish_removal(id)?;
        }
        Ok(())
    }

    /// The first deliberate end is final; an accidental end is replaced. `false`: nothing changed.
    pub fn end_session(&self, id: &SessionId, reason: &str, now: Millis) -> Result<bool> {
        let mut end = self.sql(&format!(
            "UPDATE sessions SET ended_at = ?3, end_reason = ?2
             WHERE id = ?1 AND (ended_at IS NULL OR end_reason IN {ACCIDENTAL_ENDS})"
        ))?;
        Ok(end.execute(params![id.as_str(), reason, at(now)])? > 0)
    }

    pub fn reopen_session(&self, id: &SessionId) -> Result<bool> {
        let mut reopen = self.sql("UPDATE sessions SET ended_at = NULL, end_reason = NULL WHERE id = ?1")?;
        Ok(reopen.execute([id.as_str()])? > 0)
    }

    pub fn put_system_prompt(&self, id: &SessionId, prompt: &str) -> Result<()> {
        self.sql("UPDATE sessions SET system_prompt = ?2 WHERE id = ?1")?.execute([id.as_str(), prompt])?;
        Ok(())
    }

    pub fn put_title(&self, id: &SessionId, title: &str) -> Result<bool> {
        Ok(self.sql("UPDATE sessions SET title = ?2 WHERE id = ?1")?.execute([id.as_str(), title])? > 0)
    }

    pub fn put_model(&self, id: &SessionId, model: Option<&str>) -> Result<()> {
        self.sql("UPDATE sessions SET model = ?2 WHERE id = ?1")?.execute(params![id.as_str(), model])?;
        Ok(())
    }

    /// Deletes a session and its rows. `false`: there is none, or a session key is bound to it.
    pub fn delete_session(&self, id: &SessionId) -> Result<bool> {
        if self.sql("SELECT 1 FROM routing WHERE session = ?1")?.exists([id.as_str()])? {
            return Ok(false);
        }
        self.sql("DELETE FROM messages WHERE session = ?1")?.execute([id.as_str()])?;
        self.sql("DELETE FROM todos WHERE session = ?1")?.execute([id.as_str()])?;
        Ok(self.sql("DELETE FROM sessions WHERE id = ?1")?.execute([id.as_str()])? > 0)
    }

    pub(crate) fn add_session_usage(&self, id: &SessionId, usage: Usage) -> Result<()> {
        self.sql(
            "UPDATE sessions SET input_tokens = input_tokens + ?2, output_tokens = output_tokens + ?3,
                 cache_read = cache_read + ?4, cache_write = cache_write + ?5 WHERE id = ?1",
        )?
        .execute(params![
            id.as_str(),
            amount(usage.input),
            amount(usage.output),
            amount(usage.cache_read),
            amount(usage.cache_write)
        ])?;
        Ok(())
    }
}

fn session(row: &Row<'_>) -> Result<SessionRow> {
    let ended_at: Option<i64> = row.get("ended_at")?;
    let reason: Option<String> = row.get("end_reason")?;
    Ok(SessionRow {
        id: SessionId(row.get("id")?),
        key: SessionKey(row.get("session_key")?),
        platform: row.get("platform")?,
        display_name: row.get("display_name")?,
        parent: row.get::<_, Option<String>>("parent")?.map(SessionId),
        model: row.get("model")?,
        title: row.get("title")?,
        started_at: time_at(row, "started_at")?,
        last_at: time_at(row, "last_at")?,
        ended: ended_at.map(|at| SessionEnd { at: time(at), reason: reason.unwrap_or_default() }),
        message_count: count(row.get("message_count")?),
        usage: Usage {
            input: count(row.get("input_tokens")?),
            output: count(row.get("output_tokens")?),
            cache_read: count(row.get("cache_read")?),
            cache_write: count(row.get("cache_write")?),
        },
    })
}
