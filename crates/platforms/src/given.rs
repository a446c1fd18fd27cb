//! An adapter for a platform, and a connection to a connector, that are given as values: simulations bring their own.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use petasos_core::message::Attachment;
use petasos_core::{Capabilities, Fault, Platform, Reached, Route};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{Fetched, Health, Intake, Kind, Limits, Part, Receipt, SendOptions, download};

/// The bytes below a connection.
pub trait Io: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin {}

/// Opens connections to a connector.
pub trait Dial: fmt::Debug + Send + Sync {
    /// `Err`: the status of the refusal; none, if nothing answers.
    fn dial(&self, bearer: Option<String>) -> Pending<'_, Result<Box<dyn Io>, Option<u16>>>;
}

/// A future of a method of [`Given`] or [`Dial`].
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What an adapter does; see the methods of [`crate::Adapter`].
pub trait Given: fmt::Debug + Send + Sync {
    fn platform(&self) -> Platform;

    fn account(&self) -> &str;

    fn capabilities(&self) -> &Capabilities;

    fn limits(&self) -> &Limits;

    fn receive<'a>(
        &'a self,
        cursor: Option<String>,
        intake: &'a Intake,
        health: &'a mut (dyn FnMut(Health) + Send),
    ) -> Pending<'a, Error>;

    fn fetch<'a>(
        &'a self,
        attachment: &'a Attachment,
        most: u64,
        to: &'a mut tokio::fs::File,
    ) -> Pending<'a, Result<Fetched, download::Error>>;

    fn render(&self, text: &str) -> Vec<Part>;

    fn preview(&self, text: &str, cursor: &str) -> String;

    fn send<'a>(
        &'a self,
        to: &'a Route,
        part: &'a Part,
        options: &'a SendOptions<'a>,
        key: Option<&'a str>,
    ) -> Pending<'a, Result<Receipt, Error>>;

    fn key_memory(&self) -> Option<Duration>;

    fn edit<'a>(
        &'a self,
        to: &'a Route,
        message_id: &'a str,
        part: &'a Part,
    ) -> Pending<'a, Result<Receipt, Error>>;

    fn delete<'a>(&'a self, to: &'a Route, message_id: &'a str) -> Pending<'a, Result<(), Error>>;

    fn check(&self) -> Pending<'_, Result<String, Error>> {
        Box::pin(async { Ok(self.account().to_owned()) })
    }

    fn typing<'a>(&'a self, _to: &'a Route) -> Pending<'a, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }
}

/// A refusal or a failure of a given platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the platform answered: {code}")]
pub struct Error {
    pub fault: Fault,
    pub reached: Reached,
    pub kind: Kind,
    pub code: &'static str,
}
