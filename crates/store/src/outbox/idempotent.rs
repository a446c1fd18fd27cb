//! Idempotent enqueueing for callers that may repeat a request.

use petasos_core::message::Fingerprint;
use petasos_core::outbox::{Draft, State};
use petasos_core::{Millis, OutboxId};
use rusqlite::{OptionalExtension, params};

use crate::connection::Tx;
use crate::error::{Error, Result};
use crate::inbox::fingerprints::SeenItem;
use crate::value::at;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnqueueOutcome {
    New(OutboxId),
    /// Already enqueued under this identity. The item may have been pruned or dropped since.
    Existing(OutboxId),
    /// The fingerprint belongs to a received message.
    Received,
}

impl EnqueueOutcome {
    pub const fn id(self) -> Option<OutboxId> {
        match self {
            Self::New(id) | Self::Existing(id) => Some(id),
            Self::Received => None,
        }
    }
}

impl Tx<'_> {
    /// Enqueues a message once per `(platform, dedup)`; identity and item are one commit. A dead item is retried. The same
    /// fingerprint under another identity counts as the same message.
    pub fn enqueue_once(
        &self,
        platform: &str,
        dedup: &str,
        fingerprints: &[Fingerprint],
        draft: &Draft,
        now: Millis,
    ) -> Result<EnqueueOutcome> {
        let mut seen = self.sql("SELECT outbox FROM seen WHERE platform = ?1 AND dedup = ?2")?;
        let known: Option<Option<i64>> = seen.query_row([platform, dedup], |row| row.get(0)).optional()?;
        let known = match known {
            Some(known) => {
                Some(known.ok_or(Error::Conflict("this identity belongs to a message we received"))?)
            }
            None => match self.replayed(platform, fingerprints, now)? {
                Some(SeenItem { outbox: None, .. }) => return Ok(EnqueueOutcome::Received),
                Some(SeenItem { outbox, .. }) => outbox,
                None => None,
            },
        };
        if let Some(id) = known.map(OutboxId) {
            if self.item(id)?.is_some_and(|item| item.state == State::Dead) {
                self.retry_item(id, now)?;
            }
            return Ok(EnqueueOutcome::Existing(id));
        }
        let id = self.insert(draft, State::Due, "none", now)?;
        self.sql("INSERT INTO seen (platform, dedup, outbox, at) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![platform, dedup, id.0, at(now)])?;
        self.record_fingerprints(platform, fingerprints, &SeenItem::outbox(id.0), now)?;
        Ok(EnqueueOutcome::New(id))
    }
}
