//! Platform topics that were created by name, and their ids.

use petasos_core::{Millis, Platform};
use rusqlite::params;

use crate::connection::{Reads, Tx};
use crate::error::{Error, Result};
use crate::maintenance::retention::BATCH;
use crate::value::{at, time_at};

const MAX_ROWS: i64 = 1000;

impl Reads {
    /// Thread id of a created topic, and its last recorded use.
    pub fn topic(&self, platform: Platform, chat: &str, name: &str) -> Result<Option<(String, Millis)>> {
        let mut read =
            self.sql("SELECT thread, made_at FROM topics WHERE platform = ?1 AND chat = ?2 AND name = ?3")?;
        let mut found = read.query_and_then(params![platform.as_str(), chat, name], |row| {
            Ok::<_, Error>((row.get(0)?, time_at(row, 1)?))
        })?;
        found.next().transpose()
    }
}

impl Tx<'_> {
    /// Records creation or use of a topic; `made_at` is the last recorded use.
    pub(crate) fn put_topic(
        &self,
        platform: Platform,
        chat: &str,
        name: &str,
        thread: &str,
        now: Millis,
    ) -> Result<()> {
        self.sql(
            "INSERT INTO topics (platform, chat, name, thread, made_at) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (platform, chat, name) DO UPDATE SET thread = excluded.thread, made_at = excluded.made_at",
        )?
        .execute(params![platform.as_str(), chat, name, thread, at(now)])?;
        self.sql(
            "DELETE FROM topics WHERE (platform, chat, name) IN
                 (SELECT platform, chat, name FROM topics ORDER BY made_at DESC LIMIT -1 OFFSET ?1)",
        )?
        .execute(params![MAX_ROWS])?;
        Ok(())
    }

    /// Forgets topics unused since then, at most one batch. The next use creates a new topic.
    pub fn prune_topics(&self, before: Millis) -> Result<usize> {
        let mut prune = self.sql(
            "DELETE FROM topics WHERE (platform, chat, name) IN (
                 SELECT platform, chat, name FROM topics WHERE made_at < ?1 ORDER BY made_at LIMIT ?2)",
        )?;
        Ok(prune.execute(params![at(before), BATCH])?)
    }

    pub(crate) fn drop_topic(&self, platform: Platform, chat: &str, name: &str) -> Result<()> {
        self.sql("DELETE FROM topics WHERE platform = ?1 AND chat = ?2 AND name = ?3")?.execute(params![
            platform.as_str(),
            chat,
            name
        ])?;
        Ok(())
    }
}
