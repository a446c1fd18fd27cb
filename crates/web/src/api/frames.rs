//! Server-sent events: a tape in some client's words, one frame after the other.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::Value;
use tracing::warn;

use super::tape::{Beat, Place, Tape};
use super::work::Leash;

const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// One frame.
#[derive(Debug, Default)]
pub(super) struct Frame {
    pub(super) event: Option<&'static str>,
    pub(super) data: String,
}

impl Frame {
    pub(super) fn data(data: &Value) -> Self {
        Self { event: None, data: data.to_string() }
    }

    pub(super) fn named(event: &'static str, data: &Value) -> Self {
        Self { event: Some(event), data: data.to_string() }
    }
}

/// How some client wants to be told.
pub(super) trait Speaker: Send + 'static {
    /// Said before anything has happened.
    fn open(&mut self) -> Vec<Frame>;
    fn tell(&mut self, beat: Beat) -> Vec<Frame>;
    /// Whether the client comes back with the id of a frame.
    const NUMBERED: bool = false;
    /// A last remark that is no event.
    const CLOSING: Option<&'static str> = None;
}

struct Show<S> {
    tape: Tape,
    speaker: S,
    leash: Option<Leash>,
    ready: VecDeque<Event>,
    over: bool,
}

/// Dropping the response (the client has gone) drops the leash.
pub(super) fn stream<S: Speaker>(
    tape: Tape,
    mut speaker: S,
    leash: Option<Leash>,
    headers: HeaderMap,
) -> Response {
    let ready = speaker.open().into_iter().map(|frame| event(frame, None)).collect();
    let show = Show { tape, speaker, leash, ready, over: false };
    let events = stream::unfold(show, |mut show| async {
        let event = show.next().await?;
        Some((Ok::<_, Infallible>(event), show))
    });
    let keep = KeepAlive::new().interval(KEEP_ALIVE).text("keepalive");
    let mut response = (headers, Sse::new(events).keep_alive(keep)).into_response();
    let headers = response.headers_mut();
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

impl<S: Speaker> Show<S> {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.over {
                return None;
            }
            match self.tape.next().await {
                Ok(Some((place, beat))) => self.hear(place, beat),
                Ok(None) => return None,
                Err(error) => {
                    warn!(run = self.tape.run().id, %error, "a stream cannot be read any further");
                    // Its client did not leave: the run goes on, and can be asked for.
                    if let Some(leash) = &mut self.leash {
                        leash.cut();
                    }
                    return None;
                }
            }
        }
    }

    fn hear(&mut self, place: Place, beat: Beat) {
        let ended = matches!(beat, Beat::Ended(_));
        let frames = self.speaker.tell(beat);
        let place = S::NUMBERED.then_some(place);
        self.ready.extend(frames.into_iter().map(|frame| event(frame, place)));
        if ended {
            self.over = true;
            self.ready.extend(S::CLOSING.map(|remark| Event::default().comment(remark)));
            if let Some(leash) = &mut self.leash {
                leash.cut();
            }
        }
    }
}

fn event(frame: Frame, place: Option<Place>) -> Event {
    let event = frame.event.map_or_else(Event::default, |name| Event::default().event(name));
    let event = event.data(frame.data);
    place.map_or(event.clone(), |place| event.id(place.name()))
}
