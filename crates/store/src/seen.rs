//! Fingerprints: how a replay of an authenticated request is recognised under another identity.

use petasos_core::message::Fingerprint;
use petasos_core::{Inbound, Millis};
use rusqlite::{OptionalExtension, Row, params};

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
        let seen = |row: &Row<'_>| Ok(Seen { inbox: row.get(0)?, outbox: row.get(1)? });
        for Fingerprint { key, within, .. } in fingerprints {
            let found = match within {
                Some(within) => self
                    .sql("SELECT inbox, outbox FROM seen WHERE platform = ?1 AND dedup = ?2 AND at > ?3 AND at < ?4")?
                    .query_row(params![platform, key, at(now.before(*within)), at(now.after(*within))], seen),
                None => self.sql("SELECT inbox, outbox FROM signatures WHERE key = ?1")?.query_row([key], seen),
            };
            if let Some(found) = found.optional()? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Whether a message that we owe has one of these fingerprints: it came over another way that shares the secret.
    pub fn was_owed(&self, inbound: &Inbound, now: Millis) -> Result<bool> {
        let seen = self.replayed(inbound.source.platform.as_str(), &inbound.fingerprints, now)?;
        Ok(seen.is_some_and(|seen| seen.outbox.is_some()))
    }

    pub(crate) fn record_fingerprints(
        &self,
        platform: &str,
        fingerprints: &[Fingerprint],
        seen: &Seen,
        now: Millis,
    ) -> Result<()> {
        for Fingerprint { key, within, .. } in fingerprints.iter().filter(|it| it.recorded) {
            match within {
                Some(_) => self
                    .sql("INSERT OR REPLACE INTO seen (platform, dedup, inbox, outbox, at) VALUES (?1, ?2, ?3, ?4, ?5)")?
                    .execute(params![platform, key, seen.inbox, seen.outbox, at(now)])?,
                None => self
                    .sql("INSERT OR REPLACE INTO signatures (key, inbox, outbox, at) VALUES (?1, ?2, ?3, ?4)")?
                    .execute(params![key, seen.inbox, seen.outbox, at(now)])?,
            };
        }
        Ok(())
    }
}
