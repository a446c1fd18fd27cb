//! Transcripts: append-only. Rows hidden from the model by undo or compaction are kept.

use petasos_core::compaction::{Compaction, CompactionThrottle, ReplacedRows};
use petasos_core::ids::RowId;
use petasos_core::transcript::{CLEARED_TOOL_OUTPUT, EffectState, Message, Picture, Role};
use petasos_core::{Millis, SessionId, SessionKey};
use rusqlite::{OptionalExtension, Row, params};

use crate::connection::{Reads, Tx};
use crate::error::{Error, Result};
use crate::value::{at, json, parse, sql_limit, text_at, text_or_none, time_at};

/// Characters of the first user message used as title.
const TITLE_CHARS: usize = 80;

/// In the order `transcript_row` reads them: by position, because lookup by name is slow in a long history.
const COLUMNS: &str = "id, role, content, tool_calls, tool_call_id, tool_name, effect, platform_message_id, \
                       state, at, pictures";
/// Rows visible to the model. Must match the condition and expression of the index word for word.
const VISIBLE: &str = "state IN ('active', 'emptied') AND role <> 'session_meta'";
const ORDER: &str = "coalesce(place, id)";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranscriptRow {
    pub id: RowId,
    pub message: Message,
    pub state: RowState,
}

impl TranscriptRow {
    pub fn is_undone(&self) -> bool {
        self.state == RowState::Undone
    }
}

/// Visibility of a row to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowState {
    Active,
    /// Visible without its text: an old tool result.
    Emptied,
    /// Hidden by `/undo`.
    Undone,
    /// Replaced by a summary.
    Compacted,
}

impl RowState {
    const ALL: [Self; 4] = [Self::Active, Self::Emptied, Self::Undone, Self::Compacted];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Emptied => "emptied",
            Self::Undone => "undone",
            Self::Compacted => "compacted",
        }
    }

    fn parse(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name).ok_or(Error::Unreadable("row state"))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndoResult {
    /// Number of undone exchanges, at most the requested number.
    pub exchanges: usize,
    pub rows: usize,
    /// Text of the earliest undone user row.
    pub text: String,
    pub pictures: Vec<Picture>,
}

struct UserRow {
    id: i64,
    text: String,
    pictures: Vec<Picture>,
}

impl Reads {
    /// The last `limit` rows visible to the model, in order.
    pub fn history(&self, session: &SessionId, limit: usize) -> Result<Vec<TranscriptRow>> {
        let mut read = self.sql(&format!(
            "SELECT {COLUMNS} FROM messages WHERE session = ?1 AND {VISIBLE} ORDER BY {ORDER} DESC LIMIT ?2"
        ))?;
        let mut seen =
            in_order(read.query_and_then(params![session.as_str(), sql_limit(limit)], transcript_row)?)?;
        for row in seen.iter_mut().filter(|row| row.state == RowState::Emptied) {
            CLEARED_TOOL_OUTPUT.clone_into(&mut row.message.content);
        }
        Ok(seen)
    }

    pub fn pace(&self, session: &SessionId) -> Result<CompactionThrottle> {
        let mut read = self.sql("SELECT pace FROM sessions WHERE id = ?1 AND pace IS NOT NULL")?;
        let stored = read.query_and_then([session.as_str()], |row| parse(text_at(row, 0)?, "pace"))?.next();
        Ok(stored.transpose()?.unwrap_or_default())
    }

    /// All rows after a row, including notices and undone rows, for a view that catches up.
    pub fn rows_after(&self, session: &SessionId, after: RowId, limit: usize) -> Result<Vec<TranscriptRow>> {
        let mut read = self.sql(&format!(
            "SELECT {COLUMNS} FROM messages WHERE session = ?1 AND id > ?2 ORDER BY id LIMIT ?3"
        ))?;
        read.query_and_then(params![session.as_str(), after.0, sql_limit(limit)], transcript_row)?.collect()
    }

    /// The last `limit` rows of any state, in order, for a new view.
    pub fn rows_last(&self, session: &SessionId, limit: usize) -> Result<Vec<TranscriptRow>> {
        let mut read = self
            .sql(&format!("SELECT {COLUMNS} FROM messages WHERE session = ?1 ORDER BY id DESC LIMIT ?2"))?;
        in_order(read.query_and_then(params![session.as_str(), sql_limit(limit)], transcript_row)?)
    }

