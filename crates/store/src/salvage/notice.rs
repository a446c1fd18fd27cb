//! Records of a salvage or a restore in the new database, and messages that are not run again because of it.

use std::path::Path;
use std::time::Duration;

use petasos_core::journal::{Outcome, Write};
use petasos_core::turn::{self, Event, Limits};
use petasos_core::{Inbound, InboxId, Millis, SessionKey};
use rusqlite::{Connection, Transaction, params};

use crate::error::Result;
use crate::group::{Reads, Tx};
use crate::inbox::Pending;
use crate::salvage::{LAST, RESTORED, Salvage, UNKNOWN_BEFORE, UNTOLD};

/// The clock of a platform may differ from ours by so much.
const SKEW: Duration = Duration::from_secs(10);

/// Why the database may know less than what happened.
#[derive(Debug)]
pub enum Cause {
    Salvaged(Salvage),
    /// A backup took its place.
    Restored {
        made_at: Millis,
    },
}

impl Cause {
    /// Open turns and waiting messages may have been answered since.
    const fn is_behind(&self) -> bool {
        match self {
            Self::Salvaged(salvage) => salvage.log_commits > 0,
            Self::Restored { .. } => true,
        }
    }
}

/// A salvage or a restore that the owner has not been told of.
#[derive(Debug)]
pub struct LossNotice {
    pub cause: Cause,
    /// Messages that are not run again, because they may have been answered; their chats are to be told.
    pub unsure: Vec<Pending>,
}

/// Into the new database, before it takes its place.
pub(super) fn write_down(path: &Path, salvage: &Salvage) -> Result<()> {
    change(path, |tx| {
        put(tx, LAST, &crate::value::json(&salvage.shortened())?)?;
        put(tx, UNTOLD, "yes")?;
        if let Some(before) = salvage.unknown_before {
            // Messages sent after this start cannot have been answered before it.
            put(tx, UNKNOWN_BEFORE, &before.after(SKEW).min(salvage.at).0.to_string())?;
        }
        if salvage.log_commits > 0 { mark_unsent(tx) } else { Ok(()) }
    })
}

/// Into the copy of a backup, before it takes the place of a database: what happened after `made_at` is not in it.
pub fn mark_restored(path: &Path, made_at: Millis, now: Millis) -> Result<()> {
    change(path, |tx| {
        put(tx, RESTORED, &made_at.0.to_string())?;
        put(tx, UNKNOWN_BEFORE, &now.0.to_string())?;
        mark_unsent(tx)
    })
}

fn change(path: &Path, work: impl FnOnce(&Transaction<'_>) -> Result<()>) -> Result<()> {
    let mut db = Connection::open(path)?;
    let tx = db.transaction()?;
    work(&tx)?;
    tx.commit()?;
    db.close().map_err(|(_, error)| error)?;
    Ok(())
}

fn put(tx: &Transaction<'_>, key: &str, value: &str) -> Result<()> {
    tx.execute(
        "INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        params![key, value],
    )?;
    Ok(())
}

/// The commit that recorded a delivery may be lost: the copy is marked as a possible duplicate.
fn mark_unsent(tx: &Transaction<'_>) -> Result<()> {
    tx.execute("UPDATE outbox SET doubtful = 1 WHERE state IN ('due', 'sending')", [])?;
    Ok(())
}

impl Reads {
    /// The last salvage of this database.
    pub fn last_salvage(&self) -> Result<Option<Salvage>> {
        Ok(self.meta(LAST)?.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// Which messages were accepted before this moment is not known completely.
    pub fn unknown_before(&self) -> Result<Option<Millis>> {
        Ok(self.meta(UNKNOWN_BEFORE)?.and_then(|text| text.parse().ok().map(Millis)))
    }
}

impl Tx<'_> {
    /// Once after a salvage or a restore, before anything runs: gives up what may have been answered, and says so.
    pub fn loss_notice(&self, limits: Limits, now: Millis) -> Result<Option<LossNotice>> {
        let Some(cause) = self.untold_loss()? else { return Ok(None) };
        self.sql("DELETE FROM meta WHERE key IN (?1, ?2)")?.execute([UNTOLD, RESTORED])?;
        let mut unsure = Vec::new();
        // Claimed by a turn that is lost: it may have said something already.
        for id in self.stranded()? {
            unsure.extend(self.pending(id).ok().flatten());
            self.give_up_message(id, now)?;
        }
        if cause.is_behind() {
            self.give_up_open(limits, &mut unsure, now)?;
        }
        Ok(Some(LossNotice { cause, unsure }))
    }

    fn untold_loss(&self) -> Result<Option<Cause>> {
        if let Some(made_at) = self.meta(RESTORED)? {
            return Ok(Some(Cause::Restored { made_at: Millis(made_at.parse().unwrap_or_default()) }));
        }
        let salvage = if self.meta(UNTOLD)?.is_some() { self.last_salvage()? } else { None };
        Ok(salvage.map(Cause::Salvaged))
    }

    /// The state of everything open is older than what happened.
    fn give_up_open(&self, limits: Limits, unsure: &mut Vec<Pending>, now: Millis) -> Result<()> {
        for turn in self.open_turns()? {
            unsure.extend(self.pending(turn.id.into()).ok().flatten());
            let (_, decision) = turn::step(turn, limits, now, Event::GivenUp { notice: None });
            self.apply(&decision.writes, now)?;
        }
        for key in self.keys_with_work()? {
            for waiting in self.queued(&key)? {
                // A background completion that is repeated is only told again.
                if waiting.inbound.internal {
                    continue;
                }
                self.give_up_message(waiting.id, now)?;
                unsure.push(waiting);
            }
        }
        Ok(())
    }

    fn give_up_message(&self, id: InboxId, now: Millis) -> Result<()> {
        self.apply(&[Write::SettleInbox { inbox: vec![id], outcome: Outcome::Dead, at: now }], now)
    }

    /// Whether a message may have been answered before the damage or the restore: it was sent before, and is not known.
    pub fn is_unsure(&self, inbound: &Inbound) -> Result<bool> {
        let (Some(before), Some(sent), false) = (self.unknown_before()?, inbound.sent_at, inbound.internal)
        else {
            return Ok(false);
        };
        let mut known = self.sql("SELECT 1 FROM seen WHERE platform = ?1 AND dedup = ?2")?;
        Ok(sent < before && !known.exists([inbound.source.platform.as_str(), &inbound.dedup])?)
    }

    /// Remembers such a message and gives it up, so that it is reported once.
    pub fn accept_unsure(&self, inbound: &Inbound, key: &SessionKey, now: Millis) -> Result<InboxId> {
        let id = self.accept(inbound, key, now)?.id();
        self.give_up_message(id, now)?;
        Ok(id)
    }
}
