//! The stream reader: follows the rows of a session or run, and the growing answer.
//!
//! Streams store nothing. Committed rows come from the store, uncommitted text from the session's [`SessionView`], so
//! any number of readers may join late or reconnect. The view holds only the latest value: events are computed as the
//! difference to what this reader already has. Readers pull: a slow reader buffers one batch of rows and the text of
//! one answer.
//!
//! A [`StreamSource`] produces the events: `page` for a chat, `run` for a run. `sse` encodes them as server-sent events.

mod cancel;
mod live;
pub(crate) mod page;
pub(crate) mod run;
pub(crate) mod sse;

use std::collections::VecDeque;
use std::future::Future;
use std::time::Duration;

use petasos_core::ids::{RowId, SessionId, SessionKey, TurnId};
use petasos_gateway::{Error, Handle, SessionView};
use petasos_runtime::clock;
use tokio::sync::watch;

use crate::server::StopSignal;

pub(crate) use cancel::CancelOnDrop;

const BATCH: usize = 50;
/// The wait before subscribing again to a session that went to sleep.
const RESUBSCRIBE: Duration = Duration::from_millis(100);

pub(crate) type EventQueue<E> = VecDeque<E>;

/// Produces the events of a stream.
pub(crate) trait StreamSource: Send + 'static {
    type Event: Send;

    /// Interval of reads without a change of the view; the reader then also survives the sleep of the session. `None`:
    /// the stream ends when the session goes to sleep, and the client reconnects.
    const POLL: Option<Duration>;

    fn key(&self) -> &SessionKey;

    /// Switches to the transcript of the view; false if it has no rows yet.
    fn select_transcript(&mut self, view: &SessionView, ready: &mut EventQueue<Self::Event>) -> bool;

    fn read_rows(
        &mut self,
        handle: &Handle,
        ready: &mut EventQueue<Self::Event>,
    ) -> impl Future<Output = Result<RowBatch, Error>> + Send;

    /// Adds events for uncommitted changes.
    fn read_live(&mut self, view: &SessionView, ready: &mut EventQueue<Self::Event>);
}

/// Whether more rows follow a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowBatch {
    /// There may be more rows.
    Partial,
    /// There are no more rows at the moment.
    CaughtUp,
    /// The stream is complete.
    End,
}

/// Rows are read again when this part of the view changes.
#[derive(Debug, PartialEq, Eq)]
struct ReadMark {
    session: Option<SessionId>,
    rows: Option<RowId>,
    turn: Option<TurnId>,
    step: Option<u32>,
}

impl ReadMark {
    fn of(view: &SessionView) -> Self {
        let live = view.live.as_ref();
        Self {
            session: view.session.clone(),
            rows: view.rows,
            turn: live.map(|live| live.turn),
            step: live.map(|live| live.step),
        }
    }
}

/// One open stream. Dropping it needs no cleanup.
pub(crate) struct StreamReader<F: StreamSource> {
    handle: Handle,
    view: watch::Receiver<SessionView>,
    stop: StopSignal,
    source: F,
    /// The view when the reader last caught up.
    read_at: Option<ReadMark>,
    ready: EventQueue<F::Event>,
    ended: bool,
}

impl<F: StreamSource> StreamReader<F> {
    pub(crate) async fn open(handle: &Handle, source: F, stop: StopSignal) -> Result<Self, Error> {
        let view = handle.view(source.key()).await?;
        let handle = handle.clone();
        Ok(Self { handle, view, stop, source, read_at: None, ready: EventQueue::new(), ended: false })
    }

    fn is_over(&self) -> bool {
        self.ended && self.ready.is_empty()
    }

    /// `None`: the stream is over, or the server stops.
    async fn next(&mut self) -> Result<Option<F::Event>, Error> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if self.ended || self.stop.is_stopping() {
                return Ok(None);
            }
            let (mark, has_rows) = {
                let view = self.view.borrow_and_update();
                (ReadMark::of(&view), self.source.select_transcript(&view, &mut self.ready))
            };
            if has_rows && self.read_at.as_ref() != Some(&mark) {
                match self.source.read_rows(&self.handle, &mut self.ready).await? {
                    RowBatch::Partial => {}
                    RowBatch::CaughtUp => self.read_at = Some(mark),
                    RowBatch::End => self.ended = true,
                }
                continue;
            }
            if self.read_live(&mark) {
                continue;
            }
            if !self.changed().await? {
                return Ok(None);
            }
        }
    }

    /// Reads uncommitted changes; false if there are none. If the view has changed, rows are read first, so that an
    /// answer is not sent both as a row and as growing text.
    fn read_live(&mut self, mark: &ReadMark) -> bool {
        let view = self.view.borrow();
        if ReadMark::of(&view) != *mark {
            return true;
        }
        self.source.read_live(&view, &mut self.ready);
        !self.ready.is_empty()
    }

    /// Waits for a change; false if the stream ends.
    async fn changed(&mut self) -> Result<bool, Error> {
        let poll = async {
            match F::POLL {
                Some(period) => clock::sleep(period).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = self.view.changed() => match changed {
                Ok(()) => return Ok(true),
                Err(_) if F::POLL.is_none() => return Ok(false),
                Err(_) => {}
            },
            () = poll => {
                self.read_at = None;
                return Ok(true);
            }
            () = self.stop.wait() => return Ok(false),
        }
        clock::sleep(RESUBSCRIBE).await;
        self.view = self.handle.view(self.source.key()).await?;
        self.read_at = None;
        Ok(true)
    }
}
