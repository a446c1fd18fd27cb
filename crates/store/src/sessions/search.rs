//! Full-text search in transcripts. A query is a list of words, never syntax, so that no user input is an error.

use petasos_core::ids::RowId;
use petasos_core::person::Person;
use petasos_core::transcript::Role;
use petasos_core::{Millis, SessionId, SessionKey};
use rusqlite::{OptionalExtension, Row, params};

use crate::connection::Reads;
use crate::error::{Error, Result};
use crate::sessions::transcript::TranscriptRow;
use crate::value::{json, sql_limit, time_at};

/// Number of latest rows scanned for text that the word index cannot match (Chinese, parts of words).
const SCANNED_ROWS: i64 = 20_000;
const MAX_WORDS: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchHit {
    pub row: RowId,
    pub session: SessionId,
    pub key: Option<SessionKey>,
    pub role: Role,
    pub at: Millis,
    /// Text around the match, which is enclosed in `»` and `«`.
    pub snippet: String,
}

struct SearchScope<'a> {
    /// JSON list of session keys.
    keys: Option<String>,
    person: Option<&'a Person>,
}

impl SearchScope<'_> {
    fn person(&self) -> Option<&str> {
        self.person.map(Person::as_str)
    }
}

impl Reads {
    /// Best matches first. `keys`: only these sessions; `None`: all.
    pub fn search(&self, query: &str, keys: Option<&[SessionKey]>, limit: usize) -> Result<Vec<SearchHit>> {
        self.search_scope(query, SearchScope { keys: keys.map(json).transpose()?, person: None }, limit)
    }

    pub fn search_person(&self, person: &Person, query: &str, limit: usize) -> Result<Vec<SearchHit>> {
        self.search_scope(query, SearchScope { keys: None, person: Some(person) }, limit)
    }

    /// Rows around a row, and their session. `None`: the person has no such row.
    pub fn rows_around(
        &self,
        person: &Person,
        row: RowId,
        each_way: usize,
    ) -> Result<Option<(SessionId, Vec<TranscriptRow>)>> {
        let mut read = self.sql(
            "SELECT m.session FROM messages m JOIN sessions s ON s.id = m.session WHERE m.id = ?1 AND s.person = ?2",
        )?;
        let session: Option<String> =
            read.query_row(params![row.0, person.as_str()], |row| row.get(0)).optional()?;
        let Some(session) = session.map(SessionId) else { return Ok(None) };
        let mut read = self.sql(
            "SELECT id FROM messages WHERE session = ?1 AND id <= ?2 ORDER BY id DESC LIMIT 1 OFFSET ?3",
        )?;
        let before: Option<i64> = read
            .query_row(params![session.as_str(), row.0, sql_limit(each_way)], |row| row.get(0))
            .optional()?;
        let from = RowId(before.map_or(0, |before| before - 1));
        let said = self.rows_after(&session, from, each_way * 2 + 1)?;
        Ok(Some((session, said.into_iter().filter(|said| !said.is_undone()).collect())))
    }

    fn search_scope(&self, query: &str, scope: SearchScope<'_>, limit: usize) -> Result<Vec<SearchHit>> {
        let Some(expression) = expression(query) else {
            return Ok(Vec::new());
        };
        let hits = self.search_words(&expression, &scope, limit)?;
        if hits.is_empty() {
            return self.search_text(query.trim(), &scope, limit);
        }
        Ok(hits)
    }

    fn search_words(
        &self,
        expression: &str,
        scope: &SearchScope<'_>,
        limit: usize,
    ) -> Result<Vec<SearchHit>> {
        let mut read = self.sql(
            "SELECT m.id, m.session, s.session_key, m.role, m.at,
                 snippet(words, 0, '»', '«', '…', 24) AS snippet
             FROM words JOIN messages m ON m.id = words.rowid LEFT JOIN sessions s ON s.id = m.session
             WHERE words MATCH ?1 AND m.state <> 'undone'
                 AND (?2 IS NULL OR s.session_key IN (SELECT value FROM json_each(?2)))
                 AND (?4 IS NULL OR s.person = ?4)
             ORDER BY words.rank, m.id DESC LIMIT ?3",
        )?;
        read.query_and_then(params![expression, scope.keys, sql_limit(limit), scope.person()], hit)?.collect()
    }

    fn search_text(&self, text: &str, scope: &SearchScope<'_>, limit: usize) -> Result<Vec<SearchHit>> {
        let mut read = self.sql(
            "SELECT m.id, m.session, s.session_key, m.role, m.at,
                 substr(m.content, max(1, instr(lower(m.content), lower(?1)) - 60), 160) AS snippet
             FROM messages m LEFT JOIN sessions s ON s.id = m.session
             WHERE m.id > (SELECT coalesce(max(id), 0) FROM messages) - ?4
                 AND m.state <> 'undone' AND m.role IN ('user', 'assistant') AND instr(lower(m.content), lower(?1)) > 0
                 AND (?2 IS NULL OR s.session_key IN (SELECT value FROM json_each(?2)))
                 AND (?5 IS NULL OR s.person = ?5)
             ORDER BY m.id DESC LIMIT ?3",
        )?;
        read.query_and_then(params![text, scope.keys, sql_limit(limit), SCANNED_ROWS, scope.person()], hit)?
            .collect()
    }
}

/// Every word as a quoted prefix, all required. `None`: the query has no word.
fn expression(query: &str) -> Option<String> {
    let words = query
        .split(|c: char| c.is_whitespace() || c == '"' || c == '\0')
        .filter(|word| word.chars().any(char::is_alphanumeric));
    let quoted: Vec<String> = words.take(MAX_WORDS).map(|word| format!("\"{word}\"*")).collect();
    (!quoted.is_empty()).then(|| quoted.join(" "))
}

fn hit(row: &Row<'_>) -> Result<SearchHit> {
    let role: String = row.get("role")?;
    Ok(SearchHit {
        row: RowId(row.get("id")?),
        session: SessionId(row.get("session")?),
        key: row.get::<_, Option<String>>("session_key")?.map(SessionKey),
        role: Role::parse(&role).ok_or(Error::Unreadable("role"))?,
        at: time_at(row, "at")?,
        snippet: row.get("snippet")?,
    })
}
