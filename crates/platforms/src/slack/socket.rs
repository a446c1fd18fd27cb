//! One socket of Socket Mode. Whatever comes in is a sign of life; nothing else is.

use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::Message;

use super::Error;
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
        let stream = websocket::dial(websocket::address(url)?, proxy, LARGEST).await?;
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
