//! Facts about this installation.

use rusqlite::OptionalExtension;

use crate::error::Result;
use crate::group::{Reads, Tx};
use crate::logins::random_hex;

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

    /// The name this installation keeps for life; made on first asking.
    pub fn install_id(&self) -> Result<String> {
        if let Some(id) = self.meta("install_id")? {
            return Ok(id);
        }
        let id = random_hex::<16>()?;
        self.put_meta("install_id", &id)?;
        Ok(id)
    }
}