    pub fn last_row(&self, session: &SessionId) -> Result<Option<RowId>> {
        let mut read = self.sql("SELECT max(id) FROM messages WHERE session = ?1")?;
        let newest: Option<i64> = read.query_row([session.as_str()], |row| row.get(0))?;
        Ok(newest.map(RowId))
    }

    fn nth_last_user(&self, session: &SessionId, n: usize) -> Result<Option<UserRow>> {
        let mut read = self.sql(
            "SELECT id, content, pictures FROM messages WHERE session = ?1 AND state = 'active' AND role = 'user'
             ORDER BY id DESC LIMIT 1 OFFSET ?2",
        )?;
        let mut found = read.query(params![session.as_str(), sql_limit(n.saturating_sub(1))])?;
        let Some(row) = found.next()? else { return Ok(None) };
        Ok(Some(UserRow { id: row.get(0)?, text: row.get(1)?, pictures: pictures(row, 2)? }))
    }
}

impl Tx<'_> {
    pub fn append(&self, session: &SessionId, message: &Message) -> Result<RowId> {
        let calls = if message.tool_calls.is_empty() { None } else { Some(json(&message.tool_calls)?) };
        let pictures = if message.pictures.is_empty() { None } else { Some(json(&message.pictures)?) };
        let id = self
            .sql(
                "INSERT INTO messages (session, role, content, tool_calls, tool_call_id, tool_name, effect,
                     platform_message_id, at, pictures)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            )?
            .insert(params![
                session.as_str(),
                message.role.as_str(),
                message.content,
                calls,
                message.tool_call_id,
                message.tool_name,
                message.effect.map(effect_name),
                message.platform_message_id,
                at(message.at),
                pictures,
            ])?;
        self.count_message(session, message)?;
        Ok(RowId(id))
    }

    /// Copies the rows up to `through` into an empty session. Returns the number of rows.
    pub fn copy_rows(&self, from: &SessionId, to: &SessionId, through: RowId) -> Result<usize> {
        let copied = self
            .sql(
                "INSERT INTO messages (session, role, content, tool_calls, tool_call_id, tool_name, effect,
                     platform_message_id, state, at, pictures)
                 SELECT ?2, role, content, tool_calls, tool_call_id, tool_name, effect, platform_message_id,
                     CASE state WHEN 'undone' THEN 'undone' ELSE 'active' END, at, pictures
                 FROM messages WHERE session = ?1 AND id <= ?3 AND role NOT IN ('summary', 'session_meta') ORDER BY id",
            )?
            .execute(params![from.as_str(), to.as_str(), through.0])?;
        self.sql("UPDATE sessions SET message_count = message_count + ?2 WHERE id = ?1")?
            .execute(params![to.as_str(), sql_limit(copied)])?;
        Ok(copied)
    }

    /// Hides the last `exchanges` user rows and everything after them. `None`: there is no user row.
    pub fn undo(&self, session: &SessionId, exchanges: usize) -> Result<Option<UndoResult>> {
        let mut user_rows = self
            .sql("SELECT count(*) FROM messages WHERE session = ?1 AND state = 'active' AND role = 'user'")?;
        let there: i64 = user_rows.query_row([session.as_str()], |row| row.get(0))?;
        let exchanges = exchanges.max(1).min(usize::try_from(there).unwrap_or_default());
        let Some(UserRow { id, text, pictures }) = self.nth_last_user(session, exchanges)? else {
            return Ok(None);
        };
        // Notices stay: they are not part of the exchange.
        let rows = self
            .sql(&format!(
                "UPDATE messages SET state = 'undone' WHERE session = ?1 AND {ORDER} >= ?2 AND {VISIBLE}"
            ))?
            .execute(params![session.as_str(), id])?;
        self.sql("UPDATE sessions SET message_count = max(0, message_count - ?2) WHERE id = ?1")?
            .execute(params![session.as_str(), i64::try_from(rows).unwrap_or(i64::MAX)])?;
        Ok(Some(UndoResult { exchanges, rows, text, pictures }))
    }

    /// Hides rows from the model, inserts their summary and stores the throttle.
    pub(crate) fn compact_transcript(
        &self,
        key: &SessionKey,
        session: &SessionId,
        compaction: &Compaction,
        now: Millis,
    ) -> Result<()> {
        for id in &compaction.emptied {
            self.sql(
                "UPDATE messages SET state = 'emptied' WHERE id = ?1 AND session = ?2 AND state = 'active'
                     AND role = 'tool'",
            )?
            .execute(params![id.0, session.as_str()])?;
        }
        if let Some(replaced) = &compaction.replaced {
            self.insert_summary(session, replaced, now)?;
        }
        if let Some(tokens) = compaction.prompt {
            self.put_prompt_size(key, session, tokens)?;
        }
        self.sql("UPDATE sessions SET pace = ?2 WHERE id = ?1")?
            .execute(params![session.as_str(), json(&compaction.throttle)?])?;
        Ok(())
    }

    fn insert_summary(&self, session: &SessionId, replaced: &ReplacedRows, now: Millis) -> Result<()> {
        let ReplacedRows { through, keep, position, summary } = replaced;
        self.sql(&format!(
            "UPDATE messages SET state = 'compacted' WHERE session = ?1 AND {ORDER} <= ?2 AND {VISIBLE}
                 AND id NOT IN (SELECT value FROM json_each(?3))"
        ))?
        .execute(params![session.as_str(), through.0, json(keep)?])?;
        // Uses the time of the replaced row, to keep rows ordered by time.
        let mut age = self.sql("SELECT at FROM messages WHERE id = ?1")?;
        let then: Option<i64> = age.query_row([position.0], |row| row.get(0)).optional()?;
        self.sql(
            "INSERT INTO messages (session, role, content, place, at) VALUES (?1, 'summary', ?2, ?3, ?4)",
        )?
        .execute(params![session.as_str(), summary, position.0, then.unwrap_or_else(|| at(now))])?;
        Ok(())
    }

    fn count_message(&self, session: &SessionId, message: &Message) -> Result<()> {
        let title = (message.role == Role::User).then(|| title(&message.content)).flatten();
        self.sql(
            "UPDATE sessions SET message_count = message_count + ?2, last_at = max(last_at, ?3),
                 title = coalesce(title, ?4) WHERE id = ?1",
        )?
        .execute(params![
            session.as_str(),
            i64::from(!matches!(message.role, Role::Notice | Role::Summary)),
            at(message.at),
            title
        ])?;
        Ok(())
    }
}

