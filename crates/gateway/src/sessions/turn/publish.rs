//! Publishes the state of the running turn in the session's view.

use std::time::Duration;

use petasos_core::message::Delivery;

use crate::clock;
use crate::delivery::PreviewStream;
use crate::sessions::SessionTask;
use crate::sessions::view::LiveTurn;

/// Delay before the chat shows a typing indicator or a preview.
const PREVIEW_DELAY: Duration = Duration::from_millis(300);

impl SessionTask {
    pub(in crate::sessions) fn publish_turn(&mut self) {
        let Some(running) = &mut self.running else { return };
        let turn = &running.turn;
        let live = LiveTurn {
            turn: turn.id,
            step: turn.step,
            attempt: turn.attempt,
            text: String::new(),
            tools: vec![],
        };
        let session = turn.session.clone();
        self.view_tx.send_modify(|view| {
            view.ready = true;
            view.session = Some(session);
            view.live = Some(live);
        });
        running.preview_at =
            (turn.route.delivery == Delivery::Push).then(|| clock::monotonic() + PREVIEW_DELAY);
    }

    pub(in crate::sessions) async fn start_preview(&mut self) {
        let Some(running) = &mut self.running else { return };
        running.preview_at = None;
        let turn = &running.turn;
        let gap = self.handles.settings.streaming.gap;
        let view = self.view_tx.subscribe();
        let following =
            PreviewStream::new(turn.id, turn.key.clone(), turn.route.clone(), view, gap, clock::now());
        self.handles.delivery.lanes.preview(turn.route.lane(), following).await;
    }

    pub(in crate::sessions) fn publish_queue(&self) {
        self.view_tx.send_if_modified(|view| {
            let changed = view.queued != self.queue.len();
            view.queued = self.queue.len();
            changed
        });
    }

    /// The part of the answer that the author has seen.
    pub(in crate::sessions) fn text_shown(&self) -> String {
        let pushed = self.turn().is_some_and(|turn| turn.route.delivery == Delivery::Push);
        if pushed && !self.handles.settings.streaming.enabled {
            return String::new();
        }
        self.view_tx.borrow().live.as_ref().map(|live| live.text.clone()).unwrap_or_default()
    }
}
