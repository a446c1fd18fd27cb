//! Archives: export of old sessions to files, removal, and restore.
//!
//! Order: the caller exports the rows, then syncs and verifies the file; one transaction deletes the session and routing
//! rows and records the archive; the messages are deleted in batches, or at once if the session id is reused. A crash
//! leaves either the whole session or the archive. Rows are exported as JSON objects by column, so that later schemas can
//! read an archive.

use std::borrow::Cow;
use std::collections::BTreeSet;

use petasos_core::{Millis, SessionId, SessionKey};
use rusqlite::types::{Value as SqlValue, ValueRef};
use rusqlite::{OptionalExtension, Row, params, params_from_iter};
use serde_json::{Map, Number, Value, json};

use crate::connection::{Reads, Tx};
use crate::error::{Error, Result};
use crate::maintenance::retention::{BATCH, Pruned};
use crate::sessions::ACCIDENTAL_ENDS;
use crate::value::{at, count, json as to_json, sql_limit, time_at};

/// Format marker and version of an archive.
const FORMAT: &str = "petasos_archive";
const VERSION: u64 = 1;

/// Archives kept in the list. Older files remain, and are restored by path.
const MAX_LISTED: i64 = 5000;

/// Tables with rows of a session and their session column, in the order of an archive.
const TABLES: [(&str, &str); 3] = [("sessions", "id"), ("todos", "session"), ("messages", "session")];

/// Which sessions may be archived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchiveRule {
    /// Not used since then.
    Since(Millis),
    /// Ended or unbound, and not used since then.
    UnboundSince(Millis),
}

impl ArchiveRule {
    /// SQL condition; ?1 is the returned time.
    fn condition(self) -> (String, i64) {
        match self {
            Self::Since(before) => (CLOSED.to_owned(), at(before)),
            Self::UnboundSince(before) => (
                format!(
                    "{CLOSED} AND (s.ended_at IS NOT NULL AND s.end_reason NOT IN {ACCIDENTAL_ENDS}
                        OR NOT EXISTS (SELECT 1 FROM routing r WHERE r.session = s.id))"
                ),
                at(before),
            ),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveCandidate {
    pub id: SessionId,
    pub key: SessionKey,
    pub title: Option<String>,
    pub last_at: Millis,
    pub messages: u64,
    /// Newest row. A later one means that the session was used again.
    newest: Option<i64>,
    rule: ArchiveRule,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archive {
    pub id: SessionId,
    pub key: SessionKey,
    pub title: Option<String>,
    pub messages: u64,
    pub last_at: Millis,
    /// File name in the archive folder; `None`: deleted without a file.
    pub file: Option<String>,
    pub bytes: u64,
    pub archived_at: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoreOutcome {
    Done {
        id: SessionId,
        messages: u64,
    },
    /// The session is still in the database.
    Present(SessionId),
    Unreadable,
}

const COLUMNS: &str = "session, session_key, title, messages, last_at, file, bytes, archived_at";

/// No work in progress, and not used since ?1.
const CLOSED: &str = "
    s.last_at < ?1
    AND NOT EXISTS (SELECT 1 FROM routing r WHERE r.session = s.id AND (r.updated_at >= ?1 OR r.pending = 1))
    AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.ended_at IS NULL AND t.session_key = s.session_key)
    AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.state <> 'settled' AND i.session_key = s.session_key)
    AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.state <> 'done' AND o.state <> 'dead'
        AND o.session_key = s.session_key)
    AND NOT EXISTS (SELECT 1 FROM processes p WHERE p.ended_at IS NULL AND p.session_key = s.session_key)
    AND NOT EXISTS (SELECT 1 FROM delegations d WHERE d.ended_at IS NULL AND d.session_key = s.session_key)
    AND NOT EXISTS (SELECT 1 FROM completions c WHERE c.state <> 'consumed' AND c.state <> 'undeliverable'
        AND c.session_key = s.session_key)
    AND NOT EXISTS (SELECT 1 FROM questions q WHERE q.ended_at IS NULL AND q.session_key = s.session_key)
    AND NOT EXISTS (SELECT 1 FROM runs u WHERE u.session = s.id AND u.ended_at IS NULL)
    AND NOT EXISTS (SELECT 1 FROM jobs j JOIN routing r ON r.session = s.id
        WHERE CASE WHEN json_valid(j.job)
            THEN j.job ->> '$.origin.platform' = r.platform AND j.job ->> '$.origin.chat_id' = r.chat END)";

impl Reads {
    /// Least recently used session that the rule allows.
    pub fn archivable(&self, rule: ArchiveRule) -> Result<Option<ArchiveCandidate>> {
        let (condition, before) = rule.condition();
        let mut read = self.sql(&format!(
            "SELECT s.id, s.session_key, s.title, s.last_at FROM sessions s WHERE {condition}
             ORDER BY s.last_at LIMIT 1"
        ))?;
        let found = read.query_and_then([before], |row| {
            let id = SessionId(row.get(0)?);
            let key = SessionKey(row.get(1)?);
            let title = row.get_ref(2)?.as_bytes_or_null().ok().flatten();
            let title = title.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            Ok::<_, Error>((id, key, title, time_at(row, "last_at")?))
        })?;
        let Some((id, key, title, last_at)) = found.into_iter().next().transpose()? else { return Ok(None) };
        let (messages, newest) = self.extent(&id)?;
        Ok(Some(ArchiveCandidate { id, key, title, last_at, messages, newest, rule }))
    }