/// First non-empty line, truncated at a character boundary.
fn title(text: &str) -> Option<String> {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    let mut cut: String = line.chars().take(TITLE_CHARS).collect();
    if cut.len() < line.len() {
        cut.push('…');
    }
    Some(cut)
}

fn in_order(newest_first: impl Iterator<Item = Result<TranscriptRow>>) -> Result<Vec<TranscriptRow>> {
    let mut rows: Vec<TranscriptRow> = newest_first.collect::<Result<_>>()?;
    rows.reverse();
    Ok(rows)
}

fn transcript_row(row: &Row<'_>) -> Result<TranscriptRow> {
    let calls = text_or_none(row, 3)?;
    let message = Message {
        role: Role::parse(text_at(row, 1)?).ok_or(Error::Unreadable("role"))?,
        content: row.get(2)?,
        tool_calls: calls.map_or(Ok(Vec::new()), |text| parse(text, "tool call list"))?,
        tool_call_id: row.get(4)?,
        tool_name: row.get(5)?,
        effect: text_or_none(row, 6)?.map(effect_from).transpose()?,
        platform_message_id: row.get(7)?,
        at: time_at(row, 9)?,
        pictures: pictures(row, 10)?,
    };
    Ok(TranscriptRow { id: RowId(row.get(0)?), message, state: RowState::parse(text_at(row, 8)?)? })
}

const fn effect_name(effect: EffectState) -> &'static str {
    match effect {
        EffectState::Known => "known",
        EffectState::Unknown => "unknown",
        EffectState::Cancelled => "cancelled",
    }
}

fn effect_from(name: &str) -> Result<EffectState> {
    [EffectState::Known, EffectState::Unknown, EffectState::Cancelled]
        .into_iter()
        .find(|effect| effect_name(*effect) == name)
        .ok_or(Error::Unreadable("effect"))
}

fn pictures(row: &Row<'_>, column: usize) -> Result<Vec<Picture>> {
    text_or_none(row, column)?.map_or(Ok(Vec::new()), |text| parse(text, "picture list"))
}
