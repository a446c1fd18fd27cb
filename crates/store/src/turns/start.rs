//! Starts a turn: claims its messages and stores its rows and state, in one job.

use petasos_core::ids::{InboxId, RowId};
use petasos_core::journal::{MessageOutcome, Write};
use petasos_core::message::Delivery;
use petasos_core::session::Entry;
use petasos_core::transcript::Message;
use petasos_core::turn::{self, Event, Turn, TurnEffect, TurnLimits};
use petasos_core::{Millis, Route};

use crate::connection::Tx;
use crate::error::Result;

#[derive(Debug, Clone)]
pub struct TurnBatch {
    pub route: Route,
    pub inbox: Vec<InboxId>,
    /// Started by the gateway itself.
    pub internal: bool,
    /// Input of the model; empty: resume without a new message.
    pub rows: Vec<Message>,
}

#[derive(Debug)]
pub struct StartedTurn {
    pub turn: Turn,
    /// Newest row: the question.
    pub row: Option<RowId>,
    pub effects: Vec<TurnEffect>,
}

impl Tx<'_> {
    /// `notice`: text for a new transcript. `None`: there is nothing left to do.
    pub fn begin_turn(
        &self,
        entry: &Entry,
        notice: Option<String>,
        batch: TurnBatch,
        limits: TurnLimits,
        now: Millis,
    ) -> Result<Option<StartedTurn>> {
        let TurnBatch { route, inbox, internal, rows } = batch;
        let Some(first) = inbox.first() else { return Ok(None) };
        // The session was resumed elsewhere, its mark has expired, or the completion was consumed.
        let idle = rows.is_empty() && !entry.resume_pending;
        if idle || (internal && self.is_consumed_completion(*first)?) {
            self.apply(&[Write::SettleInbox { inbox, outcome: MessageOutcome::Merged, at: now }], now)?;
            return Ok(None);
        }
        let key = entry.session_key.clone();
        let session = entry.session_id.clone();
        let Some(turn) = Turn::new(key, session, route, inbox, now) else { return Ok(None) };
        let noticed = notice.is_some();
        if let Some(text) = notice {
            self.apply(&turn.notice(text, now), now)?;
        }
        let (turn, decision) = turn::step(turn, limits, now, Event::Started { rows });
        self.apply(&decision.writes, now)?;
        let mut effects = decision.effects;
        if noticed && turn.route.delivery == Delivery::Push {
            effects.push(TurnEffect::Deliver { lane: turn.route.lane() });
        }
        let row = self.last_row(&turn.session)?;
        Ok(Some(StartedTurn { turn, row, effects }))
    }
}
