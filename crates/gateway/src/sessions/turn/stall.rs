//! Stall detection: warns the author of a turn without progress, and aborts the turn later.
//!
//! Progress is any byte of the model, any tool result, and any heartbeat of a long tool. The total duration of a turn is not limited.

use petasos_core::message::Delivery;
use petasos_core::turn::{Event, Phase, Turn};
use tokio::time::Instant;

use crate::sessions::{SessionError, SessionTask};
use crate::{clock, notices};

impl SessionTask {
    /// When the running turn counts as stalled without further progress.
    pub(in crate::sessions) fn stalls_at(&self) -> Option<Instant> {
        let running = self.running.as_ref().filter(|running| running.parked_history().is_none())?;
        let stall = &self.handles.settings.stall;
        let warn = stall.warn.filter(|_| !running.warned);
        let silence = [warn, stall.stop].into_iter().flatten().min()?;
        running.alive.last().checked_add(silence)
    }

    pub(in crate::sessions) async fn on_stall(&mut self) -> Result<(), SessionError> {
        let (Some(at), Some(running)) = (self.stalls_at(), &mut self.running) else { return Ok(()) };
        if clock::monotonic() < at {
            // Progress since.
            running.warned = false;
            return Ok(());
        }
        let silence = running.alive.last().elapsed();
        let turn = running.turn.clone();
        let stop = self.handles.settings.stall.stop;
        let activity = activity(&turn);
        if stop.is_none_or(|stop| silence < stop) {
            running.warned = true;
            return self.send_warning(&turn, notices::turns::stall_warning(silence, &activity, stop)).await;
        }
        tracing::warn!(turn = %turn.id, activity, "turn stalled; aborting it");
        running.work = None;
        let shown = self.text_shown();
        let notice = notices::turns::stalled(silence, &activity);
        self.feed(Event::Stalled { shown, notice }).await
    }

    async fn send_warning(&mut self, turn: &Turn, text: String) -> Result<(), SessionError> {
        self.commit_writes(&turn.session, turn.notice(text, clock::now())).await?;
        if turn.route.delivery == Delivery::Push {
            self.handles.delivery.lanes.wake(turn.route.lane()).await;
        }
        Ok(())
    }
}

fn activity(turn: &Turn) -> String {
    match &turn.phase {
        Phase::Thinking | Phase::Over => notices::turns::WAITING_FOR_MODEL.to_owned(),
        Phase::Acting { calls, open, .. } => {
            let names: Vec<_> =
                calls.iter().filter(|call| open.contains(&call.id)).map(|call| call.name.as_str()).collect();
            notices::turns::waiting_for_tools(&names)
        }
    }
}
