//! Accepted messages. A row is queued, then claimed by a turn, then settled: forward only, and settled
//! exactly once. Accepting is idempotent by the platform's identity of the message.

use petasos_core::journal::Outcome;
use petasos_core::{Inbound, InboxId, LinkId, Millis, SessionKey, TurnId};
use rusqlite::{OptionalExtension, Row, params};

use crate::error::{Error, Result};
use crate::group::{Reads, Tx};
use crate::seen::Seen;
use crate::value::{at, count, json, legible, parse, rows, text_at, time_at};

/// In the order `pending` reads them.
const COLUMNS: &str = "id, session_key, message, received_at";

/// Whether a message was new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    New(InboxId),
    /// It was accepted before, under this number; nothing was written.
    Duplicate(InboxId),
}

impl Accepted {
    pub const fn id(self) -> InboxId {
        match self {
            Self::New(id) | Self::Duplicate(id) => id,
        }
    }
}

/// An accepted message, as it waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    pub id: InboxId,
    pub key: SessionKey,
    pub inbound: Inbound,
    pub received_at: Millis,
}

/// How many messages have no outcome yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    pub queued: u64,
    pub claimed: u64,
}

impl Reads {
    pub fn cursor(&self, link: &LinkId) -> Result<Option<String>> {
        let mut read = self.sql("SELECT value FROM cursors WHERE link = ?1")?;
        Ok(read.query_row([link.to_string()], |row| row.get(0)).optional()?)
    }

    /// What waits in this session, in order of arrival. A row that cannot be read is left out; see
    /// `unreadable_inbox`.
    pub fn queued(&self, key: &SessionKey) -> Result<Vec<Pending>> {
        let mut read = self.sql(&format!(
            "SELECT {COLUMNS} FROM inbox
             WHERE state <> 'settled' AND state = 'queued' AND session_key = ?1 ORDER BY id"
        ))?;
        read.query_and_then([key.as_str()], pending)?.filter_map(legible).collect()
    }

    /// Waiting messages that no turn can take up, because what is stored of them makes no sense.
    pub fn unreadable_inbox(&self) -> Result<Vec<InboxId>> {
        // `+id`: by the index of what is open, not by reading the whole table in order.
        let mut read = self.sql(&format!(
            "SELECT {COLUMNS} FROM inbox WHERE state <> 'settled' AND state = 'queued' ORDER BY +id"
        ))?;
        let mut found = read.query([])?;
        let mut unreadable = Vec::new();
        while let Some(row) = found.next()? {
            if legible(pending(row)).transpose()?.is_none() {
                unreadable.push(InboxId(row.get(0)?));
            }
        }
        Ok(unreadable)
    }

    pub fn pending(&self, id: InboxId) -> Result<Option<Pending>> {
        let mut read = self.sql(&format!("SELECT {COLUMNS} FROM inbox WHERE id = ?1"))?;
        read.query_and_then([id.0], pending)?.next().transpose()
    }

    /// The number of the last message accepted for anyone; zero before the first.
    pub fn newest(&self) -> Result<InboxId> {
        let newest: Option<i64> = self.sql("SELECT max(id) FROM inbox")?.query_row([], |row| row.get(0))?;
        Ok(InboxId(newest.unwrap_or(0)))
    }

    /// Sessions with something to do: waiting messages or an open turn. Not those whose key cannot be read.
    pub fn keys_with_work(&self) -> Result<Vec<SessionKey>> {
        let mut read = self.sql(
            "SELECT session_key FROM inbox WHERE state <> 'settled'
             UNION SELECT session_key FROM turns WHERE ended_at IS NULL ORDER BY 1",
        )?;
        read.query_and_then([], |row| Ok(SessionKey(row.get(0)?)))?.filter_map(legible).collect()
    }

    /// Claimed messages whose turn is not open: nobody will answer them. Always empty unless a
    /// decision ended a turn and forgot its messages.
    pub fn stranded(&self) -> Result<Vec<InboxId>> {
        let mut read = self.sql(
            "SELECT id FROM inbox WHERE state <> 'settled' AND state = 'claimed'
             AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.id = inbox.turn AND ended_at IS NULL) ORDER BY +id",
        )?;
        read.query_and_then([], |row| Ok(InboxId(row.get(0)?)))?.collect()
    }

    /// Messages of one outcome, newest first (`Dead` ones are listed for a person); not those that cannot
    /// be read.
    pub fn settled(&self, outcome: Outcome, limit: usize) -> Result<Vec<Pending>> {
        let mut read = self.sql(&format!(
            "SELECT {COLUMNS} FROM inbox
             WHERE state = 'settled' AND outcome = ?1 ORDER BY settled_at DESC, id DESC LIMIT ?2"
        ))?;
        read.query_and_then(params![outcome.as_str(), rows(limit)], pending)?.filter_map(legible).collect()
    }

    /// Files in the cache that messages without an outcome refer to.
    pub fn cached_files(&self) -> Result<Vec<String>> {
        let mut read = self.sql(&format!("SELECT {COLUMNS} FROM inbox WHERE state <> 'settled'"))?;
        let mut files = Vec::new();
        for open in read.query_and_then([], pending)?.filter_map(legible) {
            files.extend(open?.inbound.attachments.into_iter().filter_map(|attached| attached.file));
        }
        Ok(files)
    }

    pub fn backlog(&self) -> Result<Backlog> {
        let mut read = self.sql(
            "SELECT count(*) FILTER (WHERE state = 'queued'), count(*) FILTER (WHERE state = 'claimed')
             FROM inbox WHERE state <> 'settled'",
        )?;
        Ok(read
            .query_row([], |row| Ok(Backlog { queued: count(row.get(0)?), claimed: count(row.get(1)?) }))?)
    }
}

