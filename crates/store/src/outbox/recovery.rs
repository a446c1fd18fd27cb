//! Recovery at start, and manual retry and removal of items.

use petasos_core::{Millis, OutboxId};
use rusqlite::params;

use crate::connection::Tx;
use crate::error::Result;
use crate::value::at;

/// Items that were in flight at a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecoveredSends {
    /// Possibly visible parts, to be sent again as possible duplicates.
    pub doubtful: usize,
    /// Edits of a known message, to be repeated without a mark.
    pub repeatable: usize,
    /// Streaming answers whose first preview may be visible under an unknown id.
    pub previews: usize,
}

impl Tx<'_> {
    /// Call once at boot, before anything is sent. See the table in the module header.
    pub fn recover_sending(&self) -> Result<RecoveredSends> {
        let repeatable = self
            .sql(
                "UPDATE outbox SET state = 'due', doubtful = 0
                 WHERE state <> 'done' AND state = 'sending' AND preview = 'shown' AND sent = '[]'",
            )?
            .execute([])?;
        let doubtful = self
            .sql(
                "UPDATE outbox SET state = 'due', doubtful = 1, attempts = attempts + 1
                 WHERE state <> 'done' AND state = 'sending'",
            )?
            .execute([])?;
        let previews = self
            .sql(
                "UPDATE outbox SET doubtful = 1
                 WHERE state <> 'done' AND state = 'streaming' AND preview = 'asked' AND doubtful = 0",
            )?
            .execute([])?;
        Ok(RecoveredSends { doubtful, repeatable, previews })
    }

    /// Deletes unsent banners: they are true only while the process that enqueued them runs. Returns the number.
    pub fn drop_banners(&self) -> Result<usize> {
        let mut drop = self.sql("DELETE FROM outbox WHERE state <> 'done' AND kind = 'banner'")?;
        Ok(drop.execute([])?)
    }

    /// Retries a dead or due item at once, with its age and attempts reset, and marks its chat as alive. The new age gives it
    /// a new idempotency key, so that an earlier send under the old key is not recognised. `false`: there is no such item.
    pub fn retry_item(&self, id: OutboxId, now: Millis) -> Result<bool> {
        if let Some(item) = self.item(id)? {
            self.mark_chat_alive(item.draft.route.platform, &item.draft.route.chat_id)?;
        }
        let mut retry = self.sql(
            "UPDATE outbox SET state = 'due', attempts = 0, not_before = 0, created_at = ?2, ended_at = NULL,
                 spent = spent + doubtful
             WHERE id = ?1 AND state IN ('due', 'dead')",
        )?;
        Ok(retry.execute(params![id.0, at(now)])? > 0)
    }

    /// Clears the retry delays of a platform whose link is up again. Penalties imposed by the platform (`rate_limits`) stay.
    pub fn clear_retry_delays(&self, platform: &str) -> Result<usize> {
        let mut poke = self.sql(
            "UPDATE outbox SET not_before = 0
             WHERE state <> 'done' AND state = 'due' AND not_before > 0 AND substr(lane, 1, length(?1) + 1) = ?1 || ':'",
        )?;
        Ok(poke.execute(params![platform])?)
    }

    /// Deletes a dead or due item. `false`: there is none, or it is being sent.
    pub fn drop_item(&self, id: OutboxId) -> Result<bool> {
        let mut drop = self.sql("DELETE FROM outbox WHERE id = ?1 AND state IN ('due', 'dead')")?;
        Ok(drop.execute([id.0])? > 0)
    }
}
