//! A turn in which nothing happens any more: its author is warned, and then it is ended.
//!
//! Whatever happens in a turn is a sign of life: a byte of the model, a result, the word of a tool that takes long. How
//! long a turn takes altogether is nobody's business.

use std::time::Duration;

use petasos_core::message::Delivery;
use petasos_core::turn::{Event, Phase, Turn};
use tokio::time::Instant;

use crate::clock;
use crate::sessions::{Ended, Session};

impl Session {
    /// When the running turn has been silent for too long, unless it gives a sign of life until then.
    pub(in crate::sessions) fn stalls_at(&self) -> Option<Instant> {
        let running = self.running.as_ref().filter(|running| running.parked().is_none())?;
        let stall = &self.handles.settings.stall;
        let warn = stall.warn.filter(|_| !running.warned);
        let silence = [warn, stall.stop].into_iter().flatten().min()?;
        running.alive.last().checked_add(silence)
    }

    /// That moment has come.
    pub(in crate::sessions) async fn stalled(&mut self) -> Result<(), Ended> {
        let (Some(at), Some(running)) = (self.stalls_at(), &mut self.running) else { return Ok(()) };
        if Instant::now() < at {
            // A sign of life since.
            running.warned = false;
            return Ok(());
        }
        let (silence, turn) = (running.alive.last().elapsed(), running.turn.clone());
        let stop = self.handles.settings.stall.stop;
        let doing = doing(&turn);
        if stop.is_none_or(|stop| silence < stop) {
            running.warned = true;
            let end = stop.map(|stop| format!(" If that goes on, I will stop at {}.", minutes(stop)));
            let text = format!(
                "⚠️ Nothing has happened for {} ({doing}).{}",
                minutes(silence),
                end.unwrap_or_default()
            );
            return self.warn(&turn, text).await;
        }
        tracing::warn!(turn = %turn.id, doing, "a turn has come to a standstill and is ended");
        running.work = None;
        let shown = self.shown();
        let notice = format!(
            "⏱ I have stopped: nothing has happened for {} ({doing}). What was done so far is kept. Send /retry to try \
             again, or /new to start afresh; agent.gateway_timeout sets how long I wait.",
            minutes(silence)
        );
        self.feed(Event::Stalled { shown, notice }).await
    }

    /// Says something while a turn runs.
    async fn warn(&mut self, turn: &Turn, text: String) -> Result<(), Ended> {
        self.keep(&turn.session, turn.notice(text, clock::now())).await?;
        if turn.route.delivery == Delivery::Push {
            self.handles.delivery.deliver.due(turn.route.lane()).await;
        }
        Ok(())
    }
}

fn doing(turn: &Turn) -> String {
    match &turn.phase {
        Phase::Thinking | Phase::Over => "waiting for the model".to_owned(),
        Phase::Acting { calls, open, .. } => {
            let names: Vec<_> =
                calls.iter().filter(|call| open.contains(&call.id)).map(|call| call.name.as_str()).collect();
            format!("waiting for {}", names.join(", "))
        }
    }
}

fn minutes(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} seconds"),
        seconds => format!("{} minutes", seconds / 60),
    }
}
