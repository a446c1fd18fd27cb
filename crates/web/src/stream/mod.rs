//! The stream reader: follows the rows of a session, or those of one run, and the text that is growing.
//!
//! Nothing of a stream is stored. Committed rows are read from the store, what is not committed yet from the session's
//! [`View`]; so any number of readers may come, late or again. The view is a value that jumps: a slow reader sees only
//! the newest one, so events are computed from what this reader already has, never from what happened in between. A
//! reader is pulled, never pushed: however slow it is, it holds one batch of rows and the text of one answer.
//!
//! What is followed decides on events ([`Followed`]): the page's are in `page`, those of a run in `run`. `sse` encodes
//! both as server-sent events.

mod cancel;
mod growth;
pub(crate) mod page;
pub(crate) mod run;
pub(crate) mod sse;

use std::collections::VecDeque;
use std::future::Future;
use std::time::Duration;

use petasos_core::ids::{RowId, SessionId, SessionKey, TurnId};
use petasos_gateway::{Error, Handle, View};
use tokio::sync::watch;

use crate::serve::Stop;

pub(crate) use cancel::CancelOnDrop;

/// Rows that are read at a time.
const BATCH: usize = 50;
/// A session that went away is asked for again after this long.
const RESUBSCRIBE: Duration = Duration::from_millis(100);

/// Events in their order, not taken yet.
pub(crate) type Ready<E> = VecDeque<E>;

/// What a reader follows.
pub(crate) trait Followed: Send + 'static {
    type Event: Send;

    /// After this time without a change of the view, the rows are read all the same, and the reader stays when the
    /// session goes to sleep. `None`: the stream ends then, and its client connects again.
    const POLL: Option<Duration>;

    fn key(&self) -> &SessionKey;

    /// Takes note of the transcript that the view shows; false if there are no rows to read yet.
    fn enter(&mut self, view: &View, ready: &mut Ready<Self::Event>) -> bool;

    /// Reads one batch of rows.
    fn read(
        &mut self,
        handle: &Handle,
        ready: &mut Ready<Self::Event>,
    ) -> impl Future<Output = Result<Batch, Error>> + Send;

    /// What the view shows beyond the rows.
    fn look(&mut self, view: &View, ready: &mut Ready<Self::Event>);
}

/// What a batch of rows was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Batch {
    /// There may be more rows.
    Full,
    /// There are no more rows at the moment.
    Last,
    /// Nothing comes after these.
    End,
}

/// Rows are read again when this changes.
#[derive(Debug, PartialEq, Eq)]
struct Mark {
    session: Option<SessionId>,
    rows: Option<RowId>,
    turn: Option<TurnId>,
    step: Option<u32>,
}

impl Mark {
    fn of(view: &View) -> Self {
        let live = view.live.as_ref();
        Self {
            session: view.session.clone(),
            rows: view.rows,
            turn: live.map(|live| live.turn),
            step: live.map(|live| live.step),
        }
    }
}

/// One open stream. Dropping it (its client has gone) leaves nothing behind.
pub(crate) struct Reader<F: Followed> {
    handle: Handle,
    view: watch::Receiver<View>,
    stop: Stop,
    followed: F,
    /// What the view said when the rows were last read to their end; `None` before that.
    read_at: Option<Mark>,
    ready: Ready<F::Event>,
    ended: bool,
}

impl<F: Followed> Reader<F> {
    pub(crate) async fn open(handle: &Handle, followed: F, stop: Stop) -> Result<Self, Error> {
        let view = handle.view(followed.key()).await?;
        let handle = handle.clone();
        Ok(Self { handle, view, stop, followed, read_at: None, ready: Ready::new(), ended: false })
    }

    /// Nothing more will come.
    fn is_over(&self) -> bool {
        self.ended && self.ready.is_empty()
    }

    /// The next event; `None`: the stream is over, or the server stops.
    async fn next(&mut self) -> Result<Option<F::Event>, Error> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if self.ended || self.stop.is_asked() {
                return Ok(None);
            }
            let (mark, has_rows) = {
                let view = self.view.borrow_and_update();
                (Mark::of(&view), self.followed.enter(&view, &mut self.ready))
            };
            if has_rows && self.read_at.as_ref() != Some(&mark) {
                match self.followed.read(&self.handle, &mut self.ready).await? {
                    Batch::Full => {}
                    Batch::Last => self.read_at = Some(mark),
                    Batch::End => self.ended = true,
                }
                continue;
            }
            if self.look(&mark) {
                continue;
            }
            if !self.changed().await? {
                return Ok(None);
            }
        }
    }

    /// What the view shows beyond the rows; false when there is nothing new. Waits for rows that were added meanwhile,
    /// so that an answer is never seen twice, as a row and as a growing text.
    fn look(&mut self, mark: &Mark) -> bool {
        let view = self.view.borrow();
        if Mark::of(&view) != *mark {
            return true;
        }
        self.followed.look(&view, &mut self.ready);
        !self.ready.is_empty()
    }

    /// Waits until there may be something new; false: the stream ends.
    async fn changed(&mut self) -> Result<bool, Error> {
        let poll = async {
            match F::POLL {
                Some(period) => tokio::time::sleep(period).await,
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
            () = self.stop.asked() => return Ok(false),
        }
        tokio::time::sleep(RESUBSCRIBE).await;
        self.view = self.handle.view(self.followed.key()).await?;
        self.read_at = None;
        Ok(true)
    }
}
