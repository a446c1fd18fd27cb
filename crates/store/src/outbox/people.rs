//! What boot and people do to the outbox.

use petasos_core::{Millis, OutboxId};
use rusqlite::params;

use crate::error::Result;
use crate::group::Tx;
use crate::value::at;

/// What was found in flight after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Parts that may be visible: they are sent again with a mark.
    pub doubtful: usize,
    /// Parts that replace a message we know: they are sent again without one.
    pub repeatable: usize,
    /// Growing answers whose first preview may be visible under an id we never learned.
    pub previews: usize,
}

impl Tx<'_> {
    /// To be called once at boot, before anything is sent. See the table in the module's header.
    pub fn recover_sending(&self) -> Result<Recovered> {
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
        Ok(Recovered { doubtful, repeatable, previews })
    }

    /// Forgets banners that were not sent: they were true only while the process that owed them lived. Gives how
    /// many.
    pub fn drop_banners(&self) -> Result<usize> {
        let mut drop = self.sql("DELETE FROM outbox WHERE state <> 'done' AND kind = 'banner'")?;
        Ok(drop.execute([])?)
    }

    /// Tries a dead or waiting item again at once, with all our patience: its age counts from here. Whoever asks
    /// for it has reason to think that its chat takes something again. With its age its key changes, so that nobody
    /// recognises what may have left under the old one. `false`: there is no such item.
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

    /// Everything that waits in these lanes may leave now: their link is back. The waits that the platform itself
    /// imposed are rows of their own (`rate_limits`) and stay.
    pub fn poke_platform(&self, platform: &str) -> Result<usize> {
        let mut poke = self.sql(
            "UPDATE outbox SET not_before = 0
             WHERE state <> 'done' AND state = 'due' AND not_before > 0 AND substr(lane, 1, length(?1) + 1) = ?1 || ':'",
        )?;
        Ok(poke.execute(params![platform])?)
    }

    /// Forgets a dead or waiting item. `false`: there is none, or it is being sent right now.
    pub fn drop_item(&self, id: OutboxId) -> Result<bool> {
        let mut drop = self.sql("DELETE FROM outbox WHERE id = ?1 AND state IN ('due', 'dead')")?;
        Ok(drop.execute([id.0])? > 0)
    }
}
