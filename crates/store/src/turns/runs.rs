//! API runs: accepted messages with a run id. A run begins, is claimed and ends in the same transactions as its inbox row
//! and its turn.

use std::time::Duration;

use petasos_core::ids::RowId;
use petasos_core::journal::MessageOutcome;
use petasos_core::message::Delivery;
use petasos_core::transcript::Usage;
use petasos_core::turn::Turn;
use petasos_core::{InboxId, Millis, RunId, SessionId, SessionKey, TurnId};
use rusqlite::{OptionalExtension, Row, params};

use crate::connection::{Reads, Tx};
use crate::error::{Error, Result};
use crate::value::{at, parse, time, time_at};

const IDEMPOTENCY_TTL: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRow {
    pub id: RunId,
    pub inbox: InboxId,
    pub owner: String,
    /// May change until the run has begun.
    pub session: SessionId,
    pub key: SessionKey,
    /// Run options, as JSON of the API.
    pub options: String,
    /// Deleted by its owner.
    pub hidden: bool,
    pub created_at: Millis,
    pub claimed_at: Option<Millis>,
    /// Its rows follow this one; `None`: not begun.
    pub after_row: Option<RowId>,
    pub last_row: Option<RowId>,
    pub end: Option<RunEnd>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunEnd {
    pub outcome: MessageOutcome,
    pub at: Millis,
    pub usage: Usage,
    pub partial: bool,
    /// The answer, or the reason why there is none; `None`: it never began.
    pub answer: Option<String>,
}

#[derive(Debug, Clone)]
pub struct NewRun<'a> {
    pub id: &'a RunId,
    pub inbox: InboxId,
    pub owner: &'a str,
    pub session: &'a SessionId,
    pub key: &'a SessionKey,
    pub options: &'a str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdempotencyMatch {
    /// The same request; this is its run.
    Same(RunId),
    /// The key was used for a different request.
    Different,
}

impl Reads {
    pub fn run(&self, id: &RunId) -> Result<Option<RunRow>> {
        let mut read = self.sql("SELECT * FROM runs WHERE id = ?1")?;
        read.query_and_then([id.as_str()], run)?.next().transpose()
    }

    pub fn run_of(&self, inbox: InboxId) -> Result<Option<RunRow>> {
        self.sql("SELECT * FROM runs WHERE inbox = ?1")?.query_and_then([inbox.0], run)?.next().transpose()
    }

    pub fn last_run(&self, session: &SessionId) -> Result<Option<RunRow>> {
        let mut read = self.sql("SELECT * FROM runs WHERE session = ?1 ORDER BY inbox DESC LIMIT 1")?;
        read.query_and_then([session.as_str()], run)?.next().transpose()
    }

    /// `None`: the key is unknown or expired.
    pub fn find_idempotency_key(
        &self,
        owner: &str,
        name: &str,
        fingerprint: &[u8],
        now: Millis,
    ) -> Result<Option<IdempotencyMatch>> {
        let mut read =
            self.sql("SELECT fingerprint, run FROM repeats WHERE owner = ?1 AND name = ?2 AND at > ?3")?;
        let known: Option<(Vec<u8>, RunId)> = read
            .query_row(params![owner, name, at(now.before(IDEMPOTENCY_TTL))], |row| {
                Ok((row.get(0)?, RunId(row.get(1)?)))
            })
            .optional()?;
        Ok(known.map(|(known, run)| {
            if known == fingerprint { IdempotencyMatch::Same(run) } else { IdempotencyMatch::Different }
        }))
    }

    /// Whether the session has an unsettled message.
    pub fn is_busy(&self, key: &SessionKey) -> Result<bool> {
        let mut read = self.sql("SELECT 1 FROM inbox WHERE state <> 'settled' AND session_key = ?1")?;
        Ok(read.exists([key.as_str()])?)
    }
}

