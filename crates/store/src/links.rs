//! The last known state of each link.

use petasos_core::Millis;
use rusqlite::{Row, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Result;
use crate::group::{Reads, Tx};
use crate::value::{at, json, parse, time_at};

/// `S` is whatever the link's owner stores; the store only keeps its JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkRow<S> {
    pub name: String,
    pub state: S,
    pub attempts: u32,
    pub updated_at: Millis,
}

impl Reads {
    /// Links whose state this build understands, by name.
    pub fn links<S: DeserializeOwned>(&self) -> Result<Vec<LinkRow<S>>> {
        let mut read = self.sql("SELECT name, state, attempts, updated_at FROM links ORDER BY name")?;
        let found: Vec<LinkRow<String>> = read.query_and_then([], raw)?.collect::<Result<_>>()?;
        Ok(found.into_iter().filter_map(understood).collect())
    }
}

impl Tx<'_> {
    pub fn put_link<S: Serialize>(&self, name: &str, state: &S, attempts: u32, now: Millis) -> Result<()> {
        self.sql(
            "INSERT INTO links (name, state, attempts, updated_at) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (name) DO UPDATE
             SET state = excluded.state, attempts = excluded.attempts, updated_at = excluded.updated_at",
        )?
        .execute(params![name, json(state)?, attempts, at(now)])?;
        Ok(())
    }

    pub fn forget_link(&self, name: &str) -> Result<bool> {
        Ok(self.sql("DELETE FROM links WHERE name = ?1")?.execute([name])? > 0)
    }
}

fn raw(row: &Row<'_>) -> Result<LinkRow<String>> {
    Ok(LinkRow {
        name: row.get("name")?,
        state: row.get("state")?,
        attempts: row.get("attempts")?,
        updated_at: time_at(row, "updated_at")?,
    })
}

fn understood<S: DeserializeOwned>(row: LinkRow<String>) -> Option<LinkRow<S>> {
    let LinkRow { name, state, attempts, updated_at } = row;
    Some(LinkRow { name, state: parse(&state, "link state").ok()?, attempts, updated_at })
}
