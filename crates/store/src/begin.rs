//! How a turn starts: its messages are claimed, their rows written and its state stored, in one job.

use petasos_core::ids::{InboxId, RowId};
use petasos_core::journal::{Outcome, Write};
use petasos_core::message::Delivery;
use petasos_core::session::Entry;
use petasos_core::transcript::Message;
use petasos_core::turn::{self, Effect, Event, Limits, Turn};
use petasos_core::{Millis, Route};

use crate::error::Result;
use crate::group::Tx;

/// The messages that one turn answers.
#[derive(Debug, Clone)]
pub struct Batch {
    pub route: Route,
    pub inbox: Vec<InboxId>,
    /// The gateway itself asks for it.
    pub internal: bool,
    /// What the model reads; empty: nobody has written, the session is to be taken up again.
    pub rows: Vec<Message>,
}

/// A turn that is on disk.
#[derive(Debug)]
pub struct Begun {
    pub turn: Turn,
    /// The newest row: its question.
    pub row: Option<RowId>,
    pub effects: Vec<Effect>,
}

impl Tx<'_> {
    /// `notice`: the author is told that the transcript began afresh. `None`: there is nothing left to do.
    pub fn begin_turn(
        &self,
        entry: &Entry,
        notice: Option<String>,
        batch: Batch,
        limits: Limits,
        now: Millis,
    ) -> Result<Option<Begun>> {
        let Batch { route, inbox, internal, rows } = batch;
        let Some(first) = inbox.first() else { return Ok(None) };
        // Somebody else has taken the session up meanwhile, or its time is over; or it has learned of it otherwise.
        let idle = rows.is_empty() && !entry.resume_pending;
        if idle || (internal && self.is_old_news(*first)?) {
            self.apply(&[Write::SettleInbox { inbox, outcome: Outcome::Merged, at: now }], now)?;
            return Ok(None);
        }
        let (key, session) = (entry.session_key.clone(), entry.session_id.clone());
        let Some(turn) = Turn::new(key, session, route, inbox, now) else { return Ok(None) };
        let noticed = notice.is_some();
        if let Some(text) = notice {
            self.apply(&turn.notice(text, now), now)?;
        }
        let (turn, decision) = turn::step(turn, limits, now, Event::Started { rows });
        self.apply(&decision.writes, now)?;
        let mut effects = decision.effects;
        if noticed && turn.route.delivery == Delivery::Push {
            effects.push(Effect::Deliver { lane: turn.route.lane() });
        }
        let row = self.last_row(&turn.session)?;
        Ok(Some(Begun { turn, row, effects }))
    }
}
