//! The routing table: which transcript a conversation uses, and the flags that go with it. Single rows
//! are written, never the whole table. What is decided about an entry is decided in `petasos_core::session`.

use std::time::Duration;

use petasos_core::session::{self, CrashRecovery, Entry, ResumeReason};
use petasos_core::transcript::Bill;
use petasos_core::{Millis, Platform, SessionId, SessionKey, Source};
use rusqlite::{OptionalExtension, Params, Row, params};

use crate::clock::{local_time, unix_time};
use crate::error::Result;
use crate::group::{Reads, Tx};
use crate::retention::BATCH;
use crate::value::{at, json, legible, parse, rows};

/// Entries that one call of `finalize_expired` looks at.
const FINALIZE_PAGE: usize = 500;
/// The most by which a local clock is set.
const DAYLIGHT_SAVING: Duration = Duration::from_secs(2 * 3600);

/// Behind which entry `finalize_expired` goes on; the default is before the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinalizeFrom {
    updated_at: i64,
    key: String,
}

impl Default for FinalizeFrom {
    fn default() -> Self {
        Self { updated_at: i64::MIN, key: String::new() }
    }
}

/// Result of `finalize_expired`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Finalized {
    pub ended: usize,
    /// Where to go on; `None`: there is nothing behind this page.
    pub next: Option<FinalizeFrom>,
}

/// What tells one state of the table from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RoutingState {
    latest: Option<i64>,
    entries: i64,
    bytes: Option<i64>,
}

impl Reads {
    pub fn entry(&self, key: &SessionKey) -> Result<Option<Entry>> {
        let mut read = self.sql("SELECT entry FROM routing WHERE session_key = ?1")?;
        let found: Option<String> = read.query_row([key.as_str()], |row| row.get(0)).optional()?;
        found.map(|text| parse(&text, "session entry")).transpose()
    }

    /// The transcript a conversation uses.
    pub fn bound(&self, key: &SessionKey) -> Result<Option<SessionId>> {
        let mut read = self.sql("SELECT session FROM routing WHERE session_key = ?1")?;
        Ok(read.query_row([key.as_str()], |row| row.get(0).map(SessionId)).optional()?)
    }

    /// The entries of one chat, in any of its threads, the latest used first.
    pub fn entries_at(&self, platform: Platform, chat: &str) -> Result<Vec<Entry>> {
        self.entries_where(
            // `+updated_at`: by the index of the place, not by reading the platform in order.
            "SELECT entry FROM routing WHERE platform = ?1 AND chat = ?2 ORDER BY +updated_at DESC",
            params![platform.as_str(), chat],
        )
    }

    /// Entries whose interrupted turn waits to be continued.
    pub fn pending_resumes(&self) -> Result<Vec<Entry>> {
        self.entries_where("SELECT entry FROM routing WHERE pending = 1 ORDER BY updated_at DESC", [])
    }

    /// Up to `limit` entries used since then, the latest used first.
    pub fn entries_since(&self, since: Millis, limit: usize) -> Result<Vec<Entry>> {
        self.entries_where(
            "SELECT entry FROM routing WHERE updated_at >= ?1 ORDER BY updated_at DESC LIMIT ?2",
            params![at(since), rows(limit)],
        )
    }

    /// Up to `limit` entries by key, from the one behind `after`.
    pub fn entries_after(&self, after: &SessionKey, limit: usize) -> Result<EntryPage> {
        let mut read = self.sql(
            "SELECT entry, session_key FROM routing WHERE session_key > ?1 ORDER BY session_key LIMIT ?2",
        )?;
        let mut found = read.query(params![after.as_str(), rows(limit)])?;
        let mut page = EntryPage { entries: Vec::new(), next: None };
        let mut read = 0;
        while let Some(row) = found.next()? {
            read += 1;
            page.next = Some(SessionKey(row.get(1)?));
            page.entries.extend(legible(read_entry(row)).transpose()?);
        }
        page.next = page.next.filter(|_| read == limit);
        Ok(page)
    }

    /// Up to `limit` keys, from the one behind `after`.
    pub fn keys_after(&self, after: &SessionKey, limit: usize) -> Result<Vec<SessionKey>> {
        let mut read =
            self.sql("SELECT session_key FROM routing WHERE session_key > ?1 ORDER BY session_key LIMIT ?2")?;
        let found =
            read.query_and_then(params![after.as_str(), rows(limit)], |row| Ok(SessionKey(row.get(0)?)))?;
        found.collect()
    }

