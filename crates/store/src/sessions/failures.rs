//! Stuck-loop counter: consecutive interruptions per session. It survives restarts, to detect a session that crashes the
//! process repeatedly. The counting rules are in `petasos-core`.

use std::collections::BTreeMap;

use petasos_core::SessionKey;
use petasos_core::session::FailureCounts;
use rusqlite::params;

use crate::connection::{Reads, Tx};
use crate::error::{Error, Result};
use crate::value::{json, parse};

impl Reads {
    pub fn failure_counts(&self) -> Result<FailureCounts> {
        let mut read = self.sql("SELECT session_key, count FROM failures")?;
        let counts: BTreeMap<String, u32> = read
            .query_and_then([], |row| Ok::<_, Error>((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_>>()?;
        parse(&json(&counts)?, "failure count")
    }
}

impl Tx<'_> {
    /// Counts a stop that interrupted these sessions. A session whose open turn did not run keeps its count.
    pub fn count_stop(&self, interrupted: &[SessionKey]) -> Result<()> {
        let mut counts = self.failure_counts()?;
        let open: Vec<_> = self.open_turns()?.into_iter().map(|turn| turn.key).collect();
        counts.record_stop(interrupted, &open);
        self.put_failure_counts(&counts)
    }

    /// Counts a crash that is blamed on these sessions.
    pub fn count_crash(&self, blamed: &[SessionKey]) -> Result<()> {
        let mut counts = self.failure_counts()?;
        counts.record_crash(blamed);
        self.put_failure_counts(&counts)
    }

    /// Suspends and returns the sessions that were interrupted too often. Called at start.
    pub fn suspend_stuck(&self) -> Result<Vec<SessionKey>> {
        let mut counts = self.failure_counts()?;
        let stuck = counts.take_stuck();
        stuck.iter().try_for_each(|key| self.suspend_session(key).map(drop))?;
        self.put_failure_counts(&counts)?;
        Ok(stuck)
    }

    pub fn forget_failures(&self, key: &SessionKey) -> Result<bool> {
        Ok(self.sql("DELETE FROM failures WHERE session_key = ?1")?.execute([key.as_str()])? > 0)
    }

    /// Imports `.restart_failure_counts`, unless counts exist. `false`: nothing was imported.
    pub fn import_failure_counts(&self, file: &str) -> Result<bool> {
        let read = parse::<FailureCounts>(file, "failure count").unwrap_or_default();
        if read.is_empty() || !self.failure_counts()?.is_empty() {
            return Ok(false);
        }
        self.put_failure_counts(&read).map(|()| true)
    }

    fn put_failure_counts(&self, counts: &FailureCounts) -> Result<()> {
        self.sql("DELETE FROM failures")?.execute([])?;
        let counts: BTreeMap<String, u32> = parse(&json(counts)?, "failure count")?;
        let mut put = self.sql("INSERT INTO failures (session_key, count) VALUES (?1, ?2)")?;
        counts
            .iter()
            .try_for_each(|(key, count)| put.execute(params![key, count]).map(drop).map_err(Error::from))
    }
}
