//! Topics that were made because somebody asked for them by name, and their ids.

use petasos_core::{Millis, Platform};
use rusqlite::{OptionalExtension, params};

use crate::error::Result;
use crate::group::{Reads, Tx};
use crate::retention::BATCH;
use crate::value::at;

/// Of more the oldest are forgotten.
const MOST: i64 = 1000;

impl Reads {
    /// The id of a topic that we made.
    pub fn topic(&self, platform: Platform, chat: &str, name: &str) -> Result<Option<String>> {
        let mut read =
            self.sql("SELECT thread FROM topics WHERE platform = ?1 AND chat = ?2 AND name = ?3")?;
        let found = read.query_row(params![platform.as_str(), chat, name], |row| row.get(0));
        Ok(found.optional()?)
    }
}

impl Tx<'_> {
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
        .execute(params![MOST])?;
        Ok(())
    }

    /// Forgets topics made before then, at most one batch. Using one again makes another.
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
