//! Queue of each instance. Every write is part of the caller's transaction.

use petasos_core::{InstanceId, LinkId, Millis, TenantId};
use petasos_relay::session::{Carries, DeadLetterReason, Entry};
use rusqlite::{OptionalExtension, Row, params};

use crate::connection::{Reads, Tx};
use crate::connector::InstanceChat;
use crate::error::{Error, Result};
use crate::value::{amount, at, count, sql_limit, time_at};

const MAX_DEAD_LETTERS: usize = 1000;
/// Bytes of dead letters kept per instance, because all instances share the disk.
const MAX_DEAD_LETTER_BYTES: u64 = 32 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    pub entry: Entry,
    /// The `event` or `forward` field of its frame, as JSON.
    pub payload: String,
    /// The receiving link, and the platform's identity of the event.
    pub seen: (LinkId, String),
    pub chat: Option<InstanceChat>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueDepth {
    pub instance: InstanceId,
    pub tenant: TenantId,
    pub idle: bool,
    pub entries: u64,
    pub bytes: u64,
    pub dead: u64,
}

/// An event that was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    pub id: String,
    pub instance: InstanceId,
    pub platform: String,
    pub why: String,
    pub at: Millis,
}

impl Reads {
    /// Queued entries of an instance, oldest first, and whether it is idle.
    pub fn queue_of(&self, instance: &InstanceId) -> Result<(Vec<Entry>, bool)> {
        let mut read = self.sql(
            "SELECT id, platform, carries, size, strikes, at FROM queue WHERE instance = ?1 ORDER BY number",
        )?;
        let entries = read.query_and_then([instance.as_str()], entry)?.collect::<Result<_>>()?;
        let mut read = self.sql("SELECT idle FROM instances WHERE id = ?1")?;
        let idle: Option<bool> = read.query_row([instance.as_str()], |row| row.get(0)).optional()?;
        Ok((entries, idle.unwrap_or_default()))
    }

    pub fn instances_with_work(&self) -> Result<Vec<InstanceId>> {
        let mut read = self.sql("SELECT DISTINCT instance FROM queue ORDER BY instance")?;
        read.query_and_then([], |row| Ok(InstanceId(row.get(0)?)))?.collect()
    }

    pub fn payload(&self, id: &str) -> Result<Option<(Carries, String)>> {
        let mut read = self.sql("SELECT carries, payload FROM queue WHERE id = ?1")?;
        let found = read.query_and_then([id], |row| Ok((carries(row, 0)?, row.get(1)?)))?.next();
        found.transpose()
    }

    pub fn was_seen(&self, link: &LinkId, dedup: &str) -> Result<bool> {
        let mut read = self.sql("SELECT 1 FROM seen WHERE link = ?1 AND dedup = ?2")?;
        Ok(read.exists(params![link.to_string(), dedup])?)
    }

    pub fn depths(&self) -> Result<Vec<QueueDepth>> {
        let mut read = self.sql(
            "SELECT i.id, i.tenant, i.idle,
                    (SELECT count(*) FROM queue q WHERE q.instance = i.id),
                    (SELECT coalesce(sum(size), 0) FROM queue q WHERE q.instance = i.id),
                    (SELECT count(*) FROM dead d WHERE d.instance = i.id)
             FROM instances i ORDER BY i.id",
        )?;
        let depths = read.query_and_then([], |row| {
            let entries = row.get(3)?;
            let bytes = row.get(4)?;
            let dead = row.get(5)?;
            Ok(QueueDepth {
                instance: InstanceId(row.get(0)?),
                tenant: TenantId(row.get(1)?),
                idle: row.get(2)?,
                entries: count(entries),
                bytes: count(bytes),
                dead: count(dead),
            })
        })?;
        depths.collect()
    }

    pub fn dead_letters(&self, limit: usize) -> Result<Vec<DeadLetter>> {
        let mut read =
            self.sql("SELECT id, instance, platform, why, at FROM dead ORDER BY at DESC, id DESC LIMIT ?1")?;
        let letters = read.query_and_then([sql_limit(limit)], |row| {
            let id = row.get(0)?;
            let instance = InstanceId(row.get(1)?);
            let platform = row.get(2)?;
            Ok(DeadLetter { id, instance, platform, why: row.get(3)?, at: time_at(row, 4)? })
        })?;
        letters.collect()
    }
}

