//! The stream of one conversation: its rows, then whatever happens.
//!
//! A reader is pulled, never pushed: the next event is made when the socket has taken the last one, out of
//! the newest view. However slow it is, it holds one batch of rows and the text of one answer.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use petasos_core::ids::{RowId, SessionId, TurnId};
use petasos_gateway::{Handle, View};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tracing::warn;

use crate::extract::{Asked, Chat};
use crate::follow::{Now, Shown};
use crate::guard;
use crate::read::Row;
use crate::refusal::Refusal;
use crate::serve::Stop;

const BATCH: usize = 50;
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

#[derive(Debug, Deserialize)]
pub(crate) struct Since {
    after: Option<i64>,
    /// The transcript that `after` belongs to, if the reader knows. In another one it starts over.
    session: Option<SessionId>,
}

pub(crate) async fn events(
    State(handle): State<Handle>,
    stop: Option<Extension<Stop>>,
    headers: HeaderMap,
    chat: Chat,
    Asked(since): Asked<Since>,
) -> Result<Response, Refusal> {
    let resumed = guard::text(&headers, &LAST_EVENT_ID).and_then(|id| id.parse().ok());
    let view = handle.view(&handle.key_of(&chat.source())).await?;
    let reader = Reader {
        handle,
        view,
        stop: stop.map(|Extension(stop)| stop).unwrap_or_default(),
        session: since.session,
        announced: false,
        after: RowId(resumed.or(since.after).unwrap_or(0)),
        read_at: None,
        shown: Shown::default(),
        ready: VecDeque::new(),
    };
    let events = stream::unfold(reader, |mut reader| async {
        let event = reader.next().await?;
        Some((Ok::<_, Infallible>(event), reader))
    });
    let unbuffered = [(HeaderName::from_static("x-accel-buffering"), "no")];
    Ok((unbuffered, Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))).into_response())
}

/// One open stream. Dropping it (the reader has gone) leaves nothing behind.
struct Reader {
    handle: Handle,
    view: watch::Receiver<View>,
    stop: Stop,
    /// The transcript that `after` belongs to.
    session: Option<SessionId>,
    /// The reader knows which transcript it is looking at.
    announced: bool,
    /// The last row it has.
    after: RowId,
    /// What the view said when the rows were last read to their end; `None` before that.
    read_at: Option<Mark>,
    shown: Shown,
    ready: VecDeque<Event>,
}

/// Rows are read again when this changes: there is a newer one, or a turn has begun with what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    rows: Option<RowId>,
    turn: Option<TurnId>,
}

impl Mark {
    fn of(view: &View) -> Self {
        Self { rows: view.rows, turn: view.live.as_ref().map(|live| live.turn) }
    }
}

#[derive(Serialize)]
struct Switched<'a> {
    id: &'a SessionId,
}

#[derive(Serialize)]
struct Trouble {
    message: String,
}

impl Reader {
    /// The next event; `None` ends the stream, and the reader comes back.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.stop.is_asked() {
                return None;
            }
            let (session, mark) = {
                let view = self.view.borrow_and_update();
                (view.session.clone(), Mark::of(&view))
            };
            if let Some(session) = session {
                self.enter(&session);
                if self.read_at != Some(mark) {
                    if let Err(error) = self.read(&session, mark).await {
                        return self.fail(error);
                    }
                    continue;
                }
            }
            if self.look(mark) {
                continue;
            }
            tokio::select! {
                changed = self.view.changed() => changed.ok()?,
                () = self.stop.asked() => return None,
            }
        }
    }

    /// Tells the reader which transcript this is, and starts over if it is another one.
    fn enter(&mut self, session: &SessionId) {
        let other = self.session.as_ref().is_some_and(|known| known != session);
        if self.announced && !other {
            return;
        }
        if other {
            self.after = RowId(0);
            self.read_at = None;
            self.shown = Shown::default();
        }
        self.session = Some(session.clone());
        self.announced = true;
        // Row ids of another transcript mean nothing in this one, so the resume point moves along.
        self.ready
            .extend(event("session", &Switched { id: session }).map(|it| it.id(self.after.to_string())));
    }

    /// One batch of rows, begun when the view was at `mark`.
    async fn read(&mut self, session: &SessionId, mark: Mark) -> Result<(), petasos_gateway::Error> {
        let rows = self.handle.rows(session, self.after, BATCH).await?;
        if rows.len() < BATCH {
            self.read_at = Some(mark);
        }
        for said in rows {
            self.after = said.id;
            let row = Row { id: said.id, undone: said.is_undone(), message: said.message };
            self.ready.extend(event("row", &row).map(|it| it.id(self.after.to_string())));
        }
        Ok(())
    }

    /// What the view shows beyond the rows; false when there is nothing to tell. Waits for rows that were
    /// added meanwhile, so that an answer is never seen twice, as a row and as a running text.
    fn look(&mut self, mark: Mark) -> bool {
        let view = self.view.borrow();
        if Mark::of(&view) != mark {
            return true;
        }
        let changes = self.shown.follow(Now::from(&*view));
        drop(view);
        self.ready.extend(changes.iter().filter_map(|change| event(change.name(), change)));
        !changes.is_empty()
    }

    fn fail(&mut self, error: petasos_gateway::Error) -> Option<Event> {
        warn!(%error, "event stream cannot read its rows");
        self.stop = Stop::now();
        event("trouble", &Trouble { message: error.to_string() })
    }
}

fn event<T: Serialize>(name: &'static str, data: &T) -> Option<Event> {
    // Our own types with string keys: there is nothing that JSON cannot say.
    Event::default().event(name).json_data(data).ok()
}