    /// Exports every row as a line of JSON, after a header line. Text that is not UTF-8 is replaced and its line marked
    /// `lossy`. Returns the number of lossy lines.
    pub fn export(&self, it: &ArchiveCandidate, mut line: impl FnMut(&str) -> Result<()>) -> Result<usize> {
        let first: Option<i64> = self
            .sql("SELECT min(id) FROM messages WHERE session = ?1")?
            .query_row([it.id.as_str()], |row| row.get(0))?;
        let head = json!({
            FORMAT: VERSION, "session": it.id, "session_key": it.key, "title": it.title,
            "messages": it.messages, "first_row": first, "last_row": it.newest,
        });
        line(&head.to_string())?;
        let mut lossy = 0;
        for (table, column) in TABLES {
            let order = if table == "messages" { "ORDER BY id" } else { "" };
            let mut read = self.sql(&format!("SELECT * FROM {table} WHERE {column} = ?1 {order}"))?;
            let names: Vec<String> = read.column_names().into_iter().map(str::to_owned).collect();
            let mut found = read.query([it.id.as_str()])?;
            while let Some(row) = found.next()? {
                let (row, is_exact) = row_object(&names, row)?;
                let mut object = json!({ "table": table, "row": row });
                if !is_exact {
                    object["lossy"] = true.into();
                    lossy += 1;
                }
                line(&object.to_string())?;
            }
        }
        Ok(lossy)
    }

    pub fn archives(&self, limit: usize) -> Result<Vec<Archive>> {
        let mut read = self.sql(&format!(
            "SELECT {COLUMNS} FROM archives WHERE file IS NOT NULL ORDER BY archived_at DESC LIMIT ?1"
        ))?;
        read.query_and_then([sql_limit(limit)], archive)?.collect()
    }

    pub fn archive_of(&self, id: &SessionId) -> Result<Option<Archive>> {
        let mut read =
            self.sql(&format!("SELECT {COLUMNS} FROM archives WHERE session = ?1 AND file IS NOT NULL"))?;
        read.query_and_then([id.as_str()], archive)?.next().transpose()
    }

    pub fn archive_of_chat(&self, key: &SessionKey) -> Result<Option<Archive>> {
        let mut read = self.sql(&format!(
            "SELECT {COLUMNS} FROM archives WHERE session_key = ?1 AND file IS NOT NULL
             ORDER BY archived_at DESC LIMIT 1"
        ))?;
        read.query_and_then([key.as_str()], archive)?.next().transpose()
    }

