//! The event stream of one chat, for the page and the terminal: stored messages, then live changes.

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName};
use axum::response::Response;
use axum::response::sse::{Event, KeepAlive};
use petasos_core::ids::{RowId, SessionId, SessionKey};
use petasos_gateway::{Error, Handle, SessionView};
use serde::{Deserialize, Serialize};

use super::live::{LiveChange, LiveDiff, LiveView};
use super::{BATCH, EventQueue, RowBatch, StreamReader, StreamSource, sse};
use crate::chat::read::TranscriptMessage;
use crate::error::ApiError;
use crate::extract::{OwnChat, QueryParameters};
use crate::security::guard;
use crate::server::StopSignal;

const KEEP_ALIVE: Duration = Duration::from_secs(15);
pub(crate) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

#[derive(Debug, Deserialize)]
pub(crate) struct EventsQuery {
    after: Option<i64>,
    /// The transcript that `after` belongs to, if known. In another transcript the stream starts over.
    session: Option<SessionId>,
}

pub(crate) async fn events(
    State(handle): State<Handle>,
    stop: StopSignal,
    headers: HeaderMap,
    chat: OwnChat,
    QueryParameters(query): QueryParameters<EventsQuery>,
) -> Result<Response, ApiError> {
    let resumed = guard::header_text(&headers, &LAST_EVENT_ID).and_then(|id| id.parse().ok());
    let source = ChatStream {
        key: handle.key_of(&chat.source()),
        session: query.session,
        announced: false,
        after: RowId(resumed.or(query.after).unwrap_or(0)),
        diff: LiveDiff::default(),
    };
    let reader = StreamReader::open(&handle, source, stop).await?;
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    Ok(sse::respond(reader, PageEncoder, None, keep_alive, HeaderMap::new()))
}

enum PageEvent {
    /// The current transcript. Row ids are valid within one transcript only, so the event carries a new resume point.
    Session {
        id: SessionId,
        after: RowId,
    },
    TranscriptMessage(TranscriptMessage),
    LiveChange(LiveChange),
}

/// The messages and live changes of a chat across its transcripts.
struct ChatStream {
    key: SessionKey,
    /// The transcript that `after` belongs to.
    session: Option<SessionId>,
    /// The client got a `session` event.
    announced: bool,
    after: RowId,
    diff: LiveDiff,
}

impl StreamSource for ChatStream {
    type Event = PageEvent;

    const POLL: Option<Duration> = None;

    fn key(&self) -> &SessionKey {
        &self.key
    }

    /// Starts over in a new transcript.
    fn select_transcript(&mut self, view: &SessionView, ready: &mut EventQueue<PageEvent>) -> bool {
        let Some(session) = &view.session else { return false };
        let other = self.session.as_ref().is_some_and(|known| known != session);
        if other {
            self.after = RowId(0);
            self.diff = LiveDiff::default();
        }
        if other || !self.announced {
            self.session = Some(session.clone());
            self.announced = true;
            ready.push_back(PageEvent::Session { id: session.clone(), after: self.after });
        }
        true
    }

    async fn read_rows(
        &mut self,
        handle: &Handle,
        ready: &mut EventQueue<PageEvent>,
    ) -> Result<RowBatch, Error> {
        let Some(session) = &self.session else { return Ok(RowBatch::CaughtUp) };
        let rows = handle.rows(session, self.after, BATCH).await?;
        let batch = if rows.len() < BATCH { RowBatch::CaughtUp } else { RowBatch::Partial };
        for row in rows {
            self.after = row.id;
            ready.push_back(PageEvent::TranscriptMessage(row.into()));
        }
        Ok(batch)
    }

    fn read_live(&mut self, view: &SessionView, ready: &mut EventQueue<PageEvent>) {
        ready.extend(self.diff.update(LiveView::from(view)).into_iter().map(PageEvent::LiveChange));
    }
}

struct PageEncoder;

#[derive(Serialize)]
struct SessionEvent {
    id: SessionId,
}

#[derive(Serialize)]
struct StreamFailure {
    message: String,
}

impl sse::Encoder for PageEncoder {
    type Event = PageEvent;

    fn encode(&mut self, event: PageEvent) -> Vec<Event> {
        vec![match event {
            PageEvent::Session { id, after } => {
                sse::named("session", &SessionEvent { id }).id(after.to_string())
            }
            PageEvent::TranscriptMessage(row) => sse::named("row", &row).id(row.id.to_string()),
            PageEvent::LiveChange(change) => sse::named(change.name(), &change),
        }]
    }

    fn failed(&mut self, error: &Error) -> Vec<Event> {
        vec![sse::named("trouble", &StreamFailure { message: error.to_string() })]
    }
}
