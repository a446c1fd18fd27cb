//! Inbox of accepted messages. A row is queued, claimed by a turn, then settled: forward only, and settled once.
//! Accepting is idempotent by the platform's message identity.

pub(crate) mod fingerprints;
pub(crate) mod receipts;
pub(crate) mod unreadable;

use petasos_core::journal::MessageOutcome;
use petasos_core::{Inbound, InboxId, LinkId, Millis, SessionKey, TurnId};
use rusqlite::{OptionalExtension, Row, params};

use crate::connection::{Reads, Tx};
use crate::error::{Error, Result};
use crate::inbox::fingerprints::SeenItem;
use crate::value::{at, count, json, parse, skip_unreadable, sql_limit, text_at, time_at};

/// In the order `pending` reads them.
const COLUMNS: &str = "id, session_key, message, received_at";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    New(InboxId),
    /// Already accepted under this id; nothing was written.
    Duplicate(InboxId),
}

impl Accepted {
    pub const fn id(self) -> InboxId {
        match self {
            Self::New(id) | Self::Duplicate(id) => id,
        }
    }
}

/// An accepted message without an outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingMessage {
    pub id: InboxId,
    pub key: SessionKey,
    pub inbound: Inbound,
    pub received_at: Millis,
}

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

    /// Queued messages of a session, oldest first. Unreadable rows are skipped; see `unreadable_inbox`.
    pub fn queued(&self, key: &SessionKey) -> Result<Vec<PendingMessage>> {
        let mut read = self.sql(&format!(
            "SELECT {COLUMNS} FROM inbox
             WHERE state <> 'settled' AND state = 'queued' AND session_key = ?1 ORDER BY id"
        ))?;
        read.query_and_then([key.as_str()], pending)?.filter_map(skip_unreadable).collect()
    }

    /// Queued messages that cannot be read, so that no turn can process them.
    pub fn unreadable_inbox(&self) -> Result<Vec<InboxId>> {
        // `+id` makes SQLite use the index of open rows instead of scanning the table.
        let mut read = self.sql(&format!(
            "SELECT {COLUMNS} FROM inbox WHERE state <> 'settled' AND state = 'queued' ORDER BY +id"
        ))?;
        let mut found = read.query([])?;
        let mut unreadable = Vec::new();
        while let Some(row) = found.next()? {
            if skip_unreadable(pending(row)).transpose()?.is_none() {
                unreadable.push(InboxId(row.get(0)?));
            }
        }
        Ok(unreadable)
    }

    pub fn pending(&self, id: InboxId) -> Result<Option<PendingMessage>> {
        let mut read = self.sql(&format!("SELECT {COLUMNS} FROM inbox WHERE id = ?1"))?;
        read.query_and_then([id.0], pending)?.next().transpose()
    }

    /// Id of the last accepted message; zero if there is none.
    pub fn newest(&self) -> Result<InboxId> {
        let newest: Option<i64> = self.sql("SELECT max(id) FROM inbox")?.query_row([], |row| row.get(0))?;
        Ok(InboxId(newest.unwrap_or(0)))
    }

    /// Sessions with queued messages or an open turn. Unreadable keys are skipped.
    pub fn keys_with_work(&self) -> Result<Vec<SessionKey>> {
        let mut read = self.sql(
            "SELECT session_key FROM inbox WHERE state <> 'settled'
             UNION SELECT session_key FROM turns WHERE ended_at IS NULL ORDER BY 1",
        )?;
        read.query_and_then([], |row| Ok(SessionKey(row.get(0)?)))?.filter_map(skip_unreadable).collect()
    }

    /// Claimed messages whose turn is not open. Always empty unless a decision ended a turn without settling its messages.
    pub fn stranded(&self) -> Result<Vec<InboxId>> {
        let mut read = self.sql(
            "SELECT id FROM inbox WHERE state <> 'settled' AND state = 'claimed'
             AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.id = inbox.turn AND ended_at IS NULL) ORDER BY +id",
        )?;
        read.query_and_then([], |row| Ok(InboxId(row.get(0)?)))?.collect()
    }

    /// Settled messages of one outcome, newest first. Unreadable rows are skipped.
    pub fn settled(&self, outcome: MessageOutcome, limit: usize) -> Result<Vec<PendingMessage>> {
        let mut read = self.sql(&format!(
            "SELECT {COLUMNS} FROM inbox
             WHERE state = 'settled' AND outcome = ?1 ORDER BY settled_at DESC, id DESC LIMIT ?2"
        ))?;
        read.query_and_then(params![outcome.as_str(), sql_limit(limit)], pending)?
            .filter_map(skip_unreadable)
            .collect()
    }

    /// Cached files of messages without an outcome.
    pub fn cached_files(&self) -> Result<Vec<String>> {
        let mut read = self.sql(&format!("SELECT {COLUMNS} FROM inbox WHERE state <> 'settled'"))?;
        let mut files = Vec::new();
        for open in read.query_and_then([], pending)?.filter_map(skip_unreadable) {
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
    /// Replaces the content of a queued message, e.g. `/retry` by the message that it repeats.
    pub fn rewrite(&self, id: InboxId, inbound: &Inbound) -> Result<()> {
        let mut rewrite = self.sql("UPDATE inbox SET message = ?2 WHERE id = ?1 AND state = 'queued'")?;
        match rewrite.execute(params![id.0, json(inbound)?])? {
            0 => Err(Error::Conflict("the message is no longer waiting")),
            _ => Ok(()),
        }
    }

    /// Cancels the dead-lettered messages of a turn at their author's request. `false`: there are none of that turn.
    pub fn drop_given_up(&self, key: &SessionKey, turn: TurnId) -> Result<bool> {
        let mut drop = self.sql(
            "UPDATE inbox SET outcome = ?3
             WHERE turn = ?1 AND session_key = ?2 AND state = 'settled' AND outcome = ?4",
        )?;
        let dropped = MessageOutcome::Cancelled.as_str();
        let dead = MessageOutcome::Dead.as_str();
        Ok(drop.execute(params![turn.0, key.as_str(), dropped, dead])? > 0)
    }

    /// Accepts a message once. The platform may be acknowledged after the commit.
    pub fn accept(&self, inbound: &Inbound, key: &SessionKey, now: Millis) -> Result<Accepted> {
        let platform = inbound.source.platform.as_str();
        let mut seen = self.sql("SELECT inbox FROM seen WHERE platform = ?1 AND dedup = ?2")?;
        let known: Option<Option<i64>> =
            seen.query_row([platform, &inbound.dedup], |row| row.get(0)).optional()?;
        if let Some(known) = known {
            let id = known.ok_or(Error::Conflict("this identity belongs to a message in the outbox"))?;
            return Ok(Accepted::Duplicate(InboxId(id)));
        }
        if let Some(SeenItem { inbox: Some(id), .. }) = self.replayed(platform, &inbound.fingerprints, now)? {
            return Ok(Accepted::Duplicate(InboxId(id)));
        }
        let id = self
            .sql(
                "INSERT INTO inbox (session_key, message, state, received_at) VALUES (?1, ?2, 'queued', ?3)",
            )?
            .insert(params![key.as_str(), json(inbound)?, at(now)])?;
        self.sql("INSERT INTO seen (platform, dedup, inbox, at) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![platform, inbound.dedup, id, at(now)])?;
        self.record_fingerprints(platform, &inbound.fingerprints, &SeenItem::inbox(id), now)?;
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

    /// Claims a queued message for a turn. Idempotent for the same turn.
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

    /// The first outcome is final. Settling also consumes the completion and ends the occurrence and the run of the message.
    pub(crate) fn settle(&self, id: InboxId, outcome: MessageOutcome, now: Millis) -> Result<()> {
        let mut settle = self.sql(
            "UPDATE inbox SET state = 'settled', outcome = ?2, settled_at = ?3
             WHERE id = ?1 AND state <> 'settled'",
        )?;
        if settle.execute(params![id.0, outcome.as_str(), at(now)])? > 0 {
            self.completion_settled(id, now)?;
            self.occurrence_ran(id, outcome, now)?;
            return self.run_settled(id, outcome, now);
        }
        if self.sql("SELECT 1 FROM inbox WHERE id = ?1")?.exists([id.0])? {
            return Ok(());
        }
        Err(Error::Missing("accepted message"))
    }
}

fn pending(row: &Row<'_>) -> Result<PendingMessage> {
    Ok(PendingMessage {
        id: InboxId(row.get(0)?),
        key: SessionKey(row.get(1)?),
        inbound: parse(text_at(row, 2)?, "accepted message")?,
        received_at: time_at(row, 3)?,
    })
}
