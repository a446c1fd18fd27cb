//! Routing table: maps session keys to sessions, with flags. Rows are written one at a time. The policy is in
//! `petasos_core::session`.

use std::time::Duration;

use petasos_core::session::{self, CrashRecovery, Entry, ResumeReason};
use petasos_core::transcript::UsageRecord;
use petasos_core::{Millis, Platform, SessionId, SessionKey, Source};
use rusqlite::{OptionalExtension, Params, Row, params};

use crate::clock::{local_time, unix_time};
use crate::connection::{Reads, Tx};
use crate::error::Result;
use crate::maintenance::retention::BATCH;
use crate::value::{at, json, parse, skip_unreadable, sql_limit};

/// Entries per call of `finalize_expired`.
const FINALIZE_PAGE: usize = 500;
/// Largest change of local time by daylight saving.
const DAYLIGHT_SAVING: Duration = Duration::from_secs(2 * 3600);

/// Position after which `finalize_expired` continues; the default is the start.
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

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Finalized {
    pub ended: usize,
    /// `None`: this was the last page.
    pub next: Option<FinalizeFrom>,
}

/// Change detector for the routing table.
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

    pub fn bound(&self, key: &SessionKey) -> Result<Option<SessionId>> {
        let mut read = self.sql("SELECT session FROM routing WHERE session_key = ?1")?;
        Ok(read.query_row([key.as_str()], |row| row.get(0).map(SessionId)).optional()?)
    }

    /// Entries of a chat and its threads, most recently used first.
    pub fn entries_of_chat(&self, platform: Platform, chat: &str) -> Result<Vec<Entry>> {
        self.entries_where(
            // `+updated_at` makes SQLite use the index of the chat instead of scanning the platform.
            "SELECT entry FROM routing WHERE platform = ?1 AND chat = ?2 ORDER BY +updated_at DESC",
            params![platform.as_str(), chat],
        )
    }

    /// Entries with an interrupted turn to resume.
    pub fn pending_resumes(&self) -> Result<Vec<Entry>> {
        self.entries_where("SELECT entry FROM routing WHERE pending = 1 ORDER BY updated_at DESC", [])
    }

    /// Entries used since then, most recently used first.
    pub fn entries_since(&self, since: Millis, limit: usize) -> Result<Vec<Entry>> {
        self.entries_where(
            "SELECT entry FROM routing WHERE updated_at >= ?1 ORDER BY updated_at DESC LIMIT ?2",
            params![at(since), sql_limit(limit)],
        )
    }

    pub fn entries_after(&self, after: &SessionKey, limit: usize) -> Result<EntryPage> {
        let mut read = self.sql(
            "SELECT entry, session_key FROM routing WHERE session_key > ?1 ORDER BY session_key LIMIT ?2",
        )?;
        let mut found = read.query(params![after.as_str(), sql_limit(limit)])?;
        let mut page = EntryPage { entries: Vec::new(), next: None };
        let mut read = 0;
        while let Some(row) = found.next()? {
            read += 1;
            page.next = Some(SessionKey(row.get(1)?));
            page.entries.extend(skip_unreadable(read_entry(row)).transpose()?);
        }
        page.next = page.next.filter(|_| read == limit);
        Ok(page)
    }

    pub fn keys_after(&self, after: &SessionKey, limit: usize) -> Result<Vec<SessionKey>> {
        let mut read =
            self.sql("SELECT session_key FROM routing WHERE session_key > ?1 ORDER BY session_key LIMIT ?2")?;
        let found = read
            .query_and_then(params![after.as_str(), sql_limit(limit)], |row| Ok(SessionKey(row.get(0)?)))?;
        found.collect()
    }

    /// Origins of the most recently used sessions of a platform, newest first. `since`: only those used from then on.
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
        let found = read.query_and_then(params![platform.as_str(), since, sql_limit(limit)], |row| {
            parse::<OriginOnly>(row.get_ref(0)?.as_str().unwrap_or_default(), "session entry")
        })?;
        found.filter_map(skip_unreadable).filter_map(|read| read.map(|it| it.origin).transpose()).collect()
    }

    /// Last use of any entry, as a cheap change detector.
    pub fn routing_latest(&self) -> Result<Option<i64>> {
        Ok(self.sql("SELECT max(updated_at) FROM routing")?.query_row([], |row| row.get(0))?)
    }

    pub fn routing_exceeds(&self, entries: usize) -> Result<bool> {
        let mut read = self.sql("SELECT 1 FROM routing LIMIT 1 OFFSET ?1")?;
        Ok(read.exists([sql_limit(entries)])?)
    }

    /// Reads the whole table.
    pub fn routing_state(&self) -> Result<RoutingState> {
        let mut read = self.sql("SELECT max(updated_at), count(*), sum(length(entry)) FROM routing")?;
        let state = |row: &Row<'_>| {
            Ok(RoutingState { latest: row.get(0)?, entries: row.get(1)?, bytes: row.get(2)? })
        };
        Ok(read.query_row([], state)?)
    }

    fn entries_where(&self, select: &str, given: impl Params) -> Result<Vec<Entry>> {
        let mut read = self.sql(select)?;
        read.query_and_then(given, read_entry)?.filter_map(skip_unreadable).collect()
    }
}

