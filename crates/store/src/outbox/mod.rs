//! Outbox: messages to deliver, ordered by lane.
//!
//! Invariants: at most one item per `(turn, step)`; the items of a lane are sent in the order of their ids; done items
//! never change. A crash leaves, and [`Tx::recover_sending`] repairs:
//!
//! | state | part in flight | becomes |
//! |---|---|---|
//! | sending | replaces a shown preview (part 0) | due, not doubtful: repeating an edit is harmless |
//! | sending | any other | due, doubtful |
//! | streaming, preview asked | the preview | streaming, doubtful; completed when its turn ends |
//! | streaming, preview shown | an edit of it | unchanged |
//! | due, done, dead | none | unchanged |

mod claim;
mod dead_chats;
mod idempotent;
mod preview;
mod queries;
mod rate_limits;
mod recovery;
mod topics;
mod writes;

pub use claim::LaneClaim;
pub use idempotent::EnqueueOutcome;
pub use preview::PreviewAction;
pub use queries::{LaneHead, OutboxCounts};
pub use recovery::RecoveredSends;

use petasos_core::outbox::{Draft, Item, Kind, Preview, State};
use petasos_core::{OutboxId, SessionKey, TurnId};
use rusqlite::Row;

use crate::error::{Error, Result};
use crate::value::{parse, text_at, time, time_at};

/// In the order `item` reads them.
const COLUMNS: &str = "id, route, session_key, turn, step, kind, text, buttons, state, preview, preview_id, \
                       sent, doubtful, attempts, not_before, created_at, last_error, tried_at, \
                       spent";

fn item(row: &Row<'_>) -> Result<Item> {
    Ok(Item {
        id: OutboxId(row.get(0)?),
        draft: draft(row)?,
        state: State::parse(text_at(row, 8)?).ok_or(Error::Unreadable("outbox state"))?,
        preview: preview(row)?,
        sent: parse(text_at(row, 11)?, "receipt list")?,
        doubtful: row.get(12)?,
        attempts: row.get(13)?,
        not_before: time_at(row, 14)?,
        created_at: time_at(row, 15)?,
        last_error: row.get(16)?,
        tried_at: row.get::<_, Option<i64>>(17)?.map(time),
        retired_keys: row.get(18)?,
    })
}

fn draft(row: &Row<'_>) -> Result<Draft> {
    let turn: Option<i64> = row.get(3)?;
    Ok(Draft {
        route: parse(text_at(row, 1)?, "route")?,
        session_key: row.get::<_, Option<String>>(2)?.map(SessionKey),
        turn: turn.map(TurnId).zip(row.get(4)?),
        kind: kind_from(text_at(row, 5)?)?,
        text: row.get(6)?,
        buttons: parse(text_at(row, 7)?, "button list")?,
    })
}

fn preview(row: &Row<'_>) -> Result<Preview> {
    match (text_at(row, 9)?, row.get(10)?) {
        ("none", None) => Ok(Preview::None),
        ("asked", None) => Ok(Preview::Requested),
        ("shown", Some(message)) => Ok(Preview::Shown(message)),
        _ => Err(Error::Unreadable("preview")),
    }
}

const fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Answer => "answer",
        Kind::Notice => "notice",
        Kind::Banner => "banner",
    }
}

fn kind_from(name: &str) -> Result<Kind> {
    [Kind::Answer, Kind::Notice, Kind::Banner]
        .into_iter()
        .find(|kind| kind_name(*kind) == name)
        .ok_or(Error::Unreadable("outbox kind"))
}