impl Tx<'_> {
    pub fn enqueue(&self, instance: &InstanceId, arrival: &Arrival) -> Result<()> {
        let Arrival { entry, payload, .. } = arrival;
        self.sql(
            "INSERT INTO queue (id, instance, platform, carries, payload, size, strikes, at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            entry.id,
            instance.as_str(),
            entry.platform,
            name(entry.carries),
            payload,
            amount(entry.size),
            entry.strikes,
            at(entry.at)
        ])?;
        self.record_event(instance, arrival)
    }

    /// Records an event that bypasses the queue, so that it is not processed again.
    pub fn record_event(&self, instance: &InstanceId, arrival: &Arrival) -> Result<()> {
        let (link, dedup) = &arrival.seen;
        self.record_identity(link, dedup, arrival.entry.at)?;
        match &arrival.chat {
            Some(chat) => self.put_chat(instance, chat, arrival.entry.at),
            None => Ok(()),
        }
    }

    /// Fails if the event was already recorded.
    pub fn record_identity(&self, link: &LinkId, dedup: &str, now: Millis) -> Result<()> {
        self.sql("INSERT INTO seen (link, dedup, at) VALUES (?1, ?2, ?3)")?.execute(params![
            link.to_string(),
            dedup,
            at(now)
        ])?;
        Ok(())
    }

    /// Removes an acknowledged entry; no error if it is already gone.
    pub fn acknowledge(&self, instance: &InstanceId, id: &str) -> Result<()> {
        self.sql("DELETE FROM queue WHERE id = ?1 AND instance = ?2")?.execute([id, instance.as_str()])?;
        Ok(())
    }

    pub fn put_strikes(&self, id: &str, strikes: u32) -> Result<()> {
        self.sql("UPDATE queue SET strikes = ?2 WHERE id = ?1")?.execute(params![id, strikes])?;
        Ok(())
    }

    pub fn dead_letter(&self, id: &str, why: DeadLetterReason, now: Millis) -> Result<()> {
        self.sql(
            "INSERT INTO dead (id, instance, platform, payload, why, at)
             SELECT id, instance, platform, payload, ?2, ?3 FROM queue WHERE id = ?1",
        )?
        .execute(params![id, reason(why), at(now)])?;
        let mut taken = self.sql("DELETE FROM queue WHERE id = ?1 RETURNING instance")?;
        let instance: Option<String> = taken.query_row([id], |row| row.get(0)).optional()?;
        instance.map_or(Ok(()), |instance| self.prune_dead_letters(&InstanceId(instance)))
    }

    /// Dead-letters an event that never entered the queue. `None`: it exceeds the longest frame.
    pub fn dead_letter_arrival(
        &self,
        instance: &InstanceId,
        arrival: &Arrival,
        why: Option<DeadLetterReason>,
    ) -> Result<()> {
        let why = why.map_or("too_long", reason);
        let Arrival { entry, payload, .. } = arrival;
        self.sql(
            "INSERT INTO dead (id, instance, platform, payload, why, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            entry.id,
            instance.as_str(),
            entry.platform,
            payload,
            why,
            at(entry.at)
        ])?;
        self.record_event(instance, arrival)?;
        self.prune_dead_letters(instance)
    }

    fn prune_dead_letters(&self, instance: &InstanceId) -> Result<()> {
        self.sql(
            "DELETE FROM dead WHERE instance = ?1 AND id NOT IN
             (SELECT id FROM (SELECT id, at, sum(octet_length(payload)) OVER (ORDER BY at DESC, id DESC) AS bytes
                              FROM dead WHERE instance = ?1)
              WHERE bytes <= ?3 ORDER BY at DESC, id DESC LIMIT ?2)",
        )?
        .execute(params![instance.as_str(), sql_limit(MAX_DEAD_LETTERS), amount(MAX_DEAD_LETTER_BYTES)])?;
        Ok(())
    }

    pub fn set_idle(&self, instance: &InstanceId, idle: bool) -> Result<()> {
        let done = self
            .sql("UPDATE instances SET idle = ?2 WHERE id = ?1")?
            .execute(params![instance.as_str(), idle])?;
        if done == 0 { Err(Error::Missing("instance")) } else { Ok(()) }
    }

    /// Assigns the instance to a socket on this node, under a new and higher epoch.
    pub fn claim_instance(&self, instance: &InstanceId, node: &str) -> Result<u64> {
        let mut claim =
            self.sql("UPDATE instances SET epoch = epoch + 1, node = ?2 WHERE id = ?1 RETURNING epoch")?;
        let epoch = claim.query_row([instance.as_str(), node], |row| row.get(0)).optional()?;
        epoch.map(count).ok_or(Error::Missing("instance"))
    }
}

fn entry(row: &Row<'_>) -> Result<Entry> {
    let id = row.get(0)?;
    let platform = row.get(1)?;
    let size = row.get(3)?;
    let carries = carries(row, 2)?;
    let strikes = row.get(4)?;
    Ok(Entry { id, platform, carries, size: count(size), strikes, at: time_at(row, 5)? })
}

fn carries(row: &Row<'_>, column: usize) -> Result<Carries> {
    match row.get_ref(column)?.as_str() {
        Ok("inbound") => Ok(Carries::Inbound),
        Ok("forward") => Ok(Carries::Forward),
        Ok(_) | Err(_) => Err(Error::Unreadable("queue entry")),
    }
}

const fn name(carries: Carries) -> &'static str {
    match carries {
        Carries::Inbound => "inbound",
        Carries::Forward => "forward",
    }
}

const fn reason(why: DeadLetterReason) -> &'static str {
    match why {
        DeadLetterReason::Full => "full",
        DeadLetterReason::Old => "old",
        DeadLetterReason::NotAcknowledged => "not_acknowledged",
    }
}