    fn extent(&self, id: &SessionId) -> Result<(u64, Option<i64>)> {
        let mut read = self.sql("SELECT count(*), max(id) FROM messages WHERE session = ?1")?;
        Ok(read.query_row([id.as_str()], |row| Ok((count(row.get(0)?), row.get(1)?)))?)
    }
}

impl Tx<'_> {
    /// Removes an unchanged, closed session from the database. `file`: name and size of its verified archive; `None` deletes
    /// without an archive. `false`: the session was used meanwhile and stays.
    pub fn archive_session(
        &self,
        it: &ArchiveCandidate,
        file: Option<(&str, u64)>,
        now: Millis,
    ) -> Result<bool> {
        let (condition, before) = it.rule.condition();
        let closed = format!("SELECT 1 FROM sessions s WHERE s.id = ?2 AND {condition}");
        let still = self.sql(&closed)?.exists(params![before, it.id.as_str()])?;
        if !still || self.extent(&it.id)? != (it.messages, it.newest) {
            return Ok(false);
        }
        let (name, bytes) = file.unzip();
        self.sql(
            "INSERT INTO archives (session, session_key, title, messages, last_at, file, bytes, archived_at, last_row)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
             ON CONFLICT (session) DO UPDATE SET messages = excluded.messages, last_at = excluded.last_at,
                 file = excluded.file, bytes = excluded.bytes, archived_at = excluded.archived_at,
                 last_row = excluded.last_row, removing = 1",
        )?
        .execute(params![
            it.id.as_str(),
            it.key.as_str(),
            it.title,
            i64::try_from(it.messages).unwrap_or(i64::MAX),
            at(it.last_at),
            name,
            bytes.and_then(|bytes| i64::try_from(bytes).ok()).unwrap_or_default(),
            at(now),
            it.newest.unwrap_or_default(),
        ])?;
        self.sql("DELETE FROM routing WHERE session = ?1")?.execute([it.id.as_str()])?;
        self.sql("DELETE FROM todos WHERE session = ?1")?.execute([it.id.as_str()])?;
        self.sql("DELETE FROM approved WHERE scope = ?1")?.execute([it.id.as_str()])?;
        self.sql("DELETE FROM sessions WHERE id = ?1")?.execute([it.id.as_str()])?;
        self.put_archive_bytes(self.archive_bytes()? + bytes.unwrap_or_default())?;
        Ok(true)
    }

    /// Deletes one batch of messages of archived sessions.
    pub fn remove_archived(&self) -> Result<Pruned> {
        let next: Option<String> = self
            .sql("SELECT session FROM archives WHERE removing = 1 ORDER BY archived_at LIMIT 1")?
            .query_row([], |row| row.get(0))
            .optional()?;
        let Some(session) = next else { return Ok(Pruned::default()) };
        let rows = self.remove_rows(&session, BATCH)?;
        Ok(Pruned { rows, more: true })
    }

    /// Deletes the remaining messages of an archived session before its id is reused.
    pub(crate) fn finish_removal(&self, id: &SessionId) -> Result<()> {
        let is_leaving = "SELECT 1 FROM archives WHERE session = ?1 AND removing = 1";
        if self.sql(is_leaving)?.exists([id.as_str()])? {
            self.remove_rows(id.as_str(), i64::MAX)?;
        }
        Ok(())
    }