/// A page of entries, ordered by key. Unreadable entries are skipped.
#[derive(Debug, Clone, PartialEq)]
pub struct EntryPage {
    pub entries: Vec<Entry>,
    /// Key to continue after; `None`: this was the last page.
    pub next: Option<SessionKey>,
}

/// Parses much faster than a whole entry.
#[derive(serde::Deserialize)]
struct OriginOnly {
    #[serde(default)]
    origin: Option<Source>,
}

fn read_entry(row: &Row<'_>) -> Result<Entry> {
    parse(row.get_ref(0)?.as_str().unwrap_or_default(), "session entry")
}

impl Tx<'_> {
    /// Ends sessions whose reset is due, so that they do not stay open until the next message. Processes one page of
    /// unfinished entries after `from`, oldest first.
    pub fn finalize_expired(
        &self,
        policies: &session::ResetPolicies,
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
        let mut found = read.query(params![from.updated_at, from.key, sql_limit(FINALIZE_PAGE)])?;
        let mut page = Vec::new();
        let mut last = FinalizeFrom::default();
        let mut looked_at = 0;
        while let Some(row) = found.next()? {
            looked_at += 1;
            last = FinalizeFrom { updated_at: row.get(1)?, key: row.get(2)? };
            page.extend(skip_unreadable(read_entry(row)).transpose()?);
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
        let platform = origin.map(|it| it.platform.as_str());
        let chat = origin.and_then(|it| it.chat_id.as_deref());
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
        // A separate statement: the chat rarely changes, and its index would otherwise be rewritten every time.
        self.sql(
            "UPDATE routing SET platform = ?2, chat = ?3
             WHERE session_key = ?1 AND (platform IS NOT ?2 OR chat IS NOT ?3)",
        )?
        .execute(params![entry.session_key.as_str(), platform, chat])?;
        Ok(())
    }

    /// Changes an entry if it exists. `change` returns `false` if there is nothing to store.
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

    /// `false`: unknown or suspended.
    pub fn mark_resume_pending(&self, key: &SessionKey, reason: ResumeReason, now: Millis) -> Result<bool> {
        self.change_entry(key, |entry| session::mark_resume_pending(entry, reason, local_time(now)))
    }

    /// `false`: unknown or not marked.
    pub fn clear_resume_pending(&self, key: &SessionKey) -> Result<bool> {
        self.change_entry(key, session::clear_resume_pending)
    }

    /// Makes the next message start a new session. `false`: unknown.
    pub fn suspend_session(&self, key: &SessionKey) -> Result<bool> {
        self.change_entry(key, session::suspend)
    }

    /// Called after a crash. Returns the number of changed entries.
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
        // Local times are ambiguous for an hour at the end of daylight saving.
        let mut entries = self.entries_since(now.before(window + DAYLIGHT_SAVING), usize::MAX)?;
        let before = entries.clone();
        let changed = session::suspend_recently_active(&mut entries, mode, window, local_time(now));
        let differing = entries.iter().zip(&before).filter(|(after, before)| after != before);
        differing.map(|(after, _)| after).try_for_each(|entry| self.put_entry(entry))?;
        Ok(changed)
    }

    /// Deletes entries not used since `before`, at most one batch, except suspended ones and those with work. Their sessions
    /// stay.
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

    pub(crate) fn add_usage(&self, key: &SessionKey, id: &SessionId, record: UsageRecord) -> Result<()> {
        self.add_session_usage(id, record.tokens)?;
        self.change_entry(key, |entry| entry.is_some_and(|entry| add_to_entry(entry, id, record)))?;
        Ok(())
    }

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

/// Adds usage to the entry if it is still bound to this session; other sessions have their own counters.
fn add_to_entry(entry: &mut Entry, id: &SessionId, record: UsageRecord) -> bool {
    if entry.session_id != *id {
        return false;
    }
    let usage = record.tokens;
    entry.input_tokens = entry.input_tokens.saturating_add(usage.input);
    entry.output_tokens = entry.output_tokens.saturating_add(usage.output);
    entry.cache_read_tokens = entry.cache_read_tokens.saturating_add(usage.cache_read);
    entry.cache_write_tokens = entry.cache_write_tokens.saturating_add(usage.cache_write);
    entry.total_tokens = entry.total_tokens.saturating_add(usage.total());
    if let Some(prompt) = record.prompt {
        entry.last_prompt_tokens = prompt;
    }
    if let Some(cost) = record.micro_usd {
        entry.add_cost(cost);
    }
    true
}
