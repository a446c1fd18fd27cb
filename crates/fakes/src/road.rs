//! The road of one request: it arrives and is put on record, is held, is applied, is held again, and is
//! answered, or not. What is the same on every fake's wire stands here.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use tokio::time::sleep;

use crate::gate::Door;
use crate::line::Line;
use crate::rules::{Act, Side};
use crate::watched::Watched;

/// What a fault means to a request. Delays and bad answers come before the processing, halves after it.
#[derive(Debug)]
pub(crate) enum Effect<R> {
    Delay(Duration),
    Hang(Side),
    Reset(Side),
    Refuse(R),
    Page(u16),
    Garbage,
    Half,
    /// None on the road; the method itself looks for it.
    Inside,
}

pub(crate) trait Trouble {
    type Refusal;

    fn effect(&self) -> Effect<Self::Refusal>;
}

/// How a request ends: `T` is a good answer.
#[derive(Debug)]
pub(crate) enum End<T, R> {
    Answer(Result<T, R>),
    /// Half of the answer.
    Half(Result<T, R>),
    /// Somebody in between has answered.
    Page(u16),
    Garbage,
    Reset,
}

/// What the rules have in store for one request.
#[derive(Debug)]
pub(crate) struct Held<F> {
    pub(crate) acts: Vec<Act<F>>,
    /// The hanging place of its time: a release reaches all who came before it.
    pub(crate) hang: Arc<Door>,
}

impl<F: Trouble> Held<F> {
    /// `Some`: it ends here, unprocessed.
    pub(crate) async fn before<T>(&self) -> Option<End<T, F::Refusal>> {
        for act in &self.acts {
            let effect = match act {
                Act::Gate(Side::Before, door) => {
                    door.pass().await;
                    continue;
                }
                Act::Gate(Side::After, _) => continue,
                Act::Fault(fault) => fault.effect(),
            };
            match effect {
                Effect::Delay(wait) => sleep(wait).await,
                Effect::Hang(Side::Before) => self.hang.pass().await,
                Effect::Reset(Side::Before) => return Some(End::Reset),
                Effect::Refuse(refusal) => return Some(End::Answer(Err(refusal))),
                Effect::Page(status) => return Some(End::Page(status)),
                Effect::Garbage => return Some(End::Garbage),
                Effect::Hang(Side::After) | Effect::Reset(Side::After) | Effect::Half | Effect::Inside => {}
            }
        }
        None
    }

    pub(crate) async fn after<T>(&self, served: Result<T, F::Refusal>) -> End<T, F::Refusal> {
        for act in &self.acts {
            let effect = match act {
                Act::Gate(Side::After, door) => {
                    door.pass().await;
                    continue;
                }
                Act::Gate(Side::Before, _) => continue,
                Act::Fault(fault) => fault.effect(),
            };
            match effect {
                Effect::Hang(Side::After) => self.hang.pass().await,
                Effect::Reset(Side::After) => return End::Reset,
                Effect::Half => return End::Half(served),
                Effect::Hang(Side::Before)
                | Effect::Reset(Side::Before)
                | Effect::Delay(_)
                | Effect::Refuse(_)
                | Effect::Page(_)
                | Effect::Garbage
                | Effect::Inside => {}
            }
        }
        End::Answer(served)
    }
}

/// A world that keeps a record of calls.
pub(crate) trait Record {
    type Outcome;
    const ABANDONED: Self::Outcome;

    /// Whether the call was applied, and what its caller was told. `None`: forgotten.
    fn entry(&mut self, number: u64) -> Option<(&mut bool, &mut Self::Outcome)>;
}

/// A request on record. Dropped unclosed when the caller hangs up.
#[derive(Debug)]
pub(crate) struct Ticket<'a, W: Record> {
    world: &'a Watched<W>,
    number: u64,
    closed: bool,
}

impl<'a, W: Record> Ticket<'a, W> {
    pub(crate) fn new(world: &'a Watched<W>, number: u64) -> Self {
        Self { world, number, closed: false }
    }

    pub(crate) fn applied(&self, applied: bool) {
        self.world.change(|world| world.entry(self.number).map(|call| *call.0 = applied));
    }

    pub(crate) fn close(mut self, outcome: W::Outcome) {
        self.closed = true;
        self.told(outcome);
    }

    fn told(&self, outcome: W::Outcome) {
        self.world.change(|world| world.entry(self.number).map(|call| *call.1 = outcome));
    }
}

impl<W: Record> Drop for Ticket<'_, W> {
    fn drop(&mut self) {
        if !self.closed {
            self.told(W::ABANDONED);
        }
    }
}

pub(crate) fn status(code: u16) -> StatusCode {
    StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_REQUEST)
}

pub(crate) fn json(status: StatusCode, body: impl Into<Bytes>) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body.into()).into_response()
}

pub(crate) fn reset(line: &Line) -> Response {
    line.reset();
    // Never written: the line is cut.
    StatusCode::OK.into_response()
}

/// Promises the whole body, sends half of it and ends the connection.
pub(crate) fn half(body: impl Into<Bytes>) -> Response {
    let body = body.into();
    let promised = body.len().to_string();
    let first = body.slice(..body.len() / 2);
    let parts = stream::unfold(Some(first), |part| async move {
        if let Some(part) = part {
            return Some((Ok(part), None));
        }
        // The server sends what it has whenever the body makes it wait.
        tokio::task::yield_now().await;
        Some((Err(std::io::Error::from(std::io::ErrorKind::ConnectionAborted)), None))
    });
    let head = [(header::CONTENT_TYPE, "application/json".to_owned()), (header::CONTENT_LENGTH, promised)];
    (head, Body::from_stream(parts)).into_response()
}
