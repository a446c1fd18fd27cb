//! What we owe, lane by lane.
//!
//! Invariants: at most one item for each `(turn, step)`; a lane's items leave in the order of their ids;
//! done items never change. What a crash leaves, and what [`Tx::recover_sending`] makes of it:
//!
//! | state | part in flight | becomes |
//! |---|---|---|
//! | sending | replaces a shown preview (part 0) | due, not doubtful: repeating an edit is harmless |
//! | sending | any other | due, doubtful |
//! | streaming, preview asked | the preview | streaming, doubtful: its turn ends later |
//! | streaming, preview shown | an edit of it | as it was |
//! | due, done, dead | none | as it was |

mod change;
mod list;
mod people;
mod preview;

pub use list::{Head, OutboxCounts};
pub use people::Recovered;
pub use preview::Stagehand;

use petasos_core::outbox::{Draft, Item, Kind, Preview, State};
use petasos_core::{OutboxId, SessionKey, TurnId};
use rusqlite::Row;

use crate::error::{Error, Result};
use crate::value::{parse, time_at};

const COLUMNS: &str = "id, route, session_key, turn, step, kind, text, buttons, state, preview, preview_id, \
                       sent, doubtful, attempts, not_before, created_at, last_error";

fn item(row: &Row<'_>) -> Result<Item> {
    let state: String = row.get("state")?;
    let sent: String = row.get("sent")?;
    Ok(Item {
        id: OutboxId(row.get("id")?),
        draft: draft(row)?,
        state: State::parse(&state).ok_or(Error::Unreadable("outbox state"))?,
        preview: preview(row)?,
        sent: parse(&sent, "receipt list")?,
        doubtful: row.get("doubtful")?,
        attempts: row.get("attempts")?,
        not_before: time_at(row, "not_before")?,
        created_at: time_at(row, "created_at")?,
        last_error: row.get("last_error")?,
    })
}

fn draft(row: &Row<'_>) -> Result<Draft> {
    let route: String = row.get("route")?;
    let buttons: String = row.get("buttons")?;
    let turn: Option<i64> = row.get("turn")?;
    let step: Option<u32> = row.get("step")?;
    let kind: String = row.get("kind")?;
    Ok(Draft {
        route: parse(&route, "route")?,
        session_key: row.get::<_, Option<String>>("session_key")?.map(SessionKey),
        turn: turn.map(TurnId).zip(step),
        kind: kind_from(&kind)?,
        text: row.get("text")?,
        buttons: parse(&buttons, "button list")?,
    })
}

fn preview(row: &Row<'_>) -> Result<Preview> {
    let name: String = row.get("preview")?;
    match (name.as_str(), row.get("preview_id")?) {
        ("none", None) => Ok(Preview::None),
        ("asked", None) => Ok(Preview::Asked),
        ("shown", Some(message)) => Ok(Preview::Shown(message)),
        _ => Err(Error::Unreadable("preview")),
    }
}

const fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Answer => "answer",
        Kind::Notice => "notice",
    }
}

fn kind_from(name: &str) -> Result<Kind> {
    [Kind::Answer, Kind::Notice]
        .into_iter()
        .find(|kind| kind_name(*kind) == name)
        .ok_or(Error::Unreadable("outbox kind"))
}
