//! Questions to people: asked once, ended once. And what their answers allow for longer than one command.

use petasos_approval::{Category, Choice, Remembered};
use petasos_core::ids::RowId;
use petasos_core::{Millis, OutboxId, SessionId, SessionKey, Source, TurnId};
use rusqlite::{Row, params};

use crate::error::Result;
use crate::group::{Reads, Tx};
use crate::value::{at, json, legible, parse, time_at};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuestionRow {
    pub id: String,
    pub key: SessionKey,
    pub session: SessionId,
    pub turn: TurnId,
    /// The tool call that waits for the answer.
    pub call: String,
    /// On whose behalf it is asked.
    pub origin: Source,
    pub kind: String,
    /// What is asked, and how it ended, as JSON of whoever asks.
    pub body: String,
    /// The message that shows it; `None`: its readers come for it.
    pub outbox: Option<OutboxId>,
    /// The rows that say so to those who come for it: that it was asked, and how it ended.
    pub asked_row: Option<RowId>,
    pub ended_row: Option<RowId>,
    pub asked_at: Millis,
    pub expires_at: Millis,
    pub ending: Option<String>,
}

/// A kind of command that runs unasked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    /// The key of its category; another version may have written one that nobody knows.
    pub kind: String,
    /// `None`: everywhere.
    pub session: Option<SessionId>,
    pub since: Millis,
}

impl Reads {
    pub fn question(&self, id: &str) -> Result<Option<QuestionRow>> {
        let mut read = self.sql("SELECT * FROM questions WHERE id = ?1")?;
        read.query_and_then([id], question)?.next().transpose()
    }

    /// Those of a session that wait, oldest first.
    pub fn open_questions(&self, key: &SessionKey) -> Result<Vec<QuestionRow>> {
        let mut read =
            self.sql("SELECT * FROM questions WHERE session_key = ?1 AND ended_at IS NULL ORDER BY number")?;
        read.query_and_then([key.as_str()], question)?.filter_map(legible).collect()
    }

    /// All that a session asked, oldest first.
    pub fn questions(&self, key: &SessionKey) -> Result<Vec<QuestionRow>> {
        let mut read = self.sql("SELECT * FROM questions WHERE session_key = ?1 ORDER BY number")?;
        read.query_and_then([key.as_str()], question)?.filter_map(legible).collect()
    }

    /// Those of all sessions that wait, oldest first.
    pub fn all_open_questions(&self) -> Result<Vec<QuestionRow>> {
        let mut read = self.sql("SELECT * FROM questions WHERE ended_at IS NULL ORDER BY +number")?;
        read.query_and_then([], question)?.filter_map(legible).collect()
    }

    /// Those that a turn asked.
    pub fn questions_of_turn(&self, turn: TurnId) -> Result<Vec<QuestionRow>> {
        let mut read = self.sql("SELECT * FROM questions WHERE turn = ?1 ORDER BY number")?;
        read.query_and_then([turn.0], question)?.filter_map(legible).collect()
    }

    /// What runs unasked in this transcript. Words of another version are asked about again.
    pub fn approved(&self, session: &SessionId) -> Result<Remembered> {
        let mut read = self.sql("SELECT scope, category FROM approved WHERE scope IN ('', ?1)")?;
        let mut remembered = Remembered::default();
        let mut rows = read.query([session.as_str()])?;
        while let Some(row) = rows.next()? {
            let (scope, category): (String, String) = (row.get(0)?, row.get(1)?);
            let choice = if scope.is_empty() { Choice::Always } else { Choice::Session };
            if let Some(category) = Category::from_key(&category) {
                remembered.learn(session.as_str(), &[category], choice);
            }
        }
        Ok(remembered)
    }

    /// Everything that runs unasked, for a person: first what does so everywhere.
    pub fn all_approved(&self) -> Result<Vec<Allowed>> {
        let mut read = self.sql("SELECT scope, category, at FROM approved ORDER BY scope, category")?;
        let rows = read.query_and_then([], |row| {
            let scope: String = row.get("scope")?;
            let session = (!scope.is_empty()).then_some(SessionId(scope));
            Ok(Allowed { kind: row.get("category")?, session, since: time_at(row, "at")? })
        })?;
        rows.collect()
    }
}

impl Tx<'_> {
    pub fn ask(&self, row: &QuestionRow) -> Result<()> {
        self.sql(
            "INSERT INTO questions
                 (id, session_key, session, turn, call, origin, kind, body, outbox, asked_row, asked_at, expires_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        )?
        .execute(params![
            row.id,
            row.key.as_str(),
            row.session.as_str(),
            row.turn.0,
            row.call,
            json(&row.origin)?,
            row.kind,
            row.body,
            row.outbox.map(|item| item.0),
            row.asked_row.map(|row| row.0),
            at(row.asked_at),
            at(row.expires_at),
        ])?;
        Ok(())
    }

    /// `false`: it had ended before, and that stands.
    pub fn end_question(&self, id: &str, ending: &str, now: Millis) -> Result<bool> {
        let mut end =
            self.sql("UPDATE questions SET ending = ?2, ended_at = ?3 WHERE id = ?1 AND ended_at IS NULL")?;
        Ok(end.execute(params![id, ending, at(now)])? > 0)
    }

    /// The row that says how it ended.
    pub fn put_ended_row(&self, id: &str, row: RowId) -> Result<()> {
        self.sql("UPDATE questions SET ended_row = ?2 WHERE id = ?1")?.execute(params![id, row.0])?;
        Ok(())
    }

    /// These kinds of commands run unasked from now on, as far as the choice reaches.
    pub fn approve(
        &self,
        session: &SessionId,
        categories: &[Category],
        choice: Choice,
        now: Millis,
    ) -> Result<()> {
        let scope = match choice {
            Choice::Once | Choice::Deny => return Ok(()),
            Choice::Session => session.as_str(),
            Choice::Always => "",
        };
        for category in categories.iter().filter(|category| category.is_memorable()) {
            self.sql("INSERT OR REPLACE INTO approved (scope, category, at) VALUES (?1, ?2, ?3)")?
                .execute(params![scope, category.key(), at(now)])?;
        }
        Ok(())
    }

    /// A kind of command is asked about again, everywhere; `None`: every kind is. Gives how many rows that were.
    pub fn forget_approved(&self, kind: Option<&str>) -> Result<usize> {
        let mut forget = self.sql("DELETE FROM approved WHERE ?1 IS NULL OR category = ?1")?;
        Ok(forget.execute([kind])?)
    }
}

fn question(row: &Row<'_>) -> Result<QuestionRow> {
    let origin: String = row.get("origin")?;
    Ok(QuestionRow {
        id: row.get("id")?,
        key: SessionKey(row.get("session_key")?),
        session: SessionId(row.get("session")?),
        turn: TurnId(row.get("turn")?),
        call: row.get("call")?,
        origin: parse(&origin, "origin of a question")?,
        kind: row.get("kind")?,
        body: row.get("body")?,
        outbox: row.get::<_, Option<i64>>("outbox")?.map(OutboxId),
        asked_row: row.get::<_, Option<i64>>("asked_row")?.map(RowId),
        ended_row: row.get::<_, Option<i64>>("ended_row")?.map(RowId),
        asked_at: time_at(row, "asked_at")?,
        expires_at: time_at(row, "expires_at")?,
        ending: row.get("ending")?,
    })
}
