//! Records a salvage or restore in the new database, and gives up messages that may have been answered before it.

use std::path::Path;
use std::time::Duration;

use petasos_core::journal::{MessageOutcome, Write};
use petasos_core::turn::{self, Event, TurnLimits};
use petasos_core::{Inbound, InboxId, Millis, SessionKey};
use rusqlite::{Connection, Transaction, params};

use crate::connection::{Reads, Tx};
use crate::error::Result;
use crate::inbox::PendingMessage;
use crate::salvage::{LAST, NOTICE_PENDING, RESTORE_PENDING, Salvage, UNKNOWN_BEFORE};

/// Tolerated difference between the clock of a platform and ours.
const CLOCK_SKEW: Duration = Duration::from_secs(10);

/// Why the database may lack recent changes.
#[derive(Debug)]
pub enum LossCause {
    Salvaged(Salvage),
    Restored { made_at: Millis },
}

impl LossCause {
    /// Whether open turns and waiting messages may have been answered since the stored state.
    const fn is_behind(&self) -> bool {
        match self {
            Self::Salvaged(salvage) => salvage.log_commits > 0,
            Self::Restored { .. } => true,
        }
    }
}

/// A salvage or restore of which the owner is not notified yet.
#[derive(Debug)]
pub struct LossNotice {
    pub cause: LossCause,
    /// Messages given up because they may have been answered; their chats must be notified.
    pub possibly_answered: Vec<PendingMessage>,
}

/// Writes the record into the new database before it is installed.
pub(super) fn record_salvage(path: &Path, salvage: &Salvage) -> Result<()> {
    change(path, |tx| {
        put_meta_row(tx, LAST, &crate::value::json(&salvage.shortened())?)?;
        put_meta_row(tx, NOTICE_PENDING, "yes")?;
        if let Some(before) = salvage.unknown_before {
            // A message sent after this start cannot have been answered before it.
            put_meta_row(tx, UNKNOWN_BEFORE, &before.after(CLOCK_SKEW).min(salvage.at).0.to_string())?;
        }
        if salvage.log_commits > 0 { mark_possible_duplicates(tx) } else { Ok(()) }
    })
}

/// Marks a copy of a backup before it is installed: changes after `made_at` are not in it.
pub fn mark_restored(path: &Path, made_at: Millis, now: Millis) -> Result<()> {
    change(path, |tx| {
        put_meta_row(tx, RESTORE_PENDING, &made_at.0.to_string())?;
        put_meta_row(tx, UNKNOWN_BEFORE, &now.0.to_string())?;
        mark_possible_duplicates(tx)
    })
}

pub(super) fn change(path: &Path, work: impl FnOnce(&Transaction<'_>) -> Result<()>) -> Result<()> {
    let mut db = Connection::open(path)?;
    let tx = db.transaction()?;
    work(&tx)?;
    tx.commit()?;
    db.close().map_err(|(_, error)| error)?;
    Ok(())
}

pub(super) fn put_meta_row(tx: &Transaction<'_>, key: &str, value: &str) -> Result<()> {
    tx.execute(
        "INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        params![key, value],
    )?;
    Ok(())
}

/// The commit that recorded a delivery may be lost, so a repeated send is a possible duplicate.
fn mark_possible_duplicates(tx: &Transaction<'_>) -> Result<()> {
    tx.execute("UPDATE outbox SET doubtful = 1 WHERE state IN ('due', 'sending')", [])?;
    Ok(())
}

impl Reads {
    pub fn last_salvage(&self) -> Result<Option<Salvage>> {
        Ok(self.meta(LAST)?.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// Time before which the record of accepted messages is incomplete.
    pub fn unknown_before(&self) -> Result<Option<Millis>> {
        Ok(self.meta(UNKNOWN_BEFORE)?.and_then(|text| text.parse().ok().map(Millis)))
    }
}

impl Tx<'_> {
    /// Call once after a salvage or restore, before any task: gives up messages that may have been answered.
    pub fn loss_notice(&self, limits: TurnLimits, now: Millis) -> Result<Option<LossNotice>> {
        let Some(cause) = self.unreported_loss()? else { return Ok(None) };
        self.sql("DELETE FROM meta WHERE key IN (?1, ?2)")?.execute([NOTICE_PENDING, RESTORE_PENDING])?;
        let mut possibly_answered = Vec::new();
        // Its turn is lost, and may have sent something already.
        for id in self.stranded()? {
            possibly_answered.extend(self.pending(id).ok().flatten());
            self.dead_letter_message(id, now)?;
        }
        if cause.is_behind() {
            self.give_up_open_work(limits, &mut possibly_answered, now)?;
        }
        Ok(Some(LossNotice { cause, possibly_answered }))
    }

    fn unreported_loss(&self) -> Result<Option<LossCause>> {
        if let Some(made_at) = self.meta(RESTORE_PENDING)? {
            return Ok(Some(LossCause::Restored { made_at: Millis(made_at.parse().unwrap_or_default()) }));
        }
        let salvage = if self.meta(NOTICE_PENDING)?.is_some() { self.last_salvage()? } else { None };
        Ok(salvage.map(LossCause::Salvaged))
    }

    /// Gives up all open work: its stored state is outdated.
    fn give_up_open_work(
        &self,
        limits: TurnLimits,
        possibly_answered: &mut Vec<PendingMessage>,
        now: Millis,
    ) -> Result<()> {
        for turn in self.open_turns()? {
            possibly_answered.extend(self.pending(turn.id.into()).ok().flatten());
            let (_, decision) = turn::step(turn, limits, now, Event::GivenUp { notice: None });
            self.apply(&decision.writes, now)?;
        }
        for key in self.keys_with_work()? {
            for waiting in self.queued(&key)? {
                // Repeating a background completion only repeats a notification.
                if waiting.inbound.internal {
                    continue;
                }
                self.dead_letter_message(waiting.id, now)?;
                possibly_answered.push(waiting);
            }
        }
        Ok(())
    }

    fn dead_letter_message(&self, id: InboxId, now: Millis) -> Result<()> {
        self.apply(&[Write::SettleInbox { inbox: vec![id], outcome: MessageOutcome::Dead, at: now }], now)
    }

    /// Whether an unknown message was sent before the damage or the restore.
    pub fn may_have_been_answered(&self, inbound: &Inbound) -> Result<bool> {
        let (Some(before), Some(sent), false) = (self.unknown_before()?, inbound.sent_at, inbound.internal)
        else {
            return Ok(false);
        };
        let mut known = self.sql("SELECT 1 FROM seen WHERE platform = ?1 AND dedup = ?2")?;
        Ok(sent < before && !known.exists([inbound.source.platform.as_str(), &inbound.dedup])?)
    }

    /// Accepts and dead-letters such a message, so that it is reported once.
    pub fn accept_possibly_answered(
        &self,
        inbound: &Inbound,
        key: &SessionKey,
        now: Millis,
    ) -> Result<InboxId> {
        let id = self.accept(inbound, key, now)?.id();
        self.dead_letter_message(id, now)?;
        Ok(id)
    }
}
