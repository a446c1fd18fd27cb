//! Scheduled work, and when each is due.

use petasos_core::Millis;
use petasos_core::cron::{Job, JobId};
use rusqlite::{Row, params};

use crate::error::Result;
use crate::group::{Reads, Tx};
use crate::value::{at, json, legible, parse, text_at, time};

/// A job, and its first occurrence that nobody has dealt with; `None`: it rests or is over.
type Scheduled = (Job, Option<Millis>);

impl Reads {
    pub fn job(&self, id: &JobId) -> Result<Option<Scheduled>> {
        let mut read = self.sql("SELECT job, next_at FROM jobs WHERE id = ?1")?;
        read.query_and_then([id.as_str()], scheduled)?.next().transpose()
    }

    /// In the order in which they were made. One that cannot be read is left out.
    pub fn jobs(&self) -> Result<Vec<Scheduled>> {
        let mut read = self.sql("SELECT job, next_at FROM jobs ORDER BY created_at, id")?;
        read.query_and_then([], scheduled)?.filter_map(legible).collect()
    }

    pub fn jobs_due(&self, now: Millis) -> Result<Vec<(Job, Millis)>> {
        let mut read = self.sql(
            "SELECT job, next_at FROM jobs WHERE next_at IS NOT NULL AND next_at <= ?1 ORDER BY next_at",
        )?;
        let due = read.query_and_then([at(now)], scheduled)?.filter_map(legible);
        Ok(due
            .collect::<Result<Vec<_>>>()?
            .into_iter()
            .filter_map(|(job, next)| Some((job, next?)))
            .collect())
    }

    /// When the next one is due.
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
    /// A new job, or one in the place of its former self.
    pub fn put_job(&self, job: &Job, next: Option<Millis>) -> Result<()> {
        self.sql(
            "INSERT INTO jobs (id, job, next_at, created_at) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (id) DO UPDATE SET job = excluded.job, next_at = excluded.next_at",
        )?
        .execute(params![job.id.as_str(), json(job)?, next.map(at), at(job.created_at)])?;
        Ok(())
    }

    /// What already runs goes on. `false`: there is none.
    pub fn delete_job(&self, id: &JobId) -> Result<bool> {
        Ok(self.sql("DELETE FROM jobs WHERE id = ?1")?.execute([id.as_str()])? > 0)
    }
}

fn scheduled(row: &Row<'_>) -> Result<Scheduled> {
    let next: Option<i64> = row.get(1)?;
    Ok((parse(text_at(row, 0)?, "job")?, next.map(time)))
}
