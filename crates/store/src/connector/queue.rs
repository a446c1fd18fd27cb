//! What is owed to instances: append, acknowledge, flip, claim, list. Each is part of the caller's transaction.

use petasos_core::{LinkId, Millis};
use petasos_relay::session::{Buried, Carries, Entry};
use rusqlite::{OptionalExtension, Row, params};

use crate::connector::Chat;
use crate::error::{Error, Result};
use crate::group::{Reads, Tx};
use crate::value::{amount, at, count, rows, time_at};

/// Put-aside events of one instance that are kept.
const MOST_DEAD: usize = 1000;
/// The same in bytes: the disk is everybody's.
const MOST_DEAD_BYTES: u64 = 32 << 20;

/// Something new for an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    pub entry: Entry,
    /// The `event` or the `forward` of its frame, as JSON.
    pub payload: String,
    /// The link that heard it, and the platform's identity of it.
    pub seen: (LinkId, String),
    pub chat: Option<Chat>,
}

/// How much is owed to an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Depth {
    pub instance: String,
    pub tenant: String,
    pub idle: bool,
    pub entries: u64,
    pub bytes: u64,
    pub dead: u64,
}

/// Something that was put aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    pub id: String,
    pub instance: String,
    pub platform: String,
    pub why: String,
    pub at: Millis,
}

impl Reads {
    /// What is owed to an instance, in the order of its arrival, and whether it idles.
    pub fn owed_to(&self, instance: &str) -> Result<(Vec<Entry>, bool)> {
        let mut read = self.sql(
            "SELECT id, platform, carries, size, strikes, at FROM queue WHERE instance = ?1 ORDER BY number",
        )?;
        let entries = read.query_and_then([instance], entry)?.collect::<Result<_>>()?;
        let mut read = self.sql("SELECT idle FROM instances WHERE id = ?1")?;
        let idle: Option<bool> = read.query_row([instance], |row| row.get(0)).optional()?;
        Ok((entries, idle.unwrap_or_default()))
    }

    /// Instances to which something is owed.
    pub fn instances_with_work(&self) -> Result<Vec<String>> {
        let mut read = self.sql("SELECT DISTINCT instance FROM queue ORDER BY instance")?;
        read.query_and_then([], |row| Ok(row.get(0)?))?.collect()
    }

    /// What is owed under this number.
    pub fn payload(&self, id: &str) -> Result<Option<(Carries, String)>> {
        let mut read = self.sql("SELECT carries, payload FROM queue WHERE id = ?1")?;
        let found = read.query_and_then([id], |row| Ok((carries(row, 0)?, row.get(1)?)))?.next();
        found.transpose()
    }

    /// Whether an event was taken before.
    pub fn was_seen(&self, link: &LinkId, dedup: &str) -> Result<bool> {
        let mut read = self.sql("SELECT 1 FROM seen WHERE link = ?1 AND dedup = ?2")?;
        Ok(read.exists(params![link.to_string(), dedup])?)
    }

    pub fn depths(&self) -> Result<Vec<Depth>> {
        let mut read = self.sql(
            "SELECT i.id, i.tenant, i.idle,
                    (SELECT count(*) FROM queue q WHERE q.instance = i.id),
                    (SELECT coalesce(sum(size), 0) FROM queue q WHERE q.instance = i.id),
                    (SELECT count(*) FROM dead d WHERE d.instance = i.id)
             FROM instances i ORDER BY i.id",
        )?;
        let depths = read.query_and_then([], |row| {
            let (entries, bytes, dead) = (row.get(3)?, row.get(4)?, row.get(5)?);
            Ok(Depth {
                instance: row.get(0)?,
                tenant: row.get(1)?,
                idle: row.get(2)?,
                entries: count(entries),
                bytes: count(bytes),
                dead: count(dead),
            })
        })?;
        depths.collect()
    }

    /// Newest first.
    pub fn dead_letters(&self, limit: usize) -> Result<Vec<DeadLetter>> {
        let mut read =
            self.sql("SELECT id, instance, platform, why, at FROM dead ORDER BY at DESC, id DESC LIMIT ?1")?;
        let letters = read.query_and_then([rows(limit)], |row| {
            let (id, instance, platform) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(DeadLetter { id, instance, platform, why: row.get(3)?, at: time_at(row, 4)? })
        })?;
        letters.collect()
    }
}

