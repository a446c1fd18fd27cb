//! One socket of Socket Mode. Whatever comes in is a sign of life; nothing else is.

use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::json;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::Message;

use super::api::{Sort, Token};
use super::wire::{Frame, Opened};
use super::{Error, Slack};
use crate::websocket::{self, Stream};

/// Largest envelope that is read.
const LARGEST: usize = 16 << 20;
/// A line that does not take a few bytes within this is gone.
const SAY_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Socket {
    /// Ascending; acknowledgements go back over the socket of this number or not at all.
    pub(super) number: u64,
    pub(super) opened: Instant,
    /// When anything came in last.
    pub(super) heard: Instant,
    /// Since when we know that it will be closed.
    pub(super) leaving: Option<Instant>,
    stream: Stream,
}

#[derive(Debug)]
pub(super) enum Heard {
    Text(String),
    /// A ping, a pong: alive.
    Beat,
    Ended(String),
}

impl Socket {
    pub(super) async fn dial(number: u64, url: &str, proxy: Option<&str>) -> Result<Self, Error> {
        let stream = websocket::dial(websocket::address(url)?, proxy, LARGEST, None).await?;
        let now = Instant::now();
        Ok(Self { number, opened: now, heard: now, leaving: None, stream })
    }

    /// The next thing that comes in. May be abandoned and asked again.
    pub(super) async fn hear(&mut self) -> Heard {
        std::future::poll_fn(|cx| self.poll_hear(cx)).await
    }

    pub(super) fn poll_hear(&mut self, cx: &mut Context<'_>) -> Poll<Heard> {
        let heard = match std::task::ready!(self.stream.poll_next_unpin(cx)) {
            Some(Ok(Message::Text(text))) => Heard::Text(text.as_str().to_owned()),
            Some(Ok(Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {
                Heard::Beat
            }
            Some(Ok(Message::Close(_))) | None => Heard::Ended("closed".to_owned()),
            Some(Err(error)) => Heard::Ended(error.to_string()),
        };
        self.heard = Instant::now();
        Poll::Ready(heard)
    }

    pub(super) async fn say(&mut self, text: String) -> Result<(), Error> {
        self.put(Message::text(text)).await
    }

    pub(super) async fn ping(&mut self) -> Result<(), Error> {
        self.put(Message::Ping(Vec::new().into())).await
    }

    /// Best effort: whoever does not hear it sees the line end.
    pub(super) async fn close(mut self) {
        let _gone_anyway = self.put(Message::Close(None)).await;
    }

    async fn put(&mut self, message: Message) -> Result<(), Error> {
        match timeout(SAY_WITHIN, self.stream.send(message)).await {
            Ok(sent) => sent.map_err(|error| Error::Dropped(error.to_string())),
            Err(_elapsed) => Err(Error::Silent(SAY_WITHIN)),
        }
    }
}

impl Slack {
    /// A socket that has said hello.
    pub(super) async fn open(&self, number: u64) -> Result<Socket, Error> {
        if self.memory().teams.0.is_empty() {
            self.sign_in().await?;
        }
        let token = Token { secret: self.config.app_token.clone(), sort: Sort::App };
        let Opened { url } = self.api.post(&token, "apps.connections.open", &json!({})).await?;
        let within = self.config.hello_timeout;
        match timeout(within, self.greeted(number, &url)).await {
            Ok(outcome) => outcome,
            Err(_elapsed) => Err(Error::NoHello(within)),
        }
    }

    async fn greeted(&self, number: u64, url: &str) -> Result<Socket, Error> {
        let proxy = self.config.proxy.as_ref().map(|proxy| proxy.expose());
        let mut socket = Socket::dial(number, url, proxy).await?;
        loop {
            match socket.hear().await {
                Heard::Text(text) => match serde_json::from_str::<Frame>(&text) {
                    Ok(frame) if frame.kind == "hello" => return Ok(socket),
                    Ok(frame) if frame.kind == "disconnect" => return Err(ended(frame.reason.as_deref())),
                    // Unacknowledged, so it is said again.
                    Ok(_) | Err(_) => {}
                },
                Heard::Beat => {}
                Heard::Ended(reason) => return Err(Error::Dropped(reason)),
            }
        }
    }
}

/// What the announced end of a socket means.
pub(super) fn ended(reason: Option<&str>) -> Error {
    match reason {
        Some("link_disabled") => Error::Disabled,
        Some(reason) => Error::Dropped(reason.chars().take(40).collect()),
        None => Error::Dropped("disconnect".to_owned()),
    }
}
