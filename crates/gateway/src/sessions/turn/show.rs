//! What can be seen of a session from outside while its turn runs.

use std::time::Duration;

use petasos_core::message::Delivery;
use tokio::time::Instant;

use crate::clock;
use crate::delivery::Following;
use crate::sessions::Session;
use crate::sessions::view::Live;

/// How long a turn may be silent before its chat sees that somebody is at it.
const FOLLOW_AFTER: Duration = Duration::from_millis(300);

impl Session {
    /// A turn has begun: let it be seen.
    pub(in crate::sessions) fn go_live(&mut self) {
        let Some(running) = &mut self.running else { return };
        let turn = &running.turn;
        let live = Live {
            turn: turn.id,
            step: turn.step,
            attempt: turn.attempt,
            text: String::new(),
            tools: vec![],
        };
        let session = turn.session.clone();
        self.show.send_modify(|view| {
            view.ready = true;
            view.session = Some(session);
            view.live = Some(live);
        });
        running.follow_at = (turn.route.delivery == Delivery::Push).then(|| Instant::now() + FOLLOW_AFTER);
    }

    /// The chat sees from now on what becomes of the turn.
    pub(in crate::sessions) async fn follow(&mut self) {
        let Some(running) = &mut self.running else { return };
        running.follow_at = None;
        let turn = &running.turn;
        let (gap, view) = (self.handles.settings.streaming.gap, self.show.subscribe());
        let following =
            Following::new(turn.id, turn.key.clone(), turn.route.clone(), view, gap, clock::now());
        self.handles.delivery.deliver.follow(turn.route.lane(), following).await;
    }

    pub(in crate::sessions) fn publish_queue(&self) {
        self.show.send_if_modified(|view| {
            let changed = view.queued != self.queue.len();
            view.queued = self.queue.len();
            changed
        });
    }

    /// What the author has seen of the answer so far.
    pub(in crate::sessions) fn shown(&self) -> String {
        let pushed = self.turn().is_some_and(|turn| turn.route.delivery == Delivery::Push);
        if pushed && !self.handles.settings.streaming.enabled {
            return String::new();
        }
        self.show.borrow().live.as_ref().map(|live| live.text.clone()).unwrap_or_default()
    }
}
