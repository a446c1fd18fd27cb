//! Fingerprints recognise a replayed request under another message identity.

use petasos_core::message::Fingerprint;
use petasos_core::{Inbound, Millis};
use rusqlite::{OptionalExtension, Row, params};

use crate::connection::Tx;
use crate::error::Result;
use crate::value::at;

/// The inbox or outbox item of a `seen` row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeenItem {
    pub(crate) inbox: Option<i64>,
    pub(crate) outbox: Option<i64>,
}

impl SeenItem {
    pub(crate) const fn inbox(id: i64) -> Self {
        Self { inbox: Some(id), outbox: None }
    }

    pub(crate) const fn outbox(id: i64) -> Self {
        Self { inbox: None, outbox: Some(id) }
    }
}

impl Tx<'_> {
    /// First message with one of these fingerprints. A row dated further in the future than the time window stems from
    /// before the clock was set back, and is ignored.
    pub(crate) fn replayed(
        &self,
        platform: &str,
        fingerprints: &[Fingerprint],
        now: Millis,
    ) -> Result<Option<SeenItem>> {
        let seen = |row: &Row<'_>| Ok(SeenItem { inbox: row.get(0)?, outbox: row.get(1)? });
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

    /// Whether an outbox item has one of these fingerprints: our own message came back on a route with the same secret.
    pub fn is_replay_of_outbound(&self, inbound: &Inbound, now: Millis) -> Result<bool> {
        let seen = self.replayed(inbound.source.platform.as_str(), &inbound.fingerprints, now)?;
        Ok(seen.is_some_and(|seen| seen.outbox.is_some()))
    }

    pub(crate) fn record_fingerprints(
        &self,
        platform: &str,
        fingerprints: &[Fingerprint],
        seen: &SeenItem,
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
