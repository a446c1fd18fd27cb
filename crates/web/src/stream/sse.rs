//! The SSE encoder: a stream of events as `text/event-stream`.

use std::collections::VecDeque;
use std::convert::Infallible;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use petasos_gateway::Error;
use serde::Serialize;
use tracing::warn;

use super::{CancelOnDrop, Followed, Reader};

/// Puts events into the words of one kind of client.
pub(crate) trait Encoder: Send + 'static {
    type Event;

    /// Sent before anything has happened.
    fn open(&mut self) -> Vec<Event> {
        Vec::new()
    }

    fn encode(&mut self, event: Self::Event) -> Vec<Event>;

    /// Sent when the stream cannot be read any further.
    fn failed(&mut self, _error: &Error) -> Vec<Event> {
        Vec::new()
    }
}

/// An event without a name.
pub(crate) fn data(data: &impl Serialize) -> Event {
    // Our own types with text as keys: JSON can express all of them.
    Event::default().data(serde_json::to_string(data).unwrap_or_default())
}

pub(crate) fn named(name: &str, value: &impl Serialize) -> Event {
    data(value).event(name)
}

struct Encoding<F: Followed, E> {
    reader: Reader<F>,
    encoder: E,
    cancel: Option<CancelOnDrop>,
    ready: VecDeque<Event>,
    over: bool,
}

/// Dropping the response (its client has gone) drops `cancel`.
pub(crate) fn respond<F, E>(
    reader: Reader<F>,
    mut encoder: E,
    cancel: Option<CancelOnDrop>,
    keep_alive: KeepAlive,
    mut headers: HeaderMap,
) -> Response
where
    F: Followed,
    E: Encoder<Event = F::Event>,
{
    let ready = encoder.open().into();
    let encoding = Encoding { reader, encoder, cancel, ready, over: false };
    let events = stream::unfold(encoding, |mut encoding| async {
        let event = encoding.next().await?;
        Some((Ok::<_, Infallible>(event), encoding))
    });
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    (headers, Sse::new(events).keep_alive(keep_alive)).into_response()
}

impl<F: Followed, E: Encoder<Event = F::Event>> Encoding<F, E> {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.over {
                return None;
            }
            match self.reader.next().await {
                Ok(Some(event)) => {
                    self.ready.extend(self.encoder.encode(event));
                    self.over = self.reader.is_over();
                }
                Ok(None) => return None,
                Err(error) => {
                    let session = self.reader.followed.key().as_str();
                    warn!(session, %error, "cannot read a stream any further");
                    self.ready.extend(self.encoder.failed(&error));
                    self.over = true;
                }
            }
            // Its client did not leave: after an error the run goes on.
            if let Some(cancel) = self.cancel.as_mut().filter(|_| self.over) {
                cancel.disarm();
            }
        }
    }
}
