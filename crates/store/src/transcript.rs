//! Transcripts: appended to, never rewritten. What undo and compaction hide from the model is kept.

use petasos_core::compaction::{Pace, Relief, Replaced};
use petasos_core::ids::RowId;
use petasos_core::transcript::{EMPTIED, EffectState, Message, Picture, Role};
use petasos_core::{Millis, SessionId, SessionKey};
use rusqlite::{OptionalExtension, Row, params};

use crate::error::{Error, Result};
use crate::group::{Reads, Tx};
use crate::value::{at, json, parse, rows, text_at, text_or_none, time_at};

/// How much of the first thing said becomes the title.
const TITLE_CHARS: usize = 80;

/// In the order `said` reads them: by position, because a long history asks for every name again in every row.
const COLUMNS: &str = "id, role, content, tool_calls, tool_call_id, tool_name, effect, platform_message_id, \
                       state, at, pictures";
/// What a model sees, in its order. Word for word the condition and the expression of the index.
const SEEN: &str = "state IN ('active', 'emptied') AND role <> 'session_meta'";
const ORDER: &str = "coalesce(place, id)";

/// One stored row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    pub id: RowId,
    pub message: Message,
    pub state: RowState,
}

impl Said {
    pub fn is_undone(&self) -> bool {
        self.state == RowState::Undone
    }
}

/// What the model sees of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowState {
    Active,
    /// A tool result without its text.
    Emptied,
    /// Nothing: its author took it back.
    Undone,
    /// Nothing: a summary stands for it.
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

/// What an undo took back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undone {
    /// How many there were to take back, at most as many as asked for.
    pub exchanges: usize,
    pub rows: usize,
    /// The text of the earliest user row taken back.
    pub text: String,
    /// Its pictures.
    pub pictures: Vec<Picture>,
}

/// A user row.
struct Asked {
    id: i64,
    text: String,
    pictures: Vec<Picture>,
}

impl Reads {
    /// The last `limit` rows that a model may see, in order.
    pub fn history(&self, session: &SessionId, limit: usize) -> Result<Vec<Said>> {
        let mut read = self.sql(&format!(
            "SELECT {COLUMNS} FROM messages WHERE session = ?1 AND {SEEN} ORDER BY {ORDER} DESC LIMIT ?2"
        ))?;
        let mut seen = in_order(read.query_and_then(params![session.as_str(), rows(limit)], said)?)?;
        for row in seen.iter_mut().filter(|row| row.state == RowState::Emptied) {
            EMPTIED.clone_into(&mut row.message.content);
        }
        Ok(seen)
    }

    /// How making room in a transcript went so far.
    pub fn pace(&self, session: &SessionId) -> Result<Pace> {
        let mut read = self.sql("SELECT pace FROM sessions WHERE id = ?1 AND pace IS NOT NULL")?;
        let stored = read.query_and_then([session.as_str()], |row| parse(text_at(row, 0)?, "pace"))?.next();
        Ok(stored.transpose()?.unwrap_or_default())
    }

    /// Everything after a row, notices and undone rows included: what a view needs to catch up.
    pub fn rows_after(&self, session: &SessionId, after: RowId, limit: usize) -> Result<Vec<Said>> {
        let mut read = self.sql(&format!(
            "SELECT {COLUMNS} FROM messages WHERE session = ?1 AND id > ?2 ORDER BY id LIMIT ?3"
        ))?;
        read.query_and_then(params![session.as_str(), after.0, rows(limit)], said)?.collect()
    }

    /// The last `limit` rows of everything, in order: what a view opens with.
    pub fn rows_last(&self, session: &SessionId, limit: usize) -> Result<Vec<Said>> {
        let mut read = self
            .sql(&format!("SELECT {COLUMNS} FROM messages WHERE session = ?1 ORDER BY id DESC LIMIT ?2"))?;
        in_order(read.query_and_then(params![session.as_str(), rows(limit)], said)?)
    }

    /// The newest row of a transcript.
    pub fn last_row(&self, session: &SessionId) -> Result<Option<RowId>> {
        let mut read = self.sql("SELECT max(id) FROM messages WHERE session = ?1")?;
        let newest: Option<i64> = read.query_row([session.as_str()], |row| row.get(0))?;
        Ok(newest.map(RowId))
    }

    /// What the user said last, for `/retry`.
    pub fn last_user_text(&self, session: &SessionId) -> Result<Option<String>> {
        Ok(self.nth_last_user(session, 1)?.map(|asked| asked.text))
    }

