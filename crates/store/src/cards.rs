//! Transcripts as programs list them: a row with what can be counted about it.

use petasos_core::SessionId;
use rusqlite::{OptionalExtension, params};

use crate::error::Result;
use crate::group::{Reads, Tx};
use crate::sessions::SessionRow;
use crate::value::{count, rows};

/// How much of the first thing said is shown.
const PREVIEW: i64 = 120;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionCard {
    pub row: SessionRow,
    pub tool_calls: u64,
    pub answers: u64,
    pub preview: Option<String>,
    pub has_prompt: bool,
}

/// Which transcripts are wanted.
#[derive(Debug, Clone, Default)]
pub struct CardQuery {
    pub platform: Option<String>,
    /// Also those that go on from another one.
    pub children: bool,
    pub limit: usize,
    pub offset: usize,
}

impl Reads {
    pub fn session_card(&self, id: &SessionId) -> Result<Option<SessionCard>> {
        self.session(id)?.map(|row| self.card(row)).transpose()
    }

    /// By last activity, newest first.
    pub fn session_cards(&self, query: &CardQuery) -> Result<Vec<SessionCard>> {
        let mut read = self.sql(
            "SELECT id FROM sessions WHERE (?1 IS NULL OR platform = ?1) AND (?2 OR parent IS NULL)
             ORDER BY last_at DESC, id DESC LIMIT ?3 OFFSET ?4",
        )?;
        let wanted = params![query.platform, query.children, rows(query.limit), rows(query.offset)];
        let ids: Vec<SessionId> =
            read.query_and_then(wanted, |row| Ok(SessionId(row.get(0)?)))?.collect::<Result<_>>()?;
        ids.iter().filter_map(|id| self.session_card(id).transpose()).collect()
    }

    fn card(&self, row: SessionRow) -> Result<SessionCard> {
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
            .query_row(params![id, PREVIEW], |row| row.get(0))
            .optional()?;
        let has_prompt =
            self.sql("SELECT 1 FROM sessions WHERE id = ?1 AND system_prompt IS NOT NULL")?.exists([id])?;
        Ok(SessionCard { tool_calls: count(tool_calls), answers: count(answers), preview, has_prompt, row })
    }

    /// Whether a title is taken.
    pub fn has_title(&self, title: &str) -> Result<bool> {
        Ok(self.sql("SELECT 1 FROM sessions WHERE title = ?1 LIMIT 1")?.exists([title])?)
    }
}

impl Tx<'_> {
    /// No conversation uses this transcript any more.
    pub fn unbind_session(&self, id: &SessionId) -> Result<bool> {
        Ok(self.sql("DELETE FROM routing WHERE session = ?1")?.execute([id.as_str()])? > 0)
    }
}
