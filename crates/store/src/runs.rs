//! Runs: accepted messages that a program knows by name and comes back for. A run begins with its inbox row, is
//! claimed with it, and ends with its turn, each in the same transaction; it has no life of its own.

use std::time::Duration;

use petasos_core::ids::RowId;
use petasos_core::journal::Outcome;
use petasos_core::message::Delivery;
use petasos_core::transcript::Usage;
use petasos_core::turn::Turn;
use petasos_core::{InboxId, Millis, SessionId, SessionKey, TurnId};
use rusqlite::{OptionalExtension, Row, params};

use crate::error::{Error, Result};
use crate::group::{Reads, Tx};
use crate::value::{at, parse, time, time_at};

/// How long a client's name for a request counts.
const REPEATS: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRow {
    pub id: String,
    pub inbox: InboxId,
    /// The credential that asked for it.
    pub owner: String,
    /// The transcript it is in; may change until it has begun.
    pub session: SessionId,
    pub key: SessionKey,
    /// What was asked for besides the message, as JSON of whoever accepted it.
    pub wish: String,
    /// Its owner does not want to see it any more.
    pub hidden: bool,
    pub created_at: Millis,
    pub claimed_at: Option<Millis>,
    /// Its rows come after this one; `None`: it has not begun.
    pub after_row: Option<RowId>,
    pub last_row: Option<RowId>,
    pub end: Option<RunEnd>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunEnd {
    pub outcome: Outcome,
    pub at: Millis,
    pub usage: Usage,
    /// The answer is not all there.
    pub partial: bool,
    /// The answer, or why there is none; `None`: it never began.
    pub said: Option<String>,
}

#[derive(Debug, Clone)]
pub struct NewRun<'a> {
    pub id: &'a str,
    pub inbox: InboxId,
    pub owner: &'a str,
    pub session: &'a SessionId,
    pub key: &'a SessionKey,
    pub wish: &'a str,
}

/// What a client's name for a request stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repeat {
    /// The same request: this is its run.
    Same(String),
    /// It was used for another one.
    Other,
}

impl Reads {
    pub fn run(&self, id: &str) -> Result<Option<RunRow>> {
        self.sql("SELECT * FROM runs WHERE id = ?1")?.query_and_then([id], run)?.next().transpose()
    }

    pub fn run_of(&self, inbox: InboxId) -> Result<Option<RunRow>> {
        self.sql("SELECT * FROM runs WHERE inbox = ?1")?.query_and_then([inbox.0], run)?.next().transpose()
    }

    /// The last one in this transcript.
    pub fn last_run(&self, session: &SessionId) -> Result<Option<RunRow>> {
        let mut read = self.sql("SELECT * FROM runs WHERE session = ?1 ORDER BY inbox DESC LIMIT 1")?;
        read.query_and_then([session.as_str()], run)?.next().transpose()
    }

    /// What this name stands for; `None`: nothing yet, or nothing any more.
    pub fn repeat(&self, owner: &str, name: &str, print: &[u8], now: Millis) -> Result<Option<Repeat>> {
        let mut read =
            self.sql("SELECT fingerprint, run FROM repeats WHERE owner = ?1 AND name = ?2 AND at > ?3")?;
        let known: Option<(Vec<u8>, String)> = read
            .query_row(params![owner, name, at(now.before(REPEATS))], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        Ok(known.map(|(known, run)| if known == print { Repeat::Same(run) } else { Repeat::Other }))
    }

    /// Whether a message waits or is worked on in this conversation.
    pub fn is_busy(&self, key: &SessionKey) -> Result<bool> {
        let mut read = self.sql("SELECT 1 FROM inbox WHERE state <> 'settled' AND session_key = ?1")?;
        Ok(read.exists([key.as_str()])?)
    }
}

impl Tx<'_> {
    /// In the transaction of its inbox row.
    pub fn begin_run(&self, new: &NewRun<'_>, now: Millis) -> Result<()> {
        let NewRun { id, inbox, owner, session, key, wish } = new;
        self.sql(
            "INSERT INTO runs (id, inbox, owner, session, session_key, wish, created_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![id, inbox.0, owner, session.as_str(), key.as_str(), wish, at(now)])?;
        Ok(())
    }

    /// From now on, for a day, this name stands for this run.
    pub fn put_repeat(&self, owner: &str, name: &str, print: &[u8], run: &str, now: Millis) -> Result<()> {
        self.sql(
            "INSERT INTO repeats (owner, name, fingerprint, run, at) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (owner, name) DO UPDATE
             SET fingerprint = excluded.fingerprint, run = excluded.run, at = excluded.at",
        )?
        .execute(params![owner, name, print, run, at(now)])?;
        Ok(())
    }

    /// `false`: there is none, or it was hidden before.
    pub fn hide_run(&self, id: &str) -> Result<bool> {
        Ok(self.sql("UPDATE runs SET hidden = 1 WHERE id = ?1 AND hidden = 0")?.execute([id])? > 0)
    }

    /// Rows that are appended from now on may be its own.
    pub(crate) fn run_claimed(&self, inbox: InboxId, now: Millis) -> Result<()> {
        self.sql(
            "UPDATE runs SET claimed_at = ?2, after_row = (SELECT coalesce(max(id), 0) FROM messages)
             WHERE inbox = ?1 AND claimed_at IS NULL",
        )?
        .execute(params![inbox.0, at(now)])?;
        Ok(())
    }

    /// Only a reader who comes for its answer has named it.
    pub(crate) fn run_moved(&self, turn: &Turn) -> Result<()> {
        if turn.route.delivery == Delivery::Pull {
            self.sql("UPDATE runs SET session = ?2 WHERE inbox = ?1 AND session <> ?2")?
                .execute(params![turn.id.0, turn.session.as_str()])?;
        }
        Ok(())
    }

    /// After the turn's last row and its last state.
    pub(crate) fn run_ended(&self, turn: TurnId, outcome: Outcome, now: Millis) -> Result<()> {
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

    /// It ended without a turn; one that ended with its turn stays as it is.
    pub(crate) fn run_settled(&self, inbox: InboxId, outcome: Outcome, now: Millis) -> Result<()> {
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
                outcome: Outcome::parse(&outcome).ok_or(Error::Unreadable("outcome"))?,
                at: time(ended_at),
                usage: usage.map(|text| parse(&text, "usage")).transpose()?.unwrap_or_default(),
                partial: row.get("partial")?,
                said: row.get("said")?,
            })
        }
        (None, _) | (_, None) => None,
    };
    Ok(RunRow {
        id: row.get("id")?,
        inbox: InboxId(row.get("inbox")?),
        owner: row.get("owner")?,
        session: SessionId(row.get("session")?),
        key: SessionKey(row.get("session_key")?),
        wish: row.get("wish")?,
        hidden: row.get("hidden")?,
        created_at: time_at(row, "created_at")?,
        claimed_at: row.get::<_, Option<i64>>("claimed_at")?.map(time),
        after_row: row.get::<_, Option<i64>>("after_row")?.map(RowId),
        last_row: row.get::<_, Option<i64>>("last_row")?.map(RowId),
        end,
    })
}
