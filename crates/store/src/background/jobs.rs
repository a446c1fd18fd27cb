//! Scheduled jobs and their next due times.

use petasos_core::Millis;
use petasos_core::cron::{Job, JobId};
use rusqlite::{Row, params};

use crate::connection::{Reads, Tx};
use crate::error::Result;
use crate::value::{at, json, parse, skip_unreadable, text_at, time};

/// A job and its next unprocessed occurrence; `None`: paused or finished.
type Scheduled = (Job, Option<Millis>);

impl Reads {
    pub fn job(&self, id: &JobId) -> Result<Option<Scheduled>> {
        let mut read = self.sql("SELECT job, next_at FROM jobs WHERE id = ?1")?;
        read.query_and_then([id.as_str()], scheduled)?.next().transpose()
    }

    /// In order of creation. Unreadable jobs are skipped.
    pub fn jobs(&self) -> Result<Vec<Scheduled>> {
        let mut read = self.sql("SELECT job, next_at FROM jobs ORDER BY created_at, id")?;
        read.query_and_then([], scheduled)?.filter_map(skip_unreadable).collect()
    }

    pub fn jobs_due(&self, now: Millis) -> Result<Vec<(Job, Millis)>> {
        let mut read = self.sql(
            "SELECT job, next_at FROM jobs WHERE next_at IS NOT NULL AND next_at <= ?1 ORDER BY next_at",
        )?;
        let due = read.query_and_then([at(now)], scheduled)?.filter_map(skip_unreadable);
        Ok(due
            .collect::<Result<Vec<_>>>()?
            .into_iter()
            .filter_map(|(job, next)| Some((job, next?)))
            .collect())
    }

    pub fn next_job_due(&self) -> Result<Option<Millis>> {
        let mut read = self.sql("SELECT min(next_at) FROM jobs WHERE next_at IS NOT NULL")?;
        let next: Option<i64> = read.query_row([], |row| row.get(0))?;
        Ok(next.map(time))
    }

    pub fn job_count(&self) -> Result<usize> {
        let count: i64 = self.sql("SELECT count(*) FROM jobs")?.query_row([], |row| row.get(0))?;
        Ok(usize::try_from(count).unwrap_or_default())
    }
}

impl Tx<'_> {
    pub fn put_job(&self, job: &Job, next: Option<Millis>) -> Result<()> {
        self.sql(
            "INSERT INTO jobs (id, job, next_at, created_at) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (id) DO UPDATE SET job = excluded.job, next_at = excluded.next_at",
        )?
        .execute(params![job.id.as_str(), json(job)?, next.map(at), at(job.created_at)])?;
        Ok(())
    }

    /// A run in progress continues. `false`: there is no such job.
    pub fn delete_job(&self, id: &JobId) -> Result<bool> {
        Ok(self.sql("DELETE FROM jobs WHERE id = ?1")?.execute([id.as_str()])? > 0)
    }
}

fn scheduled(row: &Row<'_>) -> Result<Scheduled> {
    let next: Option<i64> = row.get(1)?;
    Ok((parse(text_at(row, 0)?, "job")?, next.map(time)))
}
