//! Fingerprints: how a replay of an authenticated request is recognised under another identity.

use petasos_core::Millis;
use petasos_core::message::Fingerprint;
use rusqlite::{OptionalExtension, params};

use crate::error::Result;
use crate::group::Tx;
use crate::value::at;

/// The item a row of `seen` refers to: one of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) inbox: Option<i64>,
    pub(crate) outbox: Option<i64>,
}

impl Seen {
    pub(crate) const fn inbox(id: i64) -> Self {
        Self { inbox: Some(id), outbox: None }
    }

    pub(crate) const fn outbox(id: i64) -> Self {
        Self { inbox: None, outbox: Some(id) }
    }
}

impl Tx<'_> {
    /// The first message with one of these fingerprints. One that is dated further ahead than its time is from before
    /// the clock was set back, and does not count.
    pub(crate) fn replayed(
        &self,
        platform: &str,
        fingerprints: &[Fingerprint],
        now: Millis,
    ) -> Result<Option<Seen>> {
        for Fingerprint { key, within, .. } in fingerprints {
            let mut find = self.sql(
                "SELECT inbox, outbox FROM seen WHERE platform = ?1 AND dedup = ?2 AND at > ?3 AND at < ?4",
            )?;
            let between = params![platform, key, at(now.before(*within)), at(now.after(*within))];
            let found = find
                .query_row(between, |row| Ok(Seen { inbox: row.get(0)?, outbox: row.get(1)? }))
                .optional()?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    pub(crate) fn record_fingerprints(
        &self,
        platform: &str,
        fingerprints: &[Fingerprint],
        seen: &Seen,
        now: Millis,
    ) -> Result<()> {
        for fingerprint in fingerprints.iter().filter(|it| it.recorded) {
            self.sql(
                "INSERT OR REPLACE INTO seen (platform, dedup, inbox, outbox, at) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![platform, fingerprint.key, seen.inbox, seen.outbox, at(now)])?;
        }
        Ok(())
    }
}