impl Tx<'_> {
    /// At the end of the queue.
    pub fn enqueue(&self, instance: &str, arrival: &Arrival) -> Result<()> {
        let Arrival { entry, payload, .. } = arrival;
        self.sql(
            "INSERT INTO queue (id, instance, platform, carries, payload, size, strikes, at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            entry.id,
            instance,
            entry.platform,
            name(entry.carries),
            payload,
            amount(entry.size),
            entry.strikes,
            at(entry.at)
        ])?;
        self.heard(instance, arrival)
    }

    /// An event that is not kept in the queue, and is not to be taken again either.
    pub fn heard(&self, instance: &str, arrival: &Arrival) -> Result<()> {
        let (link, dedup) = &arrival.seen;
        self.see(link, dedup, arrival.entry.at)?;
        match &arrival.chat {
            Some(chat) => self.meet(instance, chat, arrival.entry.at),
            None => Ok(()),
        }
    }

    /// Fails if it was taken before.
    pub fn see(&self, link: &LinkId, dedup: &str, now: Millis) -> Result<()> {
        self.sql("INSERT INTO seen (link, dedup, at) VALUES (?1, ?2, ?3)")?.execute(params![
            link.to_string(),
            dedup,
            at(now)
        ])?;
        Ok(())
    }

    /// The gateway has it. One that is gone already stays gone.
    pub fn acknowledge(&self, instance: &str, id: &str) -> Result<()> {
        self.sql("DELETE FROM queue WHERE id = ?1 AND instance = ?2")?.execute([id, instance])?;
        Ok(())
    }

    pub fn strike(&self, id: &str, strikes: u32) -> Result<()> {
        self.sql("UPDATE queue SET strikes = ?2 WHERE id = ?1")?.execute(params![id, strikes])?;
        Ok(())
    }

    /// Takes an entry of the queue aside.
    pub fn put_aside(&self, id: &str, why: Buried, now: Millis) -> Result<()> {
        self.sql(
            "INSERT INTO dead (id, instance, platform, payload, why, at)
             SELECT id, instance, platform, payload, ?2, ?3 FROM queue WHERE id = ?1",
        )?
        .execute(params![id, reason(why), at(now)])?;
        let mut taken = self.sql("DELETE FROM queue WHERE id = ?1 RETURNING instance")?;
        let instance: Option<String> = taken.query_row([id], |row| row.get(0)).optional()?;
        instance.map_or(Ok(()), |instance| self.thin_out(&instance))
    }

    /// Puts something aside that was never in the queue. `None`: no line is long enough for it.
    pub fn refuse(&self, instance: &str, arrival: &Arrival, why: Option<Buried>) -> Result<()> {
        let why = why.map_or("too_long", reason);
        let Arrival { entry, payload, .. } = arrival;
        self.sql(
            "INSERT INTO dead (id, instance, platform, payload, why, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![entry.id, instance, entry.platform, payload, why, at(entry.at)])?;
        self.heard(instance, arrival)?;
        self.thin_out(instance)
    }

    fn thin_out(&self, instance: &str) -> Result<()> {
        self.sql(
            "DELETE FROM dead WHERE instance = ?1 AND id NOT IN
             (SELECT id FROM (SELECT id, at, sum(octet_length(payload)) OVER (ORDER BY at DESC, id DESC) AS bytes
                              FROM dead WHERE instance = ?1)
              WHERE bytes <= ?3 ORDER BY at DESC, id DESC LIMIT ?2)",
        )?
        .execute(params![instance, rows(MOST_DEAD), amount(MOST_DEAD_BYTES)])?;
        Ok(())
    }

    pub fn flip(&self, instance: &str, idle: bool) -> Result<()> {
        let done =
            self.sql("UPDATE instances SET idle = ?2 WHERE id = ?1")?.execute(params![instance, idle])?;
        if done == 0 { Err(Error::Missing("instance")) } else { Ok(()) }
    }

    /// A socket on this node takes the instance: its number is higher than all before it.
    pub fn claim_instance(&self, instance: &str, node: &str) -> Result<u64> {
        let mut claim =
            self.sql("UPDATE instances SET epoch = epoch + 1, node = ?2 WHERE id = ?1 RETURNING epoch")?;
        let epoch = claim.query_row([instance, node], |row| row.get(0)).optional()?;
        epoch.map(count).ok_or(Error::Missing("instance"))
    }
}

fn entry(row: &Row<'_>) -> Result<Entry> {
    let (id, platform, size) = (row.get(0)?, row.get(1)?, row.get(3)?);
    let (carries, strikes) = (carries(row, 2)?, row.get(4)?);
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

const fn reason(why: Buried) -> &'static str {
    match why {
        Buried::Full => "full",
        Buried::Old => "old",
        Buried::NotAcknowledged => "not_acknowledged",
    }
}