    fn nth_last_user(&self, session: &SessionId, n: usize) -> Result<Option<Asked>> {
        let mut read = self.sql(
            "SELECT id, content, pictures FROM messages WHERE session = ?1 AND state = 'active' AND role = 'user'
             ORDER BY id DESC LIMIT 1 OFFSET ?2",
        )?;
        let mut found = read.query(params![session.as_str(), rows(n.saturating_sub(1))])?;
        let Some(row) = found.next()? else { return Ok(None) };
        Ok(Some(Asked { id: row.get(0)?, text: row.get(1)?, pictures: pictures(row, 2)? }))
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

    /// Puts what a transcript says, up to a row, into another one that is still empty. Gives how many rows.
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
            .execute(params![to.as_str(), rows(copied)])?;
        Ok(copied)
    }

    /// Hides the last `exchanges` user rows and everything after them. `None`: there are not that many.
    pub fn undo(&self, session: &SessionId, exchanges: usize) -> Result<Option<Undone>> {
        let mut asked = self
            .sql("SELECT count(*) FROM messages WHERE session = ?1 AND state = 'active' AND role = 'user'")?;
        let there: i64 = asked.query_row([session.as_str()], |row| row.get(0))?;
        let exchanges = exchanges.max(1).min(usize::try_from(there).unwrap_or_default());
        let Some(Asked { id, text, pictures }) = self.nth_last_user(session, exchanges)? else {
            return Ok(None);
        };
        // What the gateway said stays: it was not part of the exchange.
        let rows = self
            .sql(&format!(
                "UPDATE messages SET state = 'undone' WHERE session = ?1 AND {ORDER} >= ?2 AND {SEEN}"
            ))?
            .execute(params![session.as_str(), id])?;
        self.sql("UPDATE sessions SET message_count = max(0, message_count - ?2) WHERE id = ?1")?
            .execute(params![session.as_str(), i64::try_from(rows).unwrap_or(i64::MAX)])?;
        Ok(Some(Undone { exchanges, rows, text, pictures }))
    }

    /// Hides rows from the model, puts the summary in their place and notes how it went.
    pub(crate) fn relieve(
        &self,
        key: &SessionKey,
        session: &SessionId,
        relief: &Relief,
        now: Millis,
    ) -> Result<()> {
        for id in &relief.emptied {
            self.sql(
                "UPDATE messages SET state = 'emptied' WHERE id = ?1 AND session = ?2 AND state = 'active'
                     AND role = 'tool'",
            )?
            .execute(params![id.0, session.as_str()])?;
        }
        if let Some(replaced) = &relief.replaced {
            self.replace(session, replaced, now)?;
        }
        if let Some(tokens) = relief.prompt {
            self.put_prompt_size(key, session, tokens)?;
        }
        self.sql("UPDATE sessions SET pace = ?2 WHERE id = ?1")?
            .execute(params![session.as_str(), json(&relief.pace)?])?;
        Ok(())
    }

    fn replace(&self, session: &SessionId, replaced: &Replaced, now: Millis) -> Result<()> {
        let Replaced { through, keep, place, summary } = replaced;
        self.sql(&format!(
            "UPDATE messages SET state = 'compacted' WHERE session = ?1 AND {ORDER} <= ?2 AND {SEEN}
                 AND id NOT IN (SELECT value FROM json_each(?3))"
        ))?
        .execute(params![session.as_str(), through.0, json(keep)?])?;
        // As old as what it stands for: rows stay in the order of time.
        let mut age = self.sql("SELECT at FROM messages WHERE id = ?1")?;
        let then: Option<i64> = age.query_row([place.0], |row| row.get(0)).optional()?;
        self.sql(
            "INSERT INTO messages (session, role, content, place, at) VALUES (?1, 'summary', ?2, ?3, ?4)",
        )?
        .execute(params![session.as_str(), summary, place.0, then.unwrap_or_else(|| at(now))])?;
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

/// The first line that says something, cut at a character.
fn title(text: &str) -> Option<String> {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    let mut cut: String = line.chars().take(TITLE_CHARS).collect();
    if cut.len() < line.len() {
        cut.push('…');
    }
    Some(cut)
}

/// The last rows are found newest first.
fn in_order(newest_first: impl Iterator<Item = Result<Said>>) -> Result<Vec<Said>> {
    let mut rows: Vec<Said> = newest_first.collect::<Result<_>>()?;
    rows.reverse();
    Ok(rows)
}

fn said(row: &Row<'_>) -> Result<Said> {
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
    Ok(Said { id: RowId(row.get(0)?), message, state: RowState::parse(text_at(row, 8)?)? })
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
