//! The stuck-loop counter: how often in a row a session was interrupted. It outlives restarts, so that a
//! session which takes the process down again and again is found out. What counts is decided in core.

use std::collections::BTreeMap;

use petasos_core::SessionKey;
use petasos_core::session::FailureCounts;
use rusqlite::params;

use crate::error::{Error, Result};
use crate::group::{Reads, Tx};
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
    /// An orderly stop that interrupted these. Sessions with an open turn that did not run keep their count: nothing
    /// was learnt about them.
    pub fn count_stop(&self, interrupted: &[SessionKey]) -> Result<()> {
        let mut counts = self.failure_counts()?;
        let open: Vec<_> = self.open_turns()?.into_iter().map(|turn| turn.key).collect();
        counts.stopped(interrupted, &open);
        self.put_failure_counts(&counts)
    }

    /// A crash that is counted against turns of these sessions.
    pub fn count_crash(&self, blamed: &[SessionKey]) -> Result<()> {
        let mut counts = self.failure_counts()?;
        counts.crashed(blamed);
        self.put_failure_counts(&counts)
    }

    /// At start: suspends the sessions that were interrupted too often, and names them.
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

    /// Takes over a `.restart_failure_counts` file, unless something has been counted here already.
    /// `false`: nothing was taken.
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
