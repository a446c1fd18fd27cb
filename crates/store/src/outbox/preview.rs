//! Showing an answer while it grows: at most one message for each `(turn, step)`, also across a crash.

use petasos_core::Millis;
use petasos_core::outbox::{Draft, Preview, State};

use crate::error::{Error, Result};
use crate::group::Tx;

/// How a preview may be shown now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stagehand {
    /// As a new message; the intent is stored.
    Send,
    /// It is visible under this id: edit it.
    Edit(String),
    /// Not at all: the turn has moved on, or one of unknown fate may be visible already.
    Stay,
}

impl Tx<'_> {
    /// Asks before a preview of `(turn, step)` is shown for the first time by this process.
    pub fn stage_preview(&self, draft: &Draft, now: Millis) -> Result<Stagehand> {
        let Some((turn, step)) = draft.turn else {
            return Err(Error::Conflict("a preview belongs to a turn"));
        };
        let speaking = self.turn(turn)?.is_some_and(|it| it.ended.is_none() && it.turn.step == step);
        if !speaking {
            return Ok(Stagehand::Stay);
        }
        let known = self.items_of_turn(turn)?.into_iter().find(|item| item.draft.turn == Some((turn, step)));
        match known.map(|item| (item.state, item.preview)) {
            Some((State::Streaming, Preview::Shown(message))) => Ok(Stagehand::Edit(message)),
            None | Some((State::Streaming, Preview::None)) => {
                self.open_preview(draft, now)?;
                Ok(Stagehand::Send)
            }
            Some((
                State::Streaming | State::Due | State::Sending | State::Done | State::Dead,
                Preview::None | Preview::Asked | Preview::Shown(_),
            )) => Ok(Stagehand::Stay),
        }
    }
}
