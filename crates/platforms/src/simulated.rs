//! An adapter and a connection to a connector, supplied as values, for simulations.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use petasos_core::message::Attachment;
use petasos_core::{Capabilities, Fault, Platform, Reached, Route};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{Fetched, InboundSink, Kind, LinkHealth, Part, RateLimits, Receipt, SendOptions, download};

/// The bytes below a connection.
pub trait Io: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin {}

/// Opens connections to a connector.
pub trait Dial: fmt::Debug + Send + Sync {
    /// `Err`: the status of the refusal; `None` if the connector is unreachable.
    fn dial(&self, bearer: Option<String>) -> BoxFuture<'_, Result<Box<dyn Io>, Option<u16>>>;
}

/// Return type of the methods of [`SimulatedAdapter`] and [`Dial`].
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// See the methods of [`crate::Adapter`].
pub trait SimulatedAdapter: fmt::Debug + Send + Sync {
    fn platform(&self) -> Platform;

    fn account(&self) -> &str;

    fn capabilities(&self) -> &Capabilities;

    fn limits(&self) -> &RateLimits;

    fn receive<'a>(
        &'a self,
        cursor: Option<String>,
        sink: &'a InboundSink,
        health: &'a mut (dyn FnMut(LinkHealth) + Send),
    ) -> BoxFuture<'a, Error>;

    fn fetch<'a>(
        &'a self,
        attachment: &'a Attachment,
        max_size: u64,
        to: &'a mut tokio::fs::File,
    ) -> BoxFuture<'a, Result<Fetched, download::Error>>;

    fn render(&self, text: &str) -> Vec<Part>;

    fn preview(&self, text: &str, cursor: &str) -> String;

    fn send<'a>(
        &'a self,
        to: &'a Route,
        part: &'a Part,
        options: &'a SendOptions<'a>,
        key: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Receipt, Error>>;

    fn idempotency_window(&self) -> Option<Duration>;

    fn edit<'a>(
        &'a self,
        to: &'a Route,
        message_id: &'a str,
        part: &'a Part,
    ) -> BoxFuture<'a, Result<Receipt, Error>>;

    fn delete<'a>(&'a self, to: &'a Route, message_id: &'a str) -> BoxFuture<'a, Result<(), Error>>;

    fn check(&self) -> BoxFuture<'_, Result<String, Error>> {
        Box::pin(async { Ok(self.account().to_owned()) })
    }

    fn typing<'a>(&'a self, _to: &'a Route) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the platform answered: {code}")]
pub struct Error {
    pub fault: Fault,
    pub reached: Reached,
    pub kind: Kind,
    pub code: &'static str,
}
