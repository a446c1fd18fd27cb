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

use super::{CancelOnDrop, StreamReader, StreamSource};

/// Encodes events for one kind of client.
pub(crate) trait Encoder: Send + 'static {
    type Event;

    /// Events at the start of the stream.
    fn open(&mut self) -> Vec<Event> {
        Vec::new()
    }

    fn encode(&mut self, event: Self::Event) -> Vec<Event>;

    /// Events after a read error.
    fn failed(&mut self, _error: &Error) -> Vec<Event> {
        Vec::new()
    }
}

/// An event without a name.
pub(crate) fn data(data: &impl Serialize) -> Event {
    // Our own types have string keys, so serialization does not fail.
    Event::default().data(serde_json::to_string(data).unwrap_or_default())
}

pub(crate) fn named(name: &str, value: &impl Serialize) -> Event {
    data(value).event(name)
}

struct EncodedStream<F: StreamSource, E> {
    reader: StreamReader<F>,
    encoder: E,
    cancel: Option<CancelOnDrop>,
    ready: VecDeque<Event>,
    finished: bool,
}

/// Dropping the response, as on disconnect, drops `cancel`.
pub(crate) fn respond<F, E>(
    reader: StreamReader<F>,
    mut encoder: E,
    cancel: Option<CancelOnDrop>,
    keep_alive: KeepAlive,
    mut headers: HeaderMap,
) -> Response
where
    F: StreamSource,
    E: Encoder<Event = F::Event>,
{
    let ready = encoder.open().into();
    let encoded = EncodedStream { reader, encoder, cancel, ready, finished: false };
    let events = stream::unfold(encoded, |mut encoded| async {
        let event = encoded.next().await?;
        Some((Ok::<_, Infallible>(event), encoded))
    });
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    (headers, Sse::new(events).keep_alive(keep_alive)).into_response()
}

impl<F: StreamSource, E: Encoder<Event = F::Event>> EncodedStream<F, E> {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.finished {
                return None;
            }
            match self.reader.next().await {
                Ok(Some(event)) => {
                    self.ready.extend(self.encoder.encode(event));
                    self.finished = self.reader.is_over();
                }
                Ok(None) => return None,
                Err(error) => {
                    let session = self.reader.source.key().as_str();
                    warn!(session, %error, "cannot read event stream");
                    self.ready.extend(self.encoder.failed(&error));
                    self.finished = true;
                }
            }
            // The client did not disconnect: after an error the run goes on.
            if let Some(cancel) = self.cancel.as_mut().filter(|_| self.finished) {
                cancel.disarm();
            }
        }
    }
}
