//! Approval requests and clarifying questions: asked once, ended once. Also the approvals that outlive one command.

use petasos_approval::{Category, Choice, RememberedApprovals};
use petasos_core::ids::RowId;
use petasos_core::{Millis, OutboxId, SessionId, SessionKey, Source, TurnId};
use rusqlite::{Row, params};

use crate::connection::{Reads, Tx};
use crate::error::Result;
use crate::value::{at, json, parse, skip_unreadable, time_at};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuestionRow {
    pub id: String,
    pub key: SessionKey,
    pub session: SessionId,
    pub turn: TurnId,
    /// Tool call that waits for the answer.
    pub call: String,
    pub origin: Source,
    pub kind: String,
    /// Question and answer, as JSON of the gateway.
    pub body: String,
    /// Outbox item that shows it; `None`: clients poll for it.
    pub outbox: Option<OutboxId>,
    /// Transcript rows for polling clients: the question, and its end.
    pub asked_row: Option<RowId>,
    pub ended_row: Option<RowId>,
    pub asked_at: Millis,
    pub expires_at: Millis,
    pub ending: Option<String>,
}

/// A command category that runs without an approval request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovedCategory {
    /// Key of the category, possibly of another version.
    pub kind: String,
    /// `None`: all sessions.
    pub session: Option<SessionId>,
    pub since: Millis,
}

impl Reads {
    pub fn question(&self, id: &str) -> Result<Option<QuestionRow>> {
        let mut read = self.sql("SELECT * FROM questions WHERE id = ?1")?;
        read.query_and_then([id], question)?.next().transpose()
    }

    pub fn open_questions(&self, key: &SessionKey) -> Result<Vec<QuestionRow>> {
        let mut read =
            self.sql("SELECT * FROM questions WHERE session_key = ?1 AND ended_at IS NULL ORDER BY number")?;
        read.query_and_then([key.as_str()], question)?.filter_map(skip_unreadable).collect()
    }

    pub fn questions(&self, key: &SessionKey) -> Result<Vec<QuestionRow>> {
        let mut read = self.sql("SELECT * FROM questions WHERE session_key = ?1 ORDER BY number")?;
        read.query_and_then([key.as_str()], question)?.filter_map(skip_unreadable).collect()
    }

    /// Open questions of all sessions, oldest first.
    pub fn all_open_questions(&self) -> Result<Vec<QuestionRow>> {
        let mut read = self.sql("SELECT * FROM questions WHERE ended_at IS NULL ORDER BY +number")?;
        read.query_and_then([], question)?.filter_map(skip_unreadable).collect()
    }

    pub fn questions_of_turn(&self, turn: TurnId) -> Result<Vec<QuestionRow>> {
        let mut read = self.sql("SELECT * FROM questions WHERE turn = ?1 ORDER BY number")?;
        read.query_and_then([turn.0], question)?.filter_map(skip_unreadable).collect()
    }

    /// Approvals valid in this session. Unknown categories require approval again.
    pub fn approved(&self, session: &SessionId) -> Result<RememberedApprovals> {
        let mut read = self.sql("SELECT scope, category FROM approved WHERE scope IN ('', ?1)")?;
        let mut remembered = RememberedApprovals::default();
        let mut rows = read.query([session.as_str()])?;
        while let Some(row) = rows.next()? {
            let scope: String = row.get(0)?;
            let category: String = row.get(1)?;
            let choice = if scope.is_empty() { Choice::Always } else { Choice::Session };
            if let Some(category) = Category::from_key(&category) {
                remembered.record(session.as_str(), &[category], choice);
            }
        }
        Ok(remembered)
    }

    /// All stored approvals; those for all sessions come first.
    pub fn all_approved(&self) -> Result<Vec<ApprovedCategory>> {
        let mut read = self.sql("SELECT scope, category, at FROM approved ORDER BY scope, category")?;
        let rows = read.query_and_then([], |row| {
            let scope: String = row.get("scope")?;
            let session = (!scope.is_empty()).then_some(SessionId(scope));
            Ok(ApprovedCategory { kind: row.get("category")?, session, since: time_at(row, "at")? })
        })?;
        rows.collect()
    }
}

impl Tx<'_> {
    pub fn insert_question(&self, row: &QuestionRow) -> Result<()> {
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

    /// `false`: it had already ended.
    pub fn end_question(&self, id: &str, ending: &str, now: Millis) -> Result<bool> {
        let mut end =
            self.sql("UPDATE questions SET ending = ?2, ended_at = ?3 WHERE id = ?1 AND ended_at IS NULL")?;
        Ok(end.execute(params![id, ending, at(now)])? > 0)
    }

    pub fn put_ended_row(&self, id: &str, row: RowId) -> Result<()> {
        self.sql("UPDATE questions SET ended_row = ?2 WHERE id = ?1")?.execute(params![id, row.0])?;
        Ok(())
    }

    /// Stores approvals of these categories, with the scope of the choice.
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
        for category in categories.iter().filter(|category| category.can_be_remembered()) {
            self.sql("INSERT OR REPLACE INTO approved (scope, category, at) VALUES (?1, ?2, ?3)")?
                .execute(params![scope, category.key(), at(now)])?;
        }
        Ok(())
    }

    /// Deletes the approvals of a category; `None`: of all categories. Returns the number of rows.
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