    /// The origins of the conversations of a platform that were used last, the latest first, up to `limit`. `since`:
    /// only those used from then on.
    pub fn recent_origins(
        &self,
        platform: Platform,
        since: Option<Millis>,
        limit: usize,
    ) -> Result<Vec<Source>> {
        let mut read = self.sql(
            "SELECT entry FROM routing WHERE platform = ?1 AND updated_at >= ?2 ORDER BY updated_at DESC LIMIT ?3",
        )?;
        let since = since.map_or(0, at);
        let found = read.query_and_then(params![platform.as_str(), since, rows(limit)], |row| {
            parse::<OriginOnly>(row.get_ref(0)?.as_str().unwrap_or_default(), "session entry")
        })?;
        found.filter_map(legible).filter_map(|read| read.map(|it| it.origin).transpose()).collect()
    }

    /// When an entry was used last; the table has changed if this has.
    pub fn routing_latest(&self) -> Result<Option<i64>> {
        Ok(self.sql("SELECT max(updated_at) FROM routing")?.query_row([], |row| row.get(0))?)
    }

    /// Whether the table has more entries than this.
    pub fn routing_exceeds(&self, entries: usize) -> Result<bool> {
        let mut read = self.sql("SELECT 1 FROM routing LIMIT 1 OFFSET ?1")?;
        Ok(read.exists([rows(entries)])?)
    }

    /// Differs whenever the table does. Reads all of it.
    pub fn routing_state(&self) -> Result<RoutingState> {
        let mut read = self.sql("SELECT max(updated_at), count(*), sum(length(entry)) FROM routing")?;
        let state = |row: &Row<'_>| {
            Ok(RoutingState { latest: row.get(0)?, entries: row.get(1)?, bytes: row.get(2)? })
        };
        Ok(read.query_row([], state)?)
    }

    fn entries_where(&self, select: &str, given: impl Params) -> Result<Vec<Entry>> {
        let mut read = self.sql(select)?;
        read.query_and_then(given, read_entry)?.filter_map(legible).collect()
    }
}

/// Some entries in the order of their keys. Entries that cannot be read are left out.
#[derive(Debug, Clone, PartialEq)]
pub struct EntryPage {
    pub entries: Vec<Entry>,
    /// Where the next page begins; `None`: this was the last one.
    pub next: Option<SessionKey>,
}

/// Reads much faster than a whole entry.
#[derive(serde::Deserialize)]
struct OriginOnly {
    #[serde(default)]
    origin: Option<Source>,
}

fn read_entry(row: &Row<'_>) -> Result<Entry> {
    parse(row.get_ref(0)?.as_str().unwrap_or_default(), "session entry")
}

