//! Finding what was said. The query is words, never syntax: no input of a user can be an error.

use petasos_core::ids::RowId;
use petasos_core::person::Person;
use petasos_core::transcript::Role;
use petasos_core::{Millis, SessionId, SessionKey};
use rusqlite::{OptionalExtension, Row, params};

use crate::error::{Error, Result};
use crate::group::Reads;
use crate::transcript::Said;
use crate::value::{json, rows, time_at};

/// The full-text index knows whole words; what has none (Chinese, parts of words) is looked for in this
/// many of the latest rows.
const SCANNED: i64 = 20_000;
const WORDS: usize = 16;

/// A place where the words were said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    pub row: RowId,
    pub session: SessionId,
    pub key: Option<SessionKey>,
    pub role: Role,
    pub at: Millis,
    /// The text around the words, which stand between `»` and `«`.
    pub snippet: String,
}

/// Where to look.
struct Scope<'a> {
    /// A list in JSON.
    keys: Option<String>,
    person: Option<&'a Person>,
}

impl Scope<'_> {
    fn person(&self) -> Option<&str> {
        self.person.map(Person::as_str)
    }
}

impl Reads {
    /// The best matches first. `keys`: only in these conversations; `None`: everywhere.
    pub fn search(&self, query: &str, keys: Option<&[SessionKey]>, limit: usize) -> Result<Vec<Hit>> {
        self.find(query, Scope { keys: keys.map(json).transpose()?, person: None }, limit)
    }

    /// The same in what is this person's, and in nothing else.
    pub fn search_of(&self, person: &Person, query: &str, limit: usize) -> Result<Vec<Hit>> {
        self.find(query, Scope { keys: None, person: Some(person) }, limit)
    }

    /// What was said around a row of this person's, and in which transcript; `None`: there is no such row of theirs.
    pub fn rows_around(
        &self,
        person: &Person,
        row: RowId,
        each_way: usize,
    ) -> Result<Option<(SessionId, Vec<Said>)>> {
        let mut read = self.sql(
            "SELECT m.session FROM messages m JOIN sessions s ON s.id = m.session WHERE m.id = ?1 AND s.person = ?2",
        )?;
        let session: Option<String> =
            read.query_row(params![row.0, person.as_str()], |row| row.get(0)).optional()?;
        let Some(session) = session.map(SessionId) else { return Ok(None) };
        let mut read = self.sql(
            "SELECT id FROM messages WHERE session = ?1 AND id <= ?2 ORDER BY id DESC LIMIT 1 OFFSET ?3",
        )?;
        let before: Option<i64> =
            read.query_row(params![session.as_str(), row.0, rows(each_way)], |row| row.get(0)).optional()?;
        let from = RowId(before.map_or(0, |before| before - 1));
        let said = self.rows_after(&session, from, each_way * 2 + 1)?;
        Ok(Some((session, said.into_iter().filter(|said| !said.is_undone()).collect())))
    }

    fn find(&self, query: &str, scope: Scope<'_>, limit: usize) -> Result<Vec<Hit>> {
        let Some(expression) = expression(query) else {
            return Ok(Vec::new());
        };
        let hits = self.search_words(&expression, &scope, limit)?;
        if hits.is_empty() {
            return self.search_text(query.trim(), &scope, limit);
        }
        Ok(hits)
    }

    fn search_words(&self, expression: &str, scope: &Scope<'_>, limit: usize) -> Result<Vec<Hit>> {
        let mut read = self.sql(
            "SELECT m.id, m.session, s.session_key, m.role, m.at,
                 snippet(words, 0, '»', '«', '…', 24) AS snippet
             FROM words JOIN messages m ON m.id = words.rowid LEFT JOIN sessions s ON s.id = m.session
             WHERE words MATCH ?1 AND m.state <> 'undone'
                 AND (?2 IS NULL OR s.session_key IN (SELECT value FROM json_each(?2)))
                 AND (?4 IS NULL OR s.person = ?4)
             ORDER BY words.rank, m.id DESC LIMIT ?3",
        )?;
        read.query_and_then(params![expression, scope.keys, rows(limit), scope.person()], hit)?.collect()
    }

    fn search_text(&self, text: &str, scope: &Scope<'_>, limit: usize) -> Result<Vec<Hit>> {
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
        read.query_and_then(params![text, scope.keys, rows(limit), SCANNED, scope.person()], hit)?.collect()
    }
}

/// Every word as a quoted prefix, all of them required. `None`: there is no word.
fn expression(query: &str) -> Option<String> {
    let words = query
        .split(|c: char| c.is_whitespace() || c == '"' || c == '\0')
        .filter(|word| word.chars().any(char::is_alphanumeric));
    let quoted: Vec<String> = words.take(WORDS).map(|word| format!("\"{word}\"*")).collect();
    (!quoted.is_empty()).then(|| quoted.join(" "))
}

fn hit(row: &Row<'_>) -> Result<Hit> {
    let role: String = row.get("role")?;
    Ok(Hit {
        row: RowId(row.get("id")?),
        session: SessionId(row.get("session")?),
        key: row.get::<_, Option<String>>("session_key")?.map(SessionKey),
        role: Role::parse(&role).ok_or(Error::Unreadable("role"))?,
        at: time_at(row, "at")?,
        snippet: row.get("snippet")?,
    })
}
