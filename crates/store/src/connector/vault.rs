//! Permissions of platforms that only the connector holds.

use petasos_core::{Millis, Platform, Secret};
use rusqlite::{OptionalExtension, params};

use crate::error::Result;
use crate::group::{Reads, Tx};
use crate::value::at;

#[derive(Debug, Clone)]
pub struct Permission {
    pub id: String,
    pub instance: String,
    pub platform: Platform,
    /// Where it lets us answer, and in which conversation.
    pub chat_id: String,
    pub session_key: String,
    pub kind: String,
    pub value: Secret,
    pub expires_at: Millis,
}

impl Reads {
    /// One of this instance's own, for this chat.
    pub fn permission(
        &self,
        id: &str,
        instance: &str,
        platform: Platform,
        chat: &str,
        now: Millis,
    ) -> Result<Option<Secret>> {
        let mut read = self.sql(
            "SELECT value FROM vault
             WHERE id = ?1 AND instance = ?2 AND platform = ?3 AND chat_id = ?4 AND expires_at > ?5",
        )?;
        let found = read.query_row(params![id, instance, platform.as_str(), chat, at(now)], |row| row.get(0));
        Ok(found.optional()?.map(|value: String| Secret::new(value)))
    }

    /// The newest of a conversation of this instance: its chat, and itself.
    pub fn permission_of(
        &self,
        instance: &str,
        session_key: &str,
        kind: &str,
        now: Millis,
    ) -> Result<Option<(String, Secret)>> {
        let mut read = self.sql(
            "SELECT chat_id, value FROM vault
             WHERE instance = ?1 AND session_key = ?2 AND kind = ?3 AND expires_at > ?4
             ORDER BY expires_at DESC LIMIT 1",
        )?;
        let found = read.query_row(params![instance, session_key, kind, at(now)], |row| {
            Ok((row.get(0)?, Secret::new(row.get::<_, String>(1)?)))
        });
        Ok(found.optional()?)
    }
}

impl Tx<'_> {
    pub fn lock_up(&self, permission: &Permission) -> Result<()> {
        let Permission { id, instance, platform, chat_id, session_key, kind, value, expires_at } = permission;
        self.sql(
            "INSERT INTO vault (id, instance, platform, chat_id, session_key, kind, value, expires_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            id,
            instance,
            platform.as_str(),
            chat_id,
            session_key,
            kind,
            value.expose(),
            at(*expires_at)
        ])?;
        Ok(())
    }

    pub fn drop_permissions_before(&self, now: Millis) -> Result<()> {
        self.sql("DELETE FROM vault WHERE expires_at <= ?1")?.execute([at(now)])?;
        Ok(())
    }
}
