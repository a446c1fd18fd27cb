//! The routing table: which transcript a conversation uses, and the flags that go with it. Single rows
//! are written, never the whole table. What is decided about an entry is decided in `petasos_core::session`.

use std::time::Duration;

use petasos_core::session::{self, CrashRecovery, Entry, ResumeReason};
use petasos_core::transcript::Bill;
use petasos_core::{Millis, SessionId, SessionKey};
use rusqlite::{OptionalExtension, Row, params};

use crate::clock::{local_time, unix_time};
use crate::error::Result;
use crate::group::{Reads, Tx};
use crate::value::{at, json, legible, parse};

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

    /// Every entry that can be read, the latest used first.
    pub fn entries(&self) -> Result<Vec<Entry>> {
        self.entries_where("SELECT entry FROM routing ORDER BY updated_at DESC")
    }

    /// Entries whose interrupted turn waits to be continued.
    pub fn pending_resumes(&self) -> Result<Vec<Entry>> {
        self.entries_where(
            "SELECT entry FROM routing
             WHERE CASE WHEN json_valid(entry) THEN entry ->> 'resume_pending' AND NOT entry ->> 'suspended' END
             ORDER BY updated_at DESC",
        )
    }

    /// One after the other, by key: there may be many.
    pub fn each_entry(&self, mut visit: impl FnMut(Entry) -> Result<()>) -> Result<()> {
        let mut read = self.sql("SELECT entry FROM routing ORDER BY session_key")?;
        read.query_and_then([], read_entry)?.filter_map(legible).try_for_each(|entry| visit(entry?))
    }

    /// Differs whenever the table does.
    pub fn routing_state(&self) -> Result<RoutingState> {
        let mut read = self.sql("SELECT max(updated_at), count(*), sum(length(entry)) FROM routing")?;
        let state = |row: &Row<'_>| {
            Ok(RoutingState { latest: row.get(0)?, entries: row.get(1)?, bytes: row.get(2)? })
        };
        Ok(read.query_row([], state)?)
    }

    fn entries_where(&self, select: &str) -> Result<Vec<Entry>> {
        let mut read = self.sql(select)?;
        read.query_and_then([], read_entry)?.filter_map(legible).collect()
    }
}

fn read_entry(row: &Row<'_>) -> Result<Entry> {
    parse(row.get_ref(0)?.as_str().unwrap_or_default(), "session entry")
}

impl Tx<'_> {
    /// Ends conversations whose reset is due, so that nothing of them waits for the next message. Gives how many.
    pub fn finalize_expired(&self, policies: &session::Policies, now: Millis) -> Result<usize> {
        let local = local_time(now);
        let due = |entry: &Entry| {
            let policy = policies.lookup(entry.platform, entry.chat_type);
            !entry.expiry_finalized && policy.due(entry.updated_at, local).is_some()
        };
        let mut expired = Vec::new();
        self.each_entry(|entry| {
            expired.extend(Some(entry).filter(due));
            Ok(())
        })?;
        for entry in &expired {
            self.end_session(&entry.session_id, "session_reset", now)?;
            self.put_entry(&Entry { expiry_finalized: true, ..entry.clone() })?;
        }
        Ok(expired.len())
    }

    pub fn put_entry(&self, entry: &Entry) -> Result<()> {
        self.sql(
            "INSERT INTO routing (session_key, session, entry, updated_at) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (session_key) DO UPDATE
             SET session = excluded.session, entry = excluded.entry, updated_at = excluded.updated_at",
        )?
        .execute(params![
            entry.session_key.as_str(),
            entry.session_id.as_str(),
            json(entry)?,
            at(unix_time(entry.updated_at))
        ])?;
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
        let mut entries = self.entries()?;
        let before = entries.clone();
        let changed = session::suspend_recently_active(&mut entries, mode, window, local_time(now));
        let differing = entries.iter().zip(&before).filter(|(after, before)| after != before);
        differing.map(|(after, _)| after).try_for_each(|entry| self.put_entry(entry))?;
        Ok(changed)
    }

    /// Drops entries not used since `before`, except suspended ones, those with work, and those in `keep`.
    /// Their transcripts stay.
    pub fn prune_entries(&self, before: Millis, keep: &[SessionKey]) -> Result<usize> {
        let mut prune = self.sql(
            "DELETE FROM routing
             WHERE updated_at < ?1 AND CASE WHEN json_valid(entry) THEN NOT entry ->> 'suspended' ELSE 1 END
                 AND session_key NOT IN (SELECT value FROM json_each(?2))
                 AND session_key NOT IN (SELECT session_key FROM turns WHERE ended_at IS NULL)
                 AND session_key NOT IN (SELECT session_key FROM inbox WHERE state <> 'settled')",
        )?;
        Ok(prune.execute(params![at(before), json(keep)?])?)
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
