//! The link: the session (`session.rs`) and the event processor (`events.rs`), which end together, and the
//! command menu.

pub(in crate::discord) mod cursor;
pub(in crate::discord) mod events;
mod heartbeat;
pub(in crate::discord) mod session;
mod socket;
mod socket_exit;

use tokio::sync::{mpsc, watch};

use crate::discord::{Discord, Error};
use crate::inbound::{InboundSink, LinkHealth};
use cursor::DiscordCursor;
use events::{EventProcessor, ProcessorChannels};
use session::{CommittedSequence, Sockets};

/// Events waiting for their commit. On overflow the link ends and resumes, and they are delivered again.
const QUEUE: usize = 4096;
const HEALTH_QUEUE: usize = 16;

impl Discord {
    pub async fn receive(
        &self,
        cursor: Option<String>,
        sink: &InboundSink,
        health: &mut (dyn FnMut(LinkHealth) + Send),
    ) -> Error {
        health(LinkHealth::Connecting);
        let stored = DiscordCursor::parse(cursor.as_deref());
        let (health_tx, mut health_rx) = mpsc::channel(HEALTH_QUEUE);
        let (frames_tx, frames_rx) = mpsc::channel(QUEUE);
        let session = stored.session.as_ref();
        let start = session.map(|it| CommittedSequence { session: it.id.clone(), sequence: it.sequence });
        let (committed_tx, committed) = watch::channel(start);
        let (application_tx, application) = watch::channel(None);
        let (backfilling_tx, mut backfilling) = watch::channel(false);
        let sockets = Sockets::new(self, session, frames_tx, committed, health_tx.clone());
        let processor = EventProcessor::new(
            self,
            stored,
            sink,
            ProcessorChannels {
                frames: frames_rx,
                committed: committed_tx,
                application: application_tx,
                health: health_tx,
                backfilling: backfilling_tx,
            },
        );
        let link = async {
            tokio::select! {
                error = sockets.run() => error,
                error = processor.run() => error,
                never = self.publish_menu(application) => match never {},
            }
        };
        tokio::pin!(link);
        let mut connected = false;
        let error = loop {
            let state = tokio::select! {
                biased;
                Some(state) = health_rx.recv() => state,
                Ok(()) = backfilling.changed(), if connected => LinkHealth::Connected,
                error = &mut link => break error,
            };
            connected |= state == LinkHealth::Connected;
            health(with_backfill(state, *backfilling.borrow_and_update()));
        };
        while let Ok(state) = health_rx.try_recv() {
            health(with_backfill(state, *backfilling.borrow()));
        }
        error
    }
}

/// Replaces `Connected` while a backfill is running.
fn with_backfill(state: LinkHealth, backfilling: bool) -> LinkHealth {
    if backfilling && state == LinkHealth::Connected { LinkHealth::Backfilling } else { state }
}