impl Tx<'_> {
    /// Ends conversations whose reset is due, so that nothing of them waits for the next message. Looks at one page of
    /// the unfinished ones, oldest first, behind `from`.
    pub fn finalize_expired(
        &self,
        policies: &session::Policies,
        now: Millis,
        from: &FinalizeFrom,
    ) -> Result<Finalized> {
        if policies.never_reset() {
            return Ok(Finalized::default());
        }
        let mut read = self.sql(
            "SELECT entry, updated_at, session_key FROM routing
             WHERE finalized = 0 AND (updated_at, session_key) > (?1, ?2) ORDER BY updated_at, session_key LIMIT ?3",
        )?;
        let mut found = read.query(params![from.updated_at, from.key, rows(FINALIZE_PAGE)])?;
        let (mut page, mut last, mut looked_at) = (Vec::new(), FinalizeFrom::default(), 0);
        while let Some(row) = found.next()? {
            looked_at += 1;
            last = FinalizeFrom { updated_at: row.get(1)?, key: row.get(2)? };
            page.extend(legible(read_entry(row)).transpose()?);
        }
        drop(found);
        let local = local_time(now);
        let due = |entry: &Entry| {
            policies.lookup(entry.platform, entry.chat_type).due(entry.updated_at, local).is_some()
        };
        let mut ended = 0;
        for entry in page.into_iter().filter(due) {
            self.end_session(&entry.session_id, "session_reset", now)?;
            self.put_entry(&Entry { expiry_finalized: true, ..entry })?;
            ended += 1;
        }
        let next = Some(last).filter(|_| looked_at == FINALIZE_PAGE);
        Ok(Finalized { ended, next })
    }

    pub fn put_entry(&self, entry: &Entry) -> Result<()> {
        let origin = entry.origin.as_ref();
        let (platform, chat) =
            (origin.map(|it| it.platform.as_str()), origin.and_then(|it| it.chat_id.as_deref()));
        self.sql(
            "INSERT INTO routing (session_key, session, entry, updated_at, pending, finalized, platform, chat)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
             ON CONFLICT (session_key) DO UPDATE
             SET session = excluded.session, entry = excluded.entry, updated_at = excluded.updated_at,
                 pending = excluded.pending, finalized = excluded.finalized",
        )?
        .execute(params![
            entry.session_key.as_str(),
            entry.session_id.as_str(),
            json(entry)?,
            at(unix_time(entry.updated_at)),
            entry.resume_pending && !entry.suspended,
            entry.expiry_finalized,
            platform,
            chat,
        ])?;
        // Apart, because a key rarely changes its place and an index over it would be written every time.
        self.sql(
            "UPDATE routing SET platform = ?2, chat = ?3
             WHERE session_key = ?1 AND (platform IS NOT ?2 OR chat IS NOT ?3)",
        )?
        .execute(params![entry.session_key.as_str(), platform, chat])?;
        Ok(())
    }

    /// Changes an entry if there is one; `false` from `change` means that nothing has to be stored.
    pub fn change_entry(
        &self,
        key: &SessionKey,
        change: impl FnOnce(Option<&mut Entry>) -> bool,
    ) -> Result<bool> {
        let mut entry = self.entry(key)?;
        if !change(entry.as_mut()) {
            return Ok(false);
        }
        entry.map_or(Ok(false), |entry| self.put_entry(&entry).map(|()| true))
    }

    /// `false`: unknown, or suspended.
    pub fn mark_resume_pending(&self, key: &SessionKey, reason: ResumeReason, now: Millis) -> Result<bool> {
        self.change_entry(key, |entry| session::mark_resume_pending(entry, reason, local_time(now)))
    }

    /// `false`: unknown, or not marked.
    pub fn clear_resume_pending(&self, key: &SessionKey) -> Result<bool> {
        self.change_entry(key, session::clear_resume_pending)
    }

    /// The next message starts afresh. `false`: unknown.
    pub fn suspend_session(&self, key: &SessionKey) -> Result<bool> {
        self.change_entry(key, session::suspend)
    }

    /// After a crash; gives how many entries were changed.
    pub fn suspend_recently_active(
        &self,
        mode: CrashRecovery,
        window: Duration,
        now: Millis,
    ) -> Result<usize> {
        match mode {
            CrashRecovery::Journal => return Ok(0),
            CrashRecovery::Suspend | CrashRecovery::Resume => {}
        }
        // The core compares local times; an hour may be there twice.
        let mut entries = self.entries_since(now.before(window + DAYLIGHT_SAVING), usize::MAX)?;
        let before = entries.clone();
        let changed = session::suspend_recently_active(&mut entries, mode, window, local_time(now));
        let differing = entries.iter().zip(&before).filter(|(after, before)| after != before);
        differing.map(|(after, _)| after).try_for_each(|entry| self.put_entry(entry))?;
        Ok(changed)
    }

    /// Drops entries not used since `before`, except suspended ones and those with work; at most one batch.
    /// Their transcripts stay.
    pub fn prune_entries(&self, before: Millis) -> Result<usize> {
        let mut prune = self.sql(
            "DELETE FROM routing WHERE session_key IN (
                 SELECT session_key FROM routing
                 WHERE updated_at < ?1 AND CASE WHEN json_valid(entry) THEN NOT entry ->> 'suspended' ELSE 1 END
                     AND session_key NOT IN (SELECT session_key FROM turns WHERE ended_at IS NULL)
                     AND session_key NOT IN (SELECT session_key FROM inbox WHERE state <> 'settled')
                 ORDER BY updated_at LIMIT ?2)",
        )?;
        Ok(prune.execute(params![at(before), BATCH])?)
    }

    pub(crate) fn clear_resume(&self, key: &SessionKey) -> Result<()> {
        self.clear_resume_pending(key)?;
        self.forget_failures(key)?;
        Ok(())
    }

    pub(crate) fn spend(&self, key: &SessionKey, id: &SessionId, bill: Bill) -> Result<()> {
        self.spend_session(id, bill.usage)?;
        self.change_entry(key, |entry| entry.is_some_and(|entry| count(entry, id, bill)))?;
        Ok(())
    }

    /// The size of the prompt, now that room was made.
    pub(crate) fn put_prompt_size(&self, key: &SessionKey, id: &SessionId, tokens: u64) -> Result<()> {
        self.change_entry(key, |entry| {
            entry
                .filter(|entry| entry.session_id == *id)
                .map(|entry| entry.last_prompt_tokens = tokens)
                .is_some()
        })?;
        Ok(())
    }
}

/// The entry counts for the transcript it is bound to; one that was left behind has its own row.
fn count(entry: &mut Entry, id: &SessionId, bill: Bill) -> bool {
    if entry.session_id != *id {
        return false;
    }
    let usage = bill.usage;
    entry.input_tokens = entry.input_tokens.saturating_add(usage.input);
    entry.output_tokens = entry.output_tokens.saturating_add(usage.output);
    entry.cache_read_tokens = entry.cache_read_tokens.saturating_add(usage.cache_read);
    entry.cache_write_tokens = entry.cache_write_tokens.saturating_add(usage.cache_write);
    entry.total_tokens = entry.total_tokens.saturating_add(usage.total());
    if let Some(prompt) = bill.prompt {
        entry.last_prompt_tokens = prompt;
    }
    if let Some(cost) = bill.micro_usd {
        entry.add_cost(cost);
    }
    true
}
