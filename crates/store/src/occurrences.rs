//! Runs of jobs: one per due time, forward only.

use petasos_core::cron::{Job, JobId};
use petasos_core::journal::Outcome;
use petasos_core::transcript::Role;
use petasos_core::{InboxId, Millis};
use rusqlite::{OptionalExtension, Row, params};

use crate::error::{Error, Result};
use crate::group::{Reads, Tx};
use crate::value::{at, json, legible, parse, rows, time_at};

const COLUMNS: &str = "due, body, state, inbox, outcome, skipped, at";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occurrence {
    /// As it was when it was due.
    pub job: Job,
    pub due: Millis,
    pub state: RunState,
    /// The message it became; `None`: it was missed.
    pub inbox: Option<InboxId>,
    pub outcome: Option<Outcome>,
    /// How many before it were missed.
    pub skipped: u32,
    /// When it was taken up.
    pub at: Millis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    /// It is a message of the inbox.
    Accepted,
    /// That message has its outcome; nobody has heard of it yet.
    Ran,
    /// The answer is owed, or there was none to give.
    Delivered,
}

impl RunState {
    fn parse(name: &str) -> Option<Self> {
        match name {
            "accepted" => Some(Self::Accepted),
            "ran" => Some(Self::Ran),
            "delivered" => Some(Self::Delivered),
            _ => None,
        }
    }
}

impl Reads {
    /// Which runs have ended and are to be told, the earliest first.
    pub fn runs_to_tell(&self) -> Result<Vec<(JobId, Millis)>> {
        let mut read = self.sql("SELECT job, due FROM occurrences WHERE state = 'ran' ORDER BY due")?;
        let run = |row: &Row<'_>| {
            let job: String = row.get("job")?;
            Ok((JobId::parse(&job).ok_or(Error::Unreadable("job of a run"))?, time_at(row, "due")?))
        };
        read.query_and_then([], run)?.filter_map(legible).collect()
    }

    /// One of them; `None`: it was told, or cannot be read.
    pub fn run_to_tell(&self, job: &JobId, due: Millis) -> Result<Option<Occurrence>> {
        let mut read = self.sql(&format!(
            "SELECT {COLUMNS} FROM occurrences WHERE job = ?1 AND due = ?2 AND state = 'ran'"
        ))?;
        read.query_and_then(params![job.as_str(), at(due)], occurrence)?.find_map(legible).transpose()
    }

    /// The runs of a job, the latest first.
    pub fn occurrences(&self, job: &JobId, limit: usize) -> Result<Vec<Occurrence>> {
        let mut read = self
            .sql(&format!("SELECT {COLUMNS} FROM occurrences WHERE job = ?1 ORDER BY due DESC LIMIT ?2"))?;
        read.query_and_then(params![job.as_str(), rows(limit)], occurrence)?.filter_map(legible).collect()
    }

    /// The last thing that was said in the turn of a message, by the model or by us.
    pub fn last_words(&self, inbox: InboxId, role: Role) -> Result<Option<String>> {
        let mut read = self.sql(
            "SELECT content FROM messages
             WHERE session = (SELECT t.session FROM inbox i JOIN turns t ON t.id = i.turn WHERE i.id = ?1)
               AND role = ?2 AND content <> '' ORDER BY id DESC LIMIT 1",
        )?;
        Ok(read.query_row(params![inbox.0, role.as_str()], |row| row.get(0)).optional()?)
    }
}

impl Tx<'_> {
    /// `false`: this run has its row already, and nothing was written.
    pub fn accept_occurrence(
        &self,
        job: &Job,
        due: Millis,
        inbox: Option<InboxId>,
        skipped: u32,
        now: Millis,
    ) -> Result<bool> {
        let state = if inbox.is_some() { "accepted" } else { "ran" };
        let mut insert = self.sql(
            "INSERT INTO occurrences (job, due, body, state, inbox, skipped, at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (job, due) DO NOTHING",
        )?;
        let inbox = inbox.map(|inbox| inbox.0);
        let row = params![job.id.as_str(), at(due), json(job)?, state, inbox, skipped, at(now)];
        Ok(insert.execute(row)? > 0)
    }

    pub fn has_occurrence(&self, job: &JobId, due: Millis) -> Result<bool> {
        let mut read = self.sql("SELECT 1 FROM occurrences WHERE job = ?1 AND due = ?2")?;
        Ok(read.exists(params![job.as_str(), at(due)])?)
    }

    /// The message it was has its outcome.
    pub(crate) fn occurrence_ran(&self, inbox: InboxId, outcome: Outcome, now: Millis) -> Result<()> {
        self.sql(
            "UPDATE occurrences SET state = 'ran', outcome = ?2, ended_at = ?3
             WHERE inbox = ?1 AND state = 'accepted'",
        )?
        .execute(params![inbox.0, outcome.as_str(), at(now)])?;
        Ok(())
    }

    /// `false`: somebody has told it already.
    pub fn occurrence_delivered(&self, job: &JobId, due: Millis, now: Millis) -> Result<bool> {
        let mut mark = self.sql(
            "UPDATE occurrences SET state = 'delivered', ended_at = ?3
             WHERE job = ?1 AND due = ?2 AND state = 'ran'",
        )?;
        Ok(mark.execute(params![job.as_str(), at(due), at(now)])? > 0)
    }
}

fn occurrence(row: &Row<'_>) -> Result<Occurrence> {
    let (body, state): (String, String) = (row.get("body")?, row.get("state")?);
    let outcome: Option<String> = row.get("outcome")?;
    Ok(Occurrence {
        job: parse(&body, "job of a run")?,
        due: time_at(row, "due")?,
        state: RunState::parse(&state).ok_or(Error::Unreadable("state of a run"))?,
        inbox: row.get::<_, Option<i64>>("inbox")?.map(InboxId),
        outcome: outcome.as_deref().and_then(Outcome::parse),
        skipped: row.get("skipped")?,
        at: time_at(row, "at")?,
    })
}