impl Tx<'_> {
    /// Call in the transaction of its inbox row.
    pub fn begin_run(&self, new: &NewRun<'_>, now: Millis) -> Result<()> {
        let NewRun { id, inbox, owner, session, key, options } = new;
        self.sql(
            "INSERT INTO runs (id, inbox, owner, session, session_key, wish, created_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![
            id.as_str(),
            inbox.0,
            owner,
            session.as_str(),
            key.as_str(),
            options,
            at(now)
        ])?;
        Ok(())
    }

    pub fn put_idempotency_key(
        &self,
        owner: &str,
        name: &str,
        fingerprint: &[u8],
        run: &RunId,
        now: Millis,
    ) -> Result<()> {
        self.sql(
            "INSERT INTO repeats (owner, name, fingerprint, run, at) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (owner, name) DO UPDATE
             SET fingerprint = excluded.fingerprint, run = excluded.run, at = excluded.at",
        )?
        .execute(params![owner, name, fingerprint, run.as_str(), at(now)])?;
        Ok(())
    }

    /// `false`: there is none, or it was already hidden.
    pub fn hide_run(&self, id: &RunId) -> Result<bool> {
        let mut hide = self.sql("UPDATE runs SET hidden = 1 WHERE id = ?1 AND hidden = 0")?;
        Ok(hide.execute([id.as_str()])? > 0)
    }

    /// Rows appended from now on may belong to the run.
    pub(crate) fn run_claimed(&self, inbox: InboxId, now: Millis) -> Result<()> {
        self.sql(
            "UPDATE runs SET claimed_at = ?2, after_row = (SELECT coalesce(max(id), 0) FROM messages)
             WHERE inbox = ?1 AND claimed_at IS NULL",
        )?
        .execute(params![inbox.0, at(now)])?;
        Ok(())
    }

    /// Applies only to runs whose client polls for the answer.
    pub(crate) fn run_session_changed(&self, turn: &Turn) -> Result<()> {
        if turn.route.delivery == Delivery::Pull {
            self.sql("UPDATE runs SET session = ?2 WHERE inbox = ?1 AND session <> ?2")?
                .execute(params![turn.id.0, turn.session.as_str()])?;
        }
        Ok(())
    }

    /// Call after the last row and the last state of the turn are written.
    pub(crate) fn run_ended(&self, turn: TurnId, outcome: MessageOutcome, now: Millis) -> Result<()> {
        self.sql(
            "UPDATE runs SET ended_at = ?3, outcome = ?2,
                 last_row = (SELECT max(id) FROM messages WHERE messages.session = runs.session),
                 said = (SELECT content FROM messages WHERE messages.session = runs.session ORDER BY id DESC LIMIT 1),
                 usage = (SELECT CASE WHEN json_valid(state) THEN state ->> 'usage' END FROM turns WHERE id = ?1),
                 partial = coalesce((SELECT CASE WHEN json_valid(state) THEN state ->> 'partial' END
                                     FROM turns WHERE id = ?1), 0)
             WHERE inbox = ?1 AND ended_at IS NULL",
        )?
        .execute(params![turn.0, outcome.as_str(), at(now)])?;
        Ok(())
    }

    /// Ends a run without a turn; a run that ended with its turn is unchanged.
    pub(crate) fn run_settled(&self, inbox: InboxId, outcome: MessageOutcome, now: Millis) -> Result<()> {
        self.sql("UPDATE runs SET ended_at = ?3, outcome = ?2 WHERE inbox = ?1 AND ended_at IS NULL")?
            .execute(params![inbox.0, outcome.as_str(), at(now)])?;
        Ok(())
    }
}

fn run(row: &Row<'_>) -> Result<RunRow> {
    let ended: (Option<i64>, Option<String>) = (row.get("ended_at")?, row.get("outcome")?);
    let end = match ended {
        (Some(ended_at), Some(outcome)) => {
            let usage: Option<String> = row.get("usage")?;
            Some(RunEnd {
                outcome: MessageOutcome::parse(&outcome).ok_or(Error::Unreadable("outcome"))?,
                at: time(ended_at),
                usage: usage.map(|text| parse(&text, "usage")).transpose()?.unwrap_or_default(),
                partial: row.get("partial")?,
                answer: row.get("said")?,
            })
        }
        (None, _) | (_, None) => None,
    };
    Ok(RunRow {
        id: RunId(row.get("id")?),
        inbox: InboxId(row.get("inbox")?),
        owner: row.get("owner")?,
        session: SessionId(row.get("session")?),
        key: SessionKey(row.get("session_key")?),
        options: row.get("wish")?,
        hidden: row.get("hidden")?,
        created_at: time_at(row, "created_at")?,
        claimed_at: row.get::<_, Option<i64>>("claimed_at")?.map(time),
        after_row: row.get::<_, Option<i64>>("after_row")?.map(RowId),
        last_row: row.get::<_, Option<i64>>("last_row")?.map(RowId),
        end,
    })
}
