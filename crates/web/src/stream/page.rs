//! The events of one conversation, for the page and the terminal: its rows, then whatever happens.

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName};
use axum::response::Response;
use axum::response::sse::{Event, KeepAlive};
use petasos_core::ids::{RowId, SessionId, SessionKey};
use petasos_gateway::{Error, Handle, View};
use serde::{Deserialize, Serialize};

use super::growth::{Change, Now, Shown};
use super::{BATCH, Batch, Followed, Reader, Ready, sse};
use crate::error::ApiError;
use crate::extract::{Asked, Chat};
use crate::guard;
use crate::read::Row;
use crate::serve::Stop;

const KEEP_ALIVE: Duration = Duration::from_secs(15);
pub(crate) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

#[derive(Debug, Deserialize)]
pub(crate) struct Since {
    after: Option<i64>,
    /// The transcript that `after` belongs to, if the reader knows. In another one it starts over.
    session: Option<SessionId>,
}

pub(crate) async fn events(
    State(handle): State<Handle>,
    stop: Stop,
    headers: HeaderMap,
    chat: Chat,
    Asked(since): Asked<Since>,
) -> Result<Response, ApiError> {
    let resumed = guard::text(&headers, &LAST_EVENT_ID).and_then(|id| id.parse().ok());
    let conversation = Conversation {
        key: handle.key_of(&chat.source()),
        session: since.session,
        announced: false,
        after: RowId(resumed.or(since.after).unwrap_or(0)),
        shown: Shown::default(),
    };
    let reader = Reader::open(&handle, conversation, stop).await?;
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    Ok(sse::respond(reader, PageEncoder, None, keep_alive, HeaderMap::new()))
}

enum PageEvent {
    /// Which transcript this is. Row ids of another transcript mean nothing in this one, so the resume point moves along.
    Session {
        id: SessionId,
        after: RowId,
    },
    Row(Row),
    Change(Change),
}

/// The conversation of one chat, whichever transcript it is in.
struct Conversation {
    key: SessionKey,
    /// The transcript that `after` belongs to.
    session: Option<SessionId>,
    /// The client knows which transcript it is looking at.
    announced: bool,
    /// The last row the client has.
    after: RowId,
    shown: Shown,
}

impl Followed for Conversation {
    type Event = PageEvent;

    const POLL: Option<Duration> = None;

    fn key(&self) -> &SessionKey {
        &self.key
    }

    /// Names the transcript, and starts over if it is another one.
    fn enter(&mut self, view: &View, ready: &mut Ready<PageEvent>) -> bool {
        let Some(session) = &view.session else { return false };
        let other = self.session.as_ref().is_some_and(|known| known != session);
        if other {
            self.after = RowId(0);
            self.shown = Shown::default();
        }
        if other || !self.announced {
            self.session = Some(session.clone());
            self.announced = true;
            ready.push_back(PageEvent::Session { id: session.clone(), after: self.after });
        }
        true
    }

    async fn read(&mut self, handle: &Handle, ready: &mut Ready<PageEvent>) -> Result<Batch, Error> {
        let Some(session) = &self.session else { return Ok(Batch::Last) };
        let rows = handle.rows(session, self.after, BATCH).await?;
        let batch = if rows.len() < BATCH { Batch::Last } else { Batch::Full };
        for said in rows {
            self.after = said.id;
            ready.push_back(PageEvent::Row(said.into()));
        }
        Ok(batch)
    }

    fn look(&mut self, view: &View, ready: &mut Ready<PageEvent>) {
        ready.extend(self.shown.follow(Now::from(view)).into_iter().map(PageEvent::Change));
    }
}

struct PageEncoder;

#[derive(Serialize)]
struct SessionEvent {
    id: SessionId,
}

#[derive(Serialize)]
struct Trouble {
    message: String,
}

impl sse::Encoder for PageEncoder {
    type Event = PageEvent;

    fn encode(&mut self, event: PageEvent) -> Vec<Event> {
        vec![match event {
            PageEvent::Session { id, after } => {
                sse::named("session", &SessionEvent { id }).id(after.to_string())
            }
            PageEvent::Row(row) => sse::named("row", &row).id(row.id.to_string()),
            PageEvent::Change(change) => sse::named(change.name(), &change),
        }]
    }

    fn failed(&mut self, error: &Error) -> Vec<Event> {
        vec![sse::named("trouble", &Trouble { message: error.to_string() })]
    }
}