impl Tx<'_> {
    /// A waiting message becomes another one (`/retry` becomes what it repeats).
    pub fn rewrite(&self, id: InboxId, inbound: &Inbound) -> Result<()> {
        let mut rewrite = self.sql("UPDATE inbox SET message = ?2 WHERE id = ?1 AND state = 'queued'")?;
        match rewrite.execute(params![id.0, json(inbound)?])? {
            0 => Err(Error::Conflict("the message does not wait any more")),
            _ => Ok(()),
        }
    }

    /// The author of the messages of a turn that was given up wants no more of it. False: there is no such turn here.
    pub fn drop_given_up(&self, key: &SessionKey, turn: TurnId) -> Result<bool> {
        let mut drop = self.sql(
            "UPDATE inbox SET outcome = ?3
             WHERE turn = ?1 AND session_key = ?2 AND state = 'settled' AND outcome = ?4",
        )?;
        let (dropped, dead) = (Outcome::Cancelled.as_str(), Outcome::Dead.as_str());
        Ok(drop.execute(params![turn.0, key.as_str(), dropped, dead])? > 0)
    }

    /// Takes a message in, once. It may be acknowledged to the platform after the commit.
    pub fn accept(&self, inbound: &Inbound, key: &SessionKey, now: Millis) -> Result<Accepted> {
        let platform = inbound.source.platform.as_str();
        let mut seen = self.sql("SELECT inbox FROM seen WHERE platform = ?1 AND dedup = ?2")?;
        let known: Option<Option<i64>> =
            seen.query_row([platform, &inbound.dedup], |row| row.get(0)).optional()?;
        if let Some(known) = known {
            let id = known.ok_or(Error::Conflict("this identity belongs to a message we owe"))?;
            return Ok(Accepted::Duplicate(InboxId(id)));
        }
        if let Some(Seen { inbox: Some(id), .. }) = self.replayed(platform, &inbound.fingerprints, now)? {
            return Ok(Accepted::Duplicate(InboxId(id)));
        }
        let id = self
            .sql(
                "INSERT INTO inbox (session_key, message, state, received_at) VALUES (?1, ?2, 'queued', ?3)",
            )?
            .insert(params![key.as_str(), json(inbound)?, at(now)])?;
        self.sql("INSERT INTO seen (platform, dedup, inbox, at) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![platform, inbound.dedup, id, at(now)])?;
        self.record_fingerprints(platform, &inbound.fingerprints, &Seen::inbox(id), now)?;
        Ok(Accepted::New(InboxId(id)))
    }

    pub fn put_cursor(&self, link: &LinkId, value: &str) -> Result<()> {
        self.sql(
            "INSERT INTO cursors (link, value) VALUES (?1, ?2)
             ON CONFLICT (link) DO UPDATE SET value = excluded.value",
        )?
        .execute(params![link.to_string(), value])?;
        Ok(())
    }

    /// A message belongs to one turn. Claiming it again for the same turn changes nothing.
    pub(crate) fn claim(&self, id: InboxId, turn: TurnId, now: Millis) -> Result<()> {
        let mut claim = self.sql(
            "UPDATE inbox SET state = 'claimed', turn = ?2
             WHERE id = ?1 AND (state = 'queued' OR (state = 'claimed' AND turn = ?2))",
        )?;
        match claim.execute([id.0, turn.0])? {
            0 => Err(Error::Conflict("the message is settled or belongs to another turn")),
            _ => self.run_claimed(id, now),
        }
    }

    /// The first outcome stands: a later one changes nothing. A completion that came as this message is used up,
    /// and the run of a job that it was has ended.
    pub(crate) fn settle(&self, id: InboxId, outcome: Outcome, now: Millis) -> Result<()> {
        let mut settle = self.sql(
            "UPDATE inbox SET state = 'settled', outcome = ?2, settled_at = ?3
             WHERE id = ?1 AND state <> 'settled'",
        )?;
        if settle.execute(params![id.0, outcome.as_str(), at(now)])? > 0 {
            self.completion_settled(id, now)?;
            self.occurrence_ran(id, outcome, now)?;
            return self.run_settled(id, outcome, now);
        }
        match self.sql("SELECT 1 FROM inbox WHERE id = ?1")?.exists([id.0])? {
            true => Ok(()),
            false => Err(Error::Missing("accepted message")),
        }
    }
}

fn pending(row: &Row<'_>) -> Result<Pending> {
    Ok(Pending {
        id: InboxId(row.get(0)?),
        key: SessionKey(row.get(1)?),
        inbound: parse(text_at(row, 2)?, "accepted message")?,
        received_at: time_at(row, 3)?,
    })
}
