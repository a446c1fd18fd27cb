//! Dead chats: they refuse our messages. The policy is in `petasos_core::dead`.

use petasos_core::dead_chat::{DeadChat, MAX_REASON_CHARS};
use petasos_core::{LaneId, Millis, Platform};
use rusqlite::{Row, params};

use crate::connection::{Reads, Tx};
use crate::error::{Error, Result};
use crate::value::{at, skip_unreadable, text_at, time, time_at};

/// In the order `dead_chat` reads them.
const COLUMNS: &str = "platform, chat, reason, marked_at, probed_at";

impl Reads {
    pub fn dead_chat(&self, platform: Platform, chat: &str) -> Result<Option<DeadChat>> {
        let mut read =
            self.sql(&format!("SELECT {COLUMNS} FROM dead_chats WHERE platform = ?1 AND chat = ?2"))?;
        read.query_and_then(params![platform.as_str(), chat], dead_chat)?.next().transpose()
    }

    pub fn dead_chats(&self) -> Result<Vec<DeadChat>> {
        let mut read = self.sql(&format!("SELECT {COLUMNS} FROM dead_chats ORDER BY marked_at DESC"))?;
        read.query_and_then([], dead_chat)?.filter_map(skip_unreadable).collect()
    }
}

impl Tx<'_> {
    pub(crate) fn mark_chat_dead(
        &self,
        platform: Platform,
        chat: &str,
        reason: &str,
        now: Millis,
    ) -> Result<()> {
        let reason: String = reason.chars().take(MAX_REASON_CHARS).collect();
        self.sql(
            "INSERT INTO dead_chats (platform, chat, reason, marked_at) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (platform, chat) DO UPDATE SET reason = excluded.reason",
        )?
        .execute(params![platform.as_str(), chat, reason, at(now)])?;
        Ok(())
    }

    /// `false`: it was not dead.
    pub fn mark_chat_alive(&self, platform: Platform, chat: &str) -> Result<bool> {
        let mut clear = self.sql("DELETE FROM dead_chats WHERE platform = ?1 AND chat = ?2")?;
        Ok(clear.execute(params![platform.as_str(), chat])? > 0)
    }

    /// Records that the next message probes the chat.
    pub fn probe_chat(&self, platform: Platform, chat: &str, now: Millis) -> Result<()> {
        self.sql("UPDATE dead_chats SET probed_at = ?3 WHERE platform = ?1 AND chat = ?2")?
            .execute(params![platform.as_str(), chat, at(now)])?;
        Ok(())
    }

    /// Dead-letters the due items of a lane. Items being sent keep their own outcome.
    pub fn dead_letter_lane(&self, lane: &LaneId, error: &str, now: Millis) -> Result<usize> {
        let mut dead_letter_item = self.sql(
            "UPDATE outbox SET state = 'dead', last_error = ?2, ended_at = ?3
             WHERE lane = ?1 AND state IN ('due', 'sending') AND state = 'due'",
        )?;
        Ok(dead_letter_item.execute(params![lane.to_string(), error, at(now)])?)
    }
}

fn dead_chat(row: &Row<'_>) -> Result<DeadChat> {
    Ok(DeadChat {
        platform: Platform::parse(text_at(row, 0)?).ok_or(Error::Unreadable("platform"))?,
        chat_id: row.get(1)?,
        reason: row.get(2)?,
        marked_at: time_at(row, 3)?,
        probed_at: row.get::<_, Option<i64>>(4)?.map(time),
    })
}
