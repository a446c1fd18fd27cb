//! Rate limits imposed by platforms. The policy is in `petasos_core::rate_limit`.

use petasos_core::rate_limit::{Penalty, PenaltyScope};
use petasos_core::{Millis, Platform};
use rusqlite::{Row, params};

use crate::connection::{Reads, Tx};
use crate::error::{Error, Result};
use crate::value::{at, skip_unreadable, text_at, time_at};

impl Reads {
    /// Stored penalties, latest end first, including expired ones.
    pub fn penalties(&self) -> Result<Vec<Penalty>> {
        let mut read = self.sql(
            "SELECT platform, scope, name, set_at, until, reason FROM rate_limits ORDER BY until DESC, name",
        )?;
        read.query_and_then([], penalty)?.filter_map(skip_unreadable).collect()
    }
}

impl Tx<'_> {
    pub fn put_penalty(&self, penalty: &Penalty) -> Result<()> {
        let (scope, name) = penalty.scope.parts();
        let Penalty { platform, set_at, until, reason, .. } = penalty;
        self.sql(
            "INSERT OR REPLACE INTO rate_limits (platform, scope, name, set_at, until, reason)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![platform.as_str(), scope, name, at(*set_at), at(*until), reason])?;
        Ok(())
    }

    pub fn expire_penalties(&self, now: Millis) -> Result<usize> {
        Ok(self.sql("DELETE FROM rate_limits WHERE until <= ?1")?.execute([at(now)])?)
    }

    /// Penalties in force. Deletes expired ones and shortens those that a clock change made longer.
    pub fn penalties_in_force(&self, now: Millis) -> Result<Vec<Penalty>> {
        let stored = self.penalties()?;
        self.sql("DELETE FROM rate_limits")?.execute([])?;
        let in_force: Vec<_> = stored.into_iter().filter_map(|penalty| penalty.as_of(now)).collect();
        in_force.iter().try_for_each(|penalty| self.put_penalty(penalty))?;
        Ok(in_force)
    }
}

fn penalty(row: &Row<'_>) -> Result<Penalty> {
    Ok(Penalty {
        platform: Platform::parse(text_at(row, 0)?).ok_or(Error::Unreadable("platform"))?,
        scope: PenaltyScope::parse(text_at(row, 1)?, text_at(row, 2)?).ok_or(Error::Unreadable("scope"))?,
        set_at: time_at(row, 3)?,
        until: time_at(row, 4)?,
        reason: row.get(5)?,
    })
}
