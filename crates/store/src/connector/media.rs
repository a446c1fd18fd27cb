//! Files between a platform and an instance.

use petasos_core::Millis;
use rusqlite::{OptionalExtension, params};

use crate::error::Result;
use crate::group::{Reads, Tx};
use crate::value::at;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Media {
    pub id: String,
    pub instance: String,
    /// Where the platform has it, as JSON; `None`: it lies here, under its id.
    pub reference: Option<String>,
    pub name: Option<String>,
    pub mime: Option<String>,
    pub expires_at: Millis,
}

impl Reads {
    /// One of this instance's own.
    pub fn media(&self, id: &str, instance: &str, now: Millis) -> Result<Option<Media>> {
        let mut read = self.sql(
            "SELECT reference, name, mime, expires_at FROM media
             WHERE id = ?1 AND instance = ?2 AND expires_at > ?3",
        )?;
        let found = read.query_row(params![id, instance, at(now)], |row| {
            let expires_at = crate::value::time(row.get(3)?);
            let (id, instance) = (id.to_owned(), instance.to_owned());
            Ok(Media {
                id,
                instance,
                reference: row.get(0)?,
                name: row.get(1)?,
                mime: row.get(2)?,
                expires_at,
            })
        });
        Ok(found.optional()?)
    }
}

impl Tx<'_> {
    pub fn put_media(&self, media: &Media) -> Result<()> {
        let Media { id, instance, reference, name, mime, expires_at } = media;
        self.sql(
            "INSERT INTO media (id, instance, reference, name, mime, expires_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![id, instance, reference, name, mime, at(*expires_at)])?;
        Ok(())
    }

    /// Those that are too old go; the names of the files that lie here are given back.
    pub fn drop_media_before(&self, now: Millis) -> Result<Vec<String>> {
        let mut gone =
            self.sql("DELETE FROM media WHERE expires_at <= ?1 RETURNING id, reference IS NULL")?;
        let gone = gone.query_and_then([at(now)], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let gone = gone.collect::<Result<Vec<(String, bool)>>>()?;
        Ok(gone.into_iter().filter(|(_, here)| *here).map(|(id, _)| id).collect())
    }
}
