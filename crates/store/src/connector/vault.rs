//! Credential vault: platform permissions that never leave the connector.

use petasos_core::{InstanceId, Millis, Platform, Secret, SessionKey};
use rusqlite::{OptionalExtension, params};

use crate::connection::{Reads, Tx};
use crate::error::Result;
use crate::value::at;

#[derive(Debug, Clone)]
pub struct Permission {
    pub id: String,
    pub instance: InstanceId,
    pub platform: Platform,
    /// Chat and session for which the permission is valid.
    pub chat_id: String,
    pub session_key: SessionKey,
    pub kind: String,
    pub value: Secret,
    pub expires_at: Millis,
}

impl Reads {
    pub fn permission(
        &self,
        id: &str,
        instance: &InstanceId,
        platform: Platform,
        chat: &str,
        now: Millis,
    ) -> Result<Option<Secret>> {
        let mut read = self.sql(
            "SELECT value FROM vault
             WHERE id = ?1 AND instance = ?2 AND platform = ?3 AND chat_id = ?4 AND expires_at > ?5",
        )?;
        let row = params![id, instance.as_str(), platform.as_str(), chat, at(now)];
        let found = read.query_row(row, |row| row.get(0));
        Ok(found.optional()?.map(|value: String| Secret::new(value)))
    }

    /// Newest permission of a session: its chat and value.
    pub fn permission_of(
        &self,
        instance: &InstanceId,
        session_key: &SessionKey,
        kind: &str,
        now: Millis,
    ) -> Result<Option<(String, Secret)>> {
        let mut read = self.sql(
            "SELECT chat_id, value FROM vault
             WHERE instance = ?1 AND session_key = ?2 AND kind = ?3 AND expires_at > ?4
             ORDER BY expires_at DESC LIMIT 1",
        )?;
        let row = params![instance.as_str(), session_key.as_str(), kind, at(now)];
        let found = read.query_row(row, |row| Ok((row.get(0)?, Secret::new(row.get::<_, String>(1)?))));
        Ok(found.optional()?)
    }
}

impl Tx<'_> {
    pub fn put_permission(&self, permission: &Permission) -> Result<()> {
        let Permission { id, instance, platform, chat_id, session_key, kind, value, expires_at } = permission;
        self.sql(
            "INSERT INTO vault (id, instance, platform, chat_id, session_key, kind, value, expires_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            id,
            instance.as_str(),
            platform.as_str(),
            chat_id,
            session_key.as_str(),
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
