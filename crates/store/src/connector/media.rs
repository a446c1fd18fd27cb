//! Media files in transit between a platform and an instance.

use std::collections::HashSet;

use petasos_core::{InstanceId, Millis};
use rusqlite::{OptionalExtension, params};

use crate::connection::{Reads, Tx};
use crate::error::Result;
use crate::value::{amount, at, count};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Media {
    pub id: String,
    pub instance: InstanceId,
    /// Platform reference, as JSON; `None`: the file is stored locally under its id.
    pub reference: Option<String>,
    pub name: Option<String>,
    pub mime: Option<String>,
    pub size: u64,
    pub expires_at: Millis,
}

impl Reads {
    pub fn media(&self, id: &str, instance: &InstanceId, now: Millis) -> Result<Option<Media>> {
        let mut read = self.sql(
            "SELECT reference, name, mime, expires_at, size FROM media
             WHERE id = ?1 AND instance = ?2 AND expires_at > ?3",
        )?;
        let found = read.query_row(params![id, instance.as_str(), at(now)], |row| {
            let expires_at = crate::value::time(row.get(3)?);
            let id = id.to_owned();
            let instance = instance.clone();
            Ok(Media {
                id,
                instance,
                reference: row.get(0)?,
                name: row.get(1)?,
                mime: row.get(2)?,
                size: count(row.get(4)?),
                expires_at,
            })
        });
        Ok(found.optional()?)
    }

    pub fn media_here(&self) -> Result<HashSet<String>> {
        let mut read = self.sql("SELECT id FROM media WHERE reference IS NULL")?;
        read.query_and_then([], |row| Ok(row.get(0)?))?.collect()
    }

    /// Total bytes of the locally stored files of an instance.
    pub fn media_bytes(&self, instance: &InstanceId) -> Result<u64> {
        let mut read =
            self.sql("SELECT coalesce(sum(size), 0) FROM media WHERE instance = ?1 AND reference IS NULL")?;
        Ok(count(read.query_row([instance.as_str()], |row| row.get(0))?))
    }
}

impl Tx<'_> {
    pub fn put_media(&self, media: &Media) -> Result<()> {
        let Media { id, instance, reference, name, mime, size, expires_at } = media;
        self.sql(
            "INSERT INTO media (id, instance, reference, name, mime, size, expires_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![
            id,
            instance.as_str(),
            reference,
            name,
            mime,
            amount(*size),
            at(*expires_at)
        ])?;
        Ok(())
    }

    /// Deletes expired rows. Returns the ids of locally stored files among them.
    pub fn drop_media_before(&self, now: Millis) -> Result<Vec<String>> {
        let mut gone =
            self.sql("DELETE FROM media WHERE expires_at <= ?1 RETURNING id, reference IS NULL")?;
        let gone = gone.query_and_then([at(now)], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let gone = gone.collect::<Result<Vec<(String, bool)>>>()?;
        Ok(gone.into_iter().filter(|(_, here)| *here).map(|(id, _)| id).collect())
    }
}
