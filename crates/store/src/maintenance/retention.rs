//! Retention: deletes old rows that have an outcome, and no others.

use std::time::Duration;

use petasos_core::Millis;
use rusqlite::params;

use crate::connection::Tx;
use crate::error::Result;
use crate::value::at;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Rows deleted from one table per call, to keep commits short.
pub(crate) const BATCH: i64 = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pruned {
    pub rows: usize,
    /// Another call is needed.
    pub more: bool,
}

/// Age in days, and a statement with the age limit as ?1 and the batch size as ?2.
const RULES: &[(u32, &str)] = &[
    (7, "DELETE FROM inbox WHERE id IN (
             SELECT id FROM inbox WHERE state = 'settled' AND settled_at < ?1 ORDER BY settled_at LIMIT ?2)"),
    (30, "DELETE FROM seen WHERE (platform, dedup) IN (
             SELECT platform, dedup FROM seen WHERE at < ?1
             AND NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.id = seen.inbox)
             AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.id = seen.outbox) ORDER BY at LIMIT ?2)"),
    (7, "DELETE FROM turns WHERE id IN (
             SELECT id FROM turns WHERE ended_at < ?1
             AND NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.id = turns.id) ORDER BY ended_at LIMIT ?2)"),
    (7, "DELETE FROM outbox WHERE id IN (
             SELECT id FROM outbox WHERE state = 'done' AND ended_at < ?1 ORDER BY ended_at LIMIT ?2)"),
    (30, "DELETE FROM outbox WHERE id IN (
             SELECT id FROM outbox WHERE state = 'dead' AND ended_at < ?1 ORDER BY ended_at LIMIT ?2)"),
    // Losing one costs a refused send.
    (365, "DELETE FROM dead_chats WHERE (platform, chat) IN (
             SELECT platform, chat FROM dead_chats WHERE marked_at < ?1 ORDER BY marked_at LIMIT ?2)"),
    (7, "DELETE FROM completions WHERE id IN (
             SELECT id FROM completions WHERE state IN ('consumed', 'undeliverable') AND consumed_at < ?1 ORDER BY consumed_at LIMIT ?2)"),
    (30, "DELETE FROM unreadable WHERE id IN (SELECT id FROM unreadable WHERE at < ?1 ORDER BY at LIMIT ?2)"),
    (7, "DELETE FROM processes WHERE id IN (
             SELECT id FROM processes WHERE ended_at IS NOT NULL AND ended_at < ?1 ORDER BY ended_at LIMIT ?2)"),
    (30, "DELETE FROM occurrences WHERE (job, due) IN (
             SELECT job, due FROM occurrences WHERE state = 'delivered' AND ended_at < ?1 LIMIT ?2)"),
    (365, "DELETE FROM todos WHERE session IN (SELECT session FROM todos WHERE at < ?1 ORDER BY at LIMIT ?2)"),
    (7, "DELETE FROM questions WHERE number IN (
             SELECT number FROM questions WHERE ended_at IS NOT NULL AND ended_at < ?1 ORDER BY ended_at LIMIT ?2)"),
    (7, "DELETE FROM delegations WHERE id IN (
             SELECT id FROM delegations WHERE ended_at IS NOT NULL AND ended_at < ?1 ORDER BY ended_at LIMIT ?2)"),
    // Losing one costs an approval request.
    (90, "DELETE FROM approved WHERE (scope, category) IN (
             SELECT scope, category FROM approved WHERE +scope <> '' AND at < ?1 ORDER BY at LIMIT ?2)"),
    (30, "DELETE FROM runs WHERE id IN (
             SELECT id FROM runs WHERE ended_at IS NOT NULL AND ended_at < ?1 ORDER BY ended_at LIMIT ?2)"),
    // Sessions without a routing entry.
    (0, "DELETE FROM failures WHERE session_key IN (
             SELECT session_key FROM failures f WHERE NOT EXISTS (SELECT 1 FROM routing r WHERE r.session_key = f.session_key) LIMIT ?2)"),
    (1, "DELETE FROM repeats WHERE (owner, name) IN (SELECT owner, name FROM repeats WHERE at < ?1 LIMIT ?2)"),
    (1, "DELETE FROM logins WHERE token_hash IN (SELECT token_hash FROM logins WHERE expires_at < ?1 LIMIT ?2)"),
    (1, "DELETE FROM login_links WHERE token_hash IN (
             SELECT token_hash FROM login_links WHERE expires_at < ?1 LIMIT ?2)"),
];

/// Signatures are pruned by number, not by age, because they never expire.
const MAX_SIGNATURES: i64 = 250_000;
/// Number of signatures, and the time of the count.
const SIGNATURES_COUNTED: &str = "signatures_counted";

impl Tx<'_> {
    /// One bounded step. Repeat while `more`, each in its own transaction.
    pub fn prune(&self, now: Millis) -> Result<Pruned> {
        let mut pruned = Pruned::default();
        for (days, rule) in RULES {
            let removed = self.sql(rule)?.execute(params![at(now.before(DAY * *days)), BATCH])?;
            pruned.rows += removed;
            pruned.more |= removed >= BATCH as usize;
        }
        let removed = self.prune_signatures(now)?;
        Ok(Pruned { rows: pruned.rows + removed, more: pruned.more || removed >= BATCH as usize })
    }

    /// Counts only the rows added since the last call: counting all of them would block the writer.
    fn prune_signatures(&self, now: Millis) -> Result<usize> {
        let stored = self.meta(SIGNATURES_COUNTED)?;
        let counted = stored.as_deref().and_then(|text| text.split_once(':'));
        let (count, from) = counted
            .and_then(|(count, from)| Some((count.parse().ok()?, from.parse().ok()?)))
            .unwrap_or((0, 0));
        let mut read = self.sql("SELECT count(*) FROM signatures WHERE at >= ?1 AND at < ?2")?;
        let new: i64 = read.query_row([from, at(now)], |row| row.get(0))?;
        let excess = (count + new - MAX_SIGNATURES).clamp(0, BATCH);
        let removed = self
            .sql("DELETE FROM signatures WHERE key IN (SELECT key FROM signatures ORDER BY at LIMIT ?1)")?
            .execute([excess])?;
        let left = count + new - excess;
        if new > 0 || excess > 0 || stored.is_none() {
            self.put_meta(SIGNATURES_COUNTED, &format!("{left}:{}", at(now)))?;
        }
        Ok(removed)
    }
}
