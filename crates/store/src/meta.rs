//! Key-value facts about this installation.

use rusqlite::OptionalExtension;

use crate::access::logins::random_hex;
use crate::connection::{Reads, Tx};
use crate::error::Result;

impl Reads {
    pub fn meta(&self, key: &str) -> Result<Option<String>> {
        let mut read = self.sql("SELECT value FROM meta WHERE key = ?1")?;
        Ok(read.query_row([key], |row| row.get(0)).optional()?)
    }
}

impl Tx<'_> {
    pub fn put_meta(&self, key: &str, value: &str) -> Result<()> {
        self.sql("INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value")?
            .execute([key, value])?;
        Ok(())
    }

    /// Permanent id of this installation; created on first use.
    pub fn install_id(&self) -> Result<String> {
        if let Some(id) = self.meta("install_id")? {
            return Ok(id);
        }
        let id = random_hex::<16>()?;
        self.put_meta("install_id", &id)?;
        Ok(id)
    }
}
