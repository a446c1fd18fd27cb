//! Messages that are owed on somebody else's word, who may say it again.

use petasos_core::message::Fingerprint;
use petasos_core::outbox::{Draft, State};
use petasos_core::{Millis, OutboxId};
use rusqlite::{OptionalExtension, params};

use crate::error::{Error, Result};
use crate::group::Tx;
use crate::seen::Seen;
use crate::value::at;

/// Whether a message was owed by this call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owed {
    New(OutboxId),
    /// The same word was given before. The item may be gone: it is over, or a person dropped it.
    Known(OutboxId),
    /// Its fingerprint is that of a message that we received.
    Received,
}

impl Owed {
    pub const fn id(self) -> Option<OutboxId> {
        match self {
            Self::New(id) | Self::Known(id) => Some(id),
            Self::Received => None,
        }
    }
}

impl Tx<'_> {
    /// Owes a message once for each `(platform, dedup)`: identity and item are one commit. One that was given up is
    /// owed again, because somebody still wants it.
    /// The same fingerprint under another identity is the same message.
    pub fn owe_once(
        &self,
        platform: &str,
        dedup: &str,
        fingerprints: &[Fingerprint],
        draft: &Draft,
        now: Millis,
    ) -> Result<Owed> {
        let mut seen = self.sql("SELECT outbox FROM seen WHERE platform = ?1 AND dedup = ?2")?;
        let known: Option<Option<i64>> = seen.query_row([platform, dedup], |row| row.get(0)).optional()?;
        let known = match known {
            Some(known) => {
                Some(known.ok_or(Error::Conflict("this identity belongs to a message we received"))?)
            }
            None => match self.replayed(platform, fingerprints, now)? {
                Some(Seen { outbox: None, .. }) => return Ok(Owed::Received),
                Some(Seen { outbox, .. }) => outbox,
                None => None,
            },
        };
        if let Some(id) = known.map(OutboxId) {
            if self.item(id)?.is_some_and(|item| item.state == State::Dead) {
                self.retry_item(id, now)?;
            }
            return Ok(Owed::Known(id));
        }
        let id = self.insert(draft, State::Due, "none", now)?;
        self.sql("INSERT INTO seen (platform, dedup, outbox, at) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![platform, dedup, id.0, at(now)])?;
        self.record_fingerprints(platform, fingerprints, &Seen::outbox(id.0), now)?;
        Ok(Owed::New(id))
    }
}
