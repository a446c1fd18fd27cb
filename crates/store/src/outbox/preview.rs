//! Previews of streamed answers: at most one message per `(turn, step)`, also across a crash.

use petasos_core::Millis;
use petasos_core::outbox::{Draft, Preview, State};

use crate::connection::Tx;
use crate::error::{Error, Result};

/// How to show a preview.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreviewAction {
    /// Send a new message; the intent is stored.
    Send,
    /// Edit the visible message with this id.
    Edit(String),
    /// Do not show it: the turn has moved on, or a preview of unknown outcome may be visible.
    Skip,
}

impl Tx<'_> {
    /// Call before this process first shows a preview of `(turn, step)`.
    pub fn stage_preview(&self, draft: &Draft, now: Millis) -> Result<PreviewAction> {
        let Some((turn, step)) = draft.turn else {
            return Err(Error::Conflict("a preview belongs to a turn"));
        };
        let is_current_step = self.turn(turn)?.is_some_and(|it| it.ended.is_none() && it.turn.step == step);
        if !is_current_step {
            return Ok(PreviewAction::Skip);
        }
        let known = self.items_of_turn(turn)?.into_iter().find(|item| item.draft.turn == Some((turn, step)));
        match known.map(|item| (item.state, item.preview)) {
            Some((State::Streaming, Preview::Shown(message))) => Ok(PreviewAction::Edit(message)),
            None | Some((State::Streaming, Preview::None)) => {
                self.open_preview(draft, now)?;
                Ok(PreviewAction::Send)
            }
            Some((
                State::Streaming | State::Due | State::Sending | State::Done | State::Dead,
                Preview::None | Preview::Requested | Preview::Shown(_),
            )) => Ok(PreviewAction::Skip),
        }
    }
}
