//! Occurrences of scheduled jobs: one per due time. Their state only moves forward.

use petasos_core::cron::{Job, JobId};
use petasos_core::journal::MessageOutcome;
use petasos_core::transcript::Role;
use petasos_core::{InboxId, Millis};
use rusqlite::{OptionalExtension, Row, params};

use crate::connection::{Reads, Tx};
use crate::error::{Error, Result};
use crate::value::{at, json, parse, skip_unreadable, sql_limit, time_at};

const COLUMNS: &str = "due, body, state, inbox, outcome, skipped, at";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occurrence {
    /// The job as it was at its due time.
    pub job: Job,
    pub due: Millis,
    pub state: OccurrenceState,
    /// The inbox message that runs it; `None`: the run was missed.
    pub inbox: Option<InboxId>,
    pub outcome: Option<MessageOutcome>,
    /// Number of missed runs before it.
    pub skipped: u32,
    pub at: Millis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OccurrenceState {
    /// Waits in the inbox, or runs.
    Accepted,
    /// The message is settled; the result is not reported yet.
    Ran,
    /// The result is in the outbox, or there was none to report.
    Delivered,
}

impl OccurrenceState {
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
    /// Finished occurrences whose result is not reported yet, earliest first.
    pub fn unreported_occurrences(&self) -> Result<Vec<(JobId, Millis)>> {
        let mut read = self.sql("SELECT job, due FROM occurrences WHERE state = 'ran' ORDER BY due")?;
        let run = |row: &Row<'_>| {
            let job: String = row.get("job")?;
            Ok((JobId::parse(&job).ok_or(Error::Unreadable("job of a run"))?, time_at(row, "due")?))
        };
        read.query_and_then([], run)?.filter_map(skip_unreadable).collect()
    }

    /// `None`: it was reported, or cannot be read.
    pub fn unreported_occurrence(&self, job: &JobId, due: Millis) -> Result<Option<Occurrence>> {
        let mut read = self.sql(&format!(
            "SELECT {COLUMNS} FROM occurrences WHERE job = ?1 AND due = ?2 AND state = 'ran'"
        ))?;
        read.query_and_then(params![job.as_str(), at(due)], occurrence)?.find_map(skip_unreadable).transpose()
    }

    pub fn occurrences(&self, job: &JobId, limit: usize) -> Result<Vec<Occurrence>> {
        let mut read = self
            .sql(&format!("SELECT {COLUMNS} FROM occurrences WHERE job = ?1 ORDER BY due DESC LIMIT ?2"))?;
        read.query_and_then(params![job.as_str(), sql_limit(limit)], occurrence)?
            .filter_map(skip_unreadable)
            .collect()
    }

    /// Last non-empty transcript row of this role in the turn of an inbox message.
    pub fn last_message_text(&self, inbox: InboxId, role: Role) -> Result<Option<String>> {
        let mut read = self.sql(
            "SELECT content FROM messages
             WHERE session = (SELECT t.session FROM inbox i JOIN turns t ON t.id = i.turn WHERE i.id = ?1)
               AND role = ?2 AND content <> '' ORDER BY id DESC LIMIT 1",
        )?;
        Ok(read.query_row(params![inbox.0, role.as_str()], |row| row.get(0)).optional()?)
    }
}

impl Tx<'_> {
    /// `false`: this due time already has a row, and nothing was written.
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

    pub(crate) fn occurrence_ran(&self, inbox: InboxId, outcome: MessageOutcome, now: Millis) -> Result<()> {
        self.sql(
            "UPDATE occurrences SET state = 'ran', outcome = ?2, ended_at = ?3
             WHERE inbox = ?1 AND state = 'accepted'",
        )?
        .execute(params![inbox.0, outcome.as_str(), at(now)])?;
        Ok(())
    }

    /// `false`: it was already reported.
    pub fn occurrence_delivered(&self, job: &JobId, due: Millis, now: Millis) -> Result<bool> {
        let mut mark = self.sql(
            "UPDATE occurrences SET state = 'delivered', ended_at = ?3
             WHERE job = ?1 AND due = ?2 AND state = 'ran'",
        )?;
        Ok(mark.execute(params![job.as_str(), at(due), at(now)])? > 0)
    }
}

fn occurrence(row: &Row<'_>) -> Result<Occurrence> {
    let body: String = row.get("body")?;
    let state: String = row.get("state")?;
    let outcome: Option<String> = row.get("outcome")?;
    Ok(Occurrence {
        job: parse(&body, "job of a run")?,
        due: time_at(row, "due")?,
        state: OccurrenceState::parse(&state).ok_or(Error::Unreadable("state of a run"))?,
        inbox: row.get::<_, Option<i64>>("inbox")?.map(InboxId),
        outcome: outcome.as_deref().and_then(MessageOutcome::parse),
        skipped: row.get("skipped")?,
        at: time_at(row, "at")?,
    })
}
