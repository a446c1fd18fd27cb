//! Todo list of a session.

use petasos_core::{Millis, SessionId};
use rusqlite::{OptionalExtension, params};

use crate::connection::{Reads, Tx};
use crate::error::Result;
use crate::value::at;

impl Reads {
    /// The list in the JSON of its tool.
    pub fn todos(&self, session: &SessionId) -> Result<Option<String>> {
        let mut read = self.sql("SELECT items FROM todos WHERE session = ?1")?;
        Ok(read.query_row([session.as_str()], |row| row.get(0)).optional()?)
    }
}

impl Tx<'_> {
    pub fn put_todos(&self, session: &SessionId, items: &str, now: Millis) -> Result<()> {
        self.sql(
            "INSERT INTO todos (session, items, at) VALUES (?1, ?2, ?3)
             ON CONFLICT (session) DO UPDATE SET items = excluded.items, at = excluded.at",
        )?
        .execute(params![session.as_str(), items, at(now)])?;
        Ok(())
    }
}