    fn remove_rows(&self, session: &str, limit: i64) -> Result<usize> {
        // Later rows belong to a new session with the same id.
        let rows = self
            .sql(
                "DELETE FROM messages WHERE id IN (
                     SELECT id FROM messages WHERE session = ?1
                     AND id <= (SELECT last_row FROM archives WHERE session = ?1) ORDER BY id LIMIT ?2)",
            )?
            .execute(params![session, limit])?;
        if i64::try_from(rows).is_ok_and(|rows| rows < limit) {
            self.sql("DELETE FROM archives WHERE session = ?1 AND file IS NULL")?.execute([session])?;
            self.sql("UPDATE archives SET removing = 0 WHERE session = ?1")?.execute([session])?;
            self.sql(
                "DELETE FROM archives WHERE removing = 0 AND archived_at <
                     (SELECT archived_at FROM archives ORDER BY archived_at DESC LIMIT 1 OFFSET ?1)",
            )?
            .execute([MAX_LISTED])?;
        }
        Ok(rows)
    }

    /// Call before the files are deleted.
    pub fn delete_archive_rows(&self, files: &[String]) -> Result<()> {
        self.sql("DELETE FROM archives WHERE removing = 0 AND file IN (SELECT value FROM json_each(?1))")?
            .execute([to_json(files)?])?;
        Ok(())
    }

    /// Restores a session. It counts as used now, so that it is not archived again at once.
    pub fn restore(
        &self,
        lines: impl IntoIterator<Item = Result<String>>,
        now: Millis,
    ) -> Result<RestoreOutcome> {
        let mut lines = lines.into_iter();
        let Some(head) = lines.next().transpose()?.and_then(|line| serde_json::from_str::<Value>(&line).ok())
        else {
            return Ok(RestoreOutcome::Unreadable);
        };
        let (Some(VERSION), Some(id)) = (head[FORMAT].as_u64(), head["session"].as_str()) else {
            return Ok(RestoreOutcome::Unreadable);
        };
        let id = SessionId(id.to_owned());
        if self.session(&id)?.is_some() {
            return Ok(RestoreOutcome::Present(id));
        }
        self.finish_removal(&id)?;
        let offset = self.row_offset(&head)?;
        let mut messages = 0;
        for line in lines {
            let line: Value =
                serde_json::from_str(&line?).map_err(|_quotes_text| Error::Unreadable("archive"))?;
            let (Some(table), Some(row)) = (line["table"].as_str(), line["row"].as_object()) else {
                return Err(Error::Unreadable("archive"));
            };
            messages += u64::from(table == "messages");
            self.insert_row(table, row, offset)?;
        }
        if Some(messages) != head["messages"].as_u64() {
            return Err(Error::Unreadable("archive"));
        }
        self.sql("UPDATE sessions SET last_at = ?2 WHERE id = ?1")?.execute(params![id.as_str(), at(now)])?;
        self.sql("DELETE FROM archives WHERE session = ?1")?.execute([id.as_str()])?;
        Ok(RestoreOutcome::Done { id, messages })
    }

    /// Offset that keeps restored row ids apart from existing ones.
    fn row_offset(&self, head: &Value) -> Result<i64> {
        let (Some(first), Some(last)) = (head["first_row"].as_i64(), head["last_row"].as_i64()) else {
            return Ok(0);
        };
        if !self.sql("SELECT 1 FROM messages WHERE id BETWEEN ?1 AND ?2 LIMIT 1")?.exists([first, last])? {
            return Ok(0);
        }
        let newest: Option<i64> =
            self.sql("SELECT max(id) FROM messages")?.query_row([], |row| row.get(0))?;
        Ok(newest.unwrap_or_default() + 1 - first)
    }

    /// Ignores columns that this schema lacks.
    fn insert_row(&self, table: &str, row: &Map<String, Value>, offset: i64) -> Result<()> {
        let Some((table, _)) = TABLES.into_iter().find(|(name, _)| *name == table) else { return Ok(()) };
        let known: BTreeSet<String> = self
            .sql("SELECT name FROM pragma_table_info(?1)")?
            .query_and_then([table], |row| Ok::<_, Error>(row.get(0)?))?
            .collect::<Result<_>>()?;
        let moved = |name: &str, value: &Value| match value.as_i64() {
            Some(number) if table == "messages" && (name == "id" || name == "place") => {
                SqlValue::Integer(number + offset)
            }
            Some(_) | None => to_sql(value),
        };
        let columns: Vec<_> = row.iter().filter(|(name, _)| known.contains(*name)).collect();
        let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        let marks = vec!["?"; names.len()].join(", ");
        let values = columns.iter().map(|(name, value)| moved(name, value));
        self.sql(&format!("INSERT INTO {table} ({}) VALUES ({marks})", names.join(", ")))?
            .execute(params_from_iter(values))?;
        Ok(())
    }
}

fn archive(row: &Row<'_>) -> Result<Archive> {
    Ok(Archive {
        id: SessionId(row.get("session")?),
        key: SessionKey(row.get("session_key")?),
        title: row.get("title")?,
        messages: count(row.get("messages")?),
        last_at: time_at(row, "last_at")?,
        file: row.get("file")?,
        bytes: count(row.get("bytes")?),
        archived_at: time_at(row, "archived_at")?,
    })
}

/// `false`: text that is not UTF-8 was replaced.
fn row_object(names: &[String], row: &Row<'_>) -> Result<(Value, bool)> {
    let mut object = Map::new();
    let mut is_exact = true;
    for (at, name) in names.iter().enumerate() {
        let value = match row.get_ref(at)? {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(number) => number.into(),
            ValueRef::Real(number) => Number::from_f64(number).map_or(Value::Null, Value::Number),
            ValueRef::Text(bytes) => {
                let text = String::from_utf8_lossy(bytes);
                is_exact &= matches!(text, Cow::Borrowed(_));
                text.into()
            }
            ValueRef::Blob(_) => return Err(Error::Unreadable("column of a conversation")),
        };
        object.insert(name.clone(), value);
    }
    Ok((Value::Object(object), is_exact))
}

fn to_sql(value: &Value) -> SqlValue {
    match value {
        Value::Null => SqlValue::Null,
        Value::Bool(flag) => SqlValue::Integer(i64::from(*flag)),
        Value::Number(number) => number
            .as_i64()
            .map_or_else(|| SqlValue::Real(number.as_f64().unwrap_or_default()), SqlValue::Integer),
        Value::String(text) => SqlValue::Text(text.clone()),
        Value::Array(_) | Value::Object(_) => SqlValue::Text(value.to_string()),
    }
}
