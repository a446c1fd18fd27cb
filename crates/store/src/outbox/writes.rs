//! Outbox writes of `petasos_core::journal`.

use petasos_core::outbox::{Draft, OldPreview, State};
use petasos_core::{Millis, OutboxId, TurnId};
use rusqlite::{OptionalExtension, params};

use super::kind_name;
use crate::connection::Tx;
use crate::error::{Error, Result};
use crate::value::{at, json};

impl Tx<'_> {
    /// Completes the streaming item of the same `(turn, step)` in its position of the lane, or appends an item.
    pub(crate) fn enqueue_item(&self, draft: &Draft, now: Millis) -> Result<()> {
        if let Some((turn, step)) = draft.turn
            && self.complete_streaming(turn, step, draft)?
        {
            return Ok(());
        }
        self.enqueue_new(draft, now).map(drop)
    }

    /// Enqueues a message without a preview.
    pub fn enqueue_new(&self, draft: &Draft, now: Millis) -> Result<OutboxId> {
        self.insert(draft, State::Due, "none", now)
    }

    /// Records that a first preview of `(turn, step)` is about to be sent. After a crash the turn restarts its step and finds
    /// the existing item, which stays unchanged if its preview may be visible.
    pub fn open_preview(&self, draft: &Draft, now: Millis) -> Result<OutboxId> {
        let Some((turn, step)) = draft.turn else {
            return Err(Error::Conflict("a preview belongs to a turn"));
        };
        let mut reopen = self.sql(
            "UPDATE outbox SET preview = CASE preview WHEN 'none' THEN 'asked' ELSE preview END
             WHERE turn = ?1 AND step = ?2 AND state = 'streaming' RETURNING id",
        )?;
        if let Some(id) = reopen.query_row(params![turn.0, step], |row| row.get(0)).optional()? {
            return Ok(OutboxId(id));
        }
        self.insert(draft, State::Streaming, "asked", now)
    }

    /// The id may arrive after the answer was completed; it is useful until a part was sent.
    pub(crate) fn preview_shown(&self, turn: TurnId, step: u32, message: &str) -> Result<()> {
        self.sql(
            "UPDATE outbox SET preview = 'shown', preview_id = ?3
             WHERE turn = ?1 AND step = ?2 AND state IN ('streaming', 'due') AND sent = '[]'",
        )?
        .execute(params![turn.0, step, message])?;
        Ok(())
    }

    pub(crate) fn drop_preview(&self, turn: TurnId, step: u32) -> Result<()> {
        self.sql(
            "UPDATE outbox SET preview = 'none', preview_id = NULL, doubtful = 0, tried_at = NULL, spent = 0,
                 state = CASE state WHEN 'sending' THEN 'due' ELSE state END
             WHERE turn = ?1 AND step = ?2 AND state IN ('streaming', 'due', 'sending') AND sent = '[]'",
        )?
        .execute(params![turn.0, step])?;
        Ok(())
    }

    /// An old preview that may still be visible is treated like one whose id is unknown.
    pub(crate) fn send_as_new(&self, id: OutboxId, old_preview: OldPreview) -> Result<()> {
        let preview = match old_preview {
            OldPreview::Gone => "none",
            OldPreview::MaybeVisible => "asked",
        };
        self.sql(
            "UPDATE outbox SET preview = ?2, preview_id = NULL, doubtful = 0, tried_at = NULL, spent = 0,
                 state = CASE state WHEN 'sending' THEN 'due' ELSE state END
             WHERE id = ?1 AND state IN ('due', 'sending') AND sent = '[]'",
        )?
        .execute(params![id.0, preview])?;
        Ok(())
    }

    /// Replaces the text of a message and removes its buttons. An unsent item is changed in place; otherwise an edit is
    /// enqueued behind it, which waits for the platform's message id.
    pub fn amend(&self, id: OutboxId, text: &str, now: Millis) -> Result<()> {
        let mut change = self.sql(
            "UPDATE outbox SET text = ?2, buttons = '[]'
             WHERE id = ?1 AND state = 'due' AND sent = '[]' AND doubtful = 0 AND preview = 'none'",
        )?;
        if change.execute(params![id.0, text])? > 0 {
            return Ok(());
        }
        self.sql(
            "INSERT INTO outbox
                 (lane, route, session_key, kind, text, buttons, state, preview, preview_id, amends, created_at)
             SELECT lane, route, session_key, kind, ?2, '[]', 'due',
                 CASE WHEN known IS NULL THEN 'none' ELSE 'shown' END, known, id, ?3
             FROM (SELECT *, nullif(json_extract(sent, '$[#-1]'), '') AS known FROM outbox WHERE id = ?1)",
        )?
        .execute(params![id.0, text, at(now)])?;
        Ok(())
    }

    /// Passes the platform's message id to the edits of this item.
    fn set_amend_target(&self, id: OutboxId, message: &str) -> Result<()> {
        self.sql(
            "UPDATE outbox SET preview = 'shown', preview_id = ?2
             WHERE amends = ?1 AND state = 'due' AND sent = '[]'",
        )?
        .execute(params![id.0, message])?;
        Ok(())
    }

    pub(crate) fn close_preview(&self, turn: TurnId, step: u32, text: &str) -> Result<()> {
        self.sql(
            "UPDATE outbox SET state = 'due', text = ?3 WHERE turn = ?1 AND step = ?2 AND state = 'streaming'",
        )?
        .execute(params![turn.0, step, text])?;
        Ok(())
    }

    /// Fails unless the item is due: an operator may have dropped it meanwhile.
    pub(crate) fn sending(&self, id: OutboxId, now: Millis) -> Result<()> {
        let mut mark = self.sql(
            "UPDATE outbox SET state = 'sending', tried_at = coalesce(tried_at, ?2)
             WHERE id = ?1 AND state IN ('due', 'sending')",
        )?;
        match mark.execute(params![id.0, at(now)])? {
            0 => Err(Error::Conflict("the message is not waiting to be sent")),
            _ => Ok(()),
        }
    }

    /// Between two parts nothing is in flight, so the item is due and not doubtful.
    pub(crate) fn part_sent(&self, id: OutboxId, message: &str, thread: Option<&str>) -> Result<()> {
        self.sql(
            "UPDATE outbox SET state = 'due', doubtful = 0, attempts = 0, tried_at = NULL, spent = 0,
                 sent = json_insert(sent, '$[#]', ?2),
                 route = CASE WHEN ?3 IS NULL THEN route ELSE json_set(route, '$.thread_id', ?3) END
             WHERE id = ?1 AND state IN ('due', 'sending')",
        )?
        .execute(params![id.0, message, thread])?;
        Ok(())
    }

    /// Also applies to an item that was dead-lettered meanwhile.
    pub(crate) fn delivered(&self, id: OutboxId, message: Option<&str>, now: Millis) -> Result<()> {
        self.sql(
            "UPDATE outbox SET state = 'done', doubtful = 0, ended_at = ?3, last_error = NULL,
                 sent = CASE WHEN ?2 IS NULL THEN sent ELSE json_insert(sent, '$[#]', ?2) END
             WHERE id = ?1 AND state IN ('due', 'sending', 'dead')",
        )?
        .execute(params![id.0, message, at(now)])?;
        message.map_or(Ok(()), |message| self.set_amend_target(id, message))
    }

    pub(crate) fn postpone(
        &self,
        id: OutboxId,
        not_before: Millis,
        doubtful: bool,
        error: &str,
    ) -> Result<()> {
        self.sql(
            "UPDATE outbox SET state = 'due', attempts = attempts + 1, not_before = ?2, doubtful = ?3, last_error = ?4
             WHERE id = ?1 AND state IN ('due', 'sending')",
        )?
        .execute(params![id.0, at(not_before), doubtful, error])?;
        Ok(())
    }

    pub(crate) fn retire_key(&self, id: OutboxId) -> Result<()> {
        self.sql("UPDATE outbox SET spent = spent + 1 WHERE id = ?1")?.execute([id.0])?;
        Ok(())
    }

    pub(crate) fn dead_letter_item(
        &self,
        id: OutboxId,
        doubtful: bool,
        error: &str,
        now: Millis,
    ) -> Result<()> {
        self.sql(
            "UPDATE outbox SET state = 'dead', attempts = attempts + 1, doubtful = ?2, last_error = ?3, ended_at = ?4
             WHERE id = ?1 AND state IN ('due', 'sending')",
        )?
        .execute(params![id.0, doubtful, error, at(now)])?;
        Ok(())
    }

    fn complete_streaming(&self, turn: TurnId, step: u32, draft: &Draft) -> Result<bool> {
        let mut complete = self.sql(
            "UPDATE outbox SET state = 'due', text = ?3, buttons = ?4, kind = ?5
             WHERE turn = ?1 AND step = ?2 AND state = 'streaming'",
        )?;
        let changed = complete.execute(params![
            turn.0,
            step,
            draft.text,
            json(&draft.buttons)?,
            kind_name(draft.kind)
        ])?;
        Ok(changed > 0)
    }

    pub(super) fn insert(&self, draft: &Draft, state: State, preview: &str, now: Millis) -> Result<OutboxId> {
        let mut insert = self.sql(
            "INSERT INTO outbox
                 (lane, route, session_key, turn, step, kind, text, buttons, state, preview, created_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?;
        let id = insert.insert(params![
            draft.route.lane().to_string(),
            json(&draft.route)?,
            draft.session_key.as_ref().map(|key| key.as_str()),
            draft.turn.map(|(turn, _)| turn.0),
            draft.turn.map(|(_, step)| step),
            kind_name(draft.kind),
            draft.text,
            json(&draft.buttons)?,
            state.as_str(),
            preview,
            at(now),
        ])?;
        Ok(OutboxId(id))
    }
}
