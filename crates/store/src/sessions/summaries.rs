//! Session summaries: rows of the session list with their counts.

use petasos_core::SessionId;
use rusqlite::{OptionalExtension, params};

use crate::connection::{Reads, Tx};
use crate::error::Result;
use crate::sessions::SessionRow;
use crate::value::{count, sql_limit};

/// Characters of the first user message shown.
const PREVIEW_CHARS: i64 = 120;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSummary {
    pub row: SessionRow,
    pub tool_calls: u64,
    pub answers: u64,
    pub preview: Option<String>,
    pub has_prompt: bool,
}

#[derive(Debug, Clone, Default)]
pub struct SessionSummaryQuery {
    pub platform: Option<String>,
    /// Include sessions that continue another one.
    pub children: bool,
    pub limit: usize,
    pub offset: usize,
}

impl Reads {
    pub fn session_summary(&self, id: &SessionId) -> Result<Option<SessionSummary>> {
        self.session(id)?.map(|row| self.summarise(row)).transpose()
    }

    /// By last activity, newest first.
    pub fn session_summaries(&self, query: &SessionSummaryQuery) -> Result<Vec<SessionSummary>> {
        let mut read = self.sql(
            "SELECT id FROM sessions WHERE (?1 IS NULL OR platform = ?1) AND (?2 OR parent IS NULL)
             ORDER BY last_at DESC, id DESC LIMIT ?3 OFFSET ?4",
        )?;
        let wanted = params![query.platform, query.children, sql_limit(query.limit), sql_limit(query.offset)];
        let ids: Vec<SessionId> =
            read.query_and_then(wanted, |row| Ok(SessionId(row.get(0)?)))?.collect::<Result<_>>()?;
        ids.iter().filter_map(|id| self.session_summary(id).transpose()).collect()
    }

    fn summarise(&self, row: SessionRow) -> Result<SessionSummary> {
        let id = row.id.as_str();
        let (tool_calls, answers) = self
            .sql(
                "SELECT count(*) FILTER (WHERE role = 'tool'), count(*) FILTER (WHERE role = 'assistant')
                 FROM messages WHERE session = ?1",
            )?
            .query_row([id], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let preview = self
            .sql(
                "SELECT substr(content, 1, ?2) FROM messages WHERE session = ?1 AND role = 'user' ORDER BY id LIMIT 1",
            )?
            .query_row(params![id, PREVIEW_CHARS], |row| row.get(0))
            .optional()?;
        let has_prompt =
            self.sql("SELECT 1 FROM sessions WHERE id = ?1 AND system_prompt IS NOT NULL")?.exists([id])?;
        Ok(SessionSummary {
            tool_calls: count(tool_calls),
            answers: count(answers),
            preview,
            has_prompt,
            row,
        })
    }

    pub fn has_title(&self, title: &str) -> Result<bool> {
        Ok(self.sql("SELECT 1 FROM sessions WHERE title = ?1 LIMIT 1")?.exists([title])?)
    }
}

impl Tx<'_> {
    /// Removes the routing entries that are bound to this session.
    pub fn unbind_session(&self, id: &SessionId) -> Result<bool> {
        Ok(self.sql("DELETE FROM routing WHERE session = ?1")?.execute([id.as_str()])? > 0)
    }
}
