//! One connection to a connector. Reading and writing do not wait for each other: a task of its own writes, in the
//! order in which it was told, and says goodbye when nobody tells it anything any more.

use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use petasos_relay::channel::Closed;
use petasos_relay::{LONGEST_READ, address, close};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::error::{CapacityError, Error as WsError};
use tracing::debug;

use super::{Config, Error};
use crate::websocket::{self, NotOpened, Stream};

/// Lines that may wait to be written.
const DEPTH: usize = 512;
/// A line that does not take a message within this is gone.
const SAY_WITHIN: Duration = Duration::from_secs(10);
const GOODBYE_WITHIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Socket {
    pub(super) generation: u64,
    /// When anything came in last.
    pub(super) heard: Instant,
    words: mpsc::Sender<Message>,
    ear: SplitStream<Stream>,
}

#[derive(Debug)]
pub(super) enum Heard {
    Data(Vec<u8>),
    /// A ping, a pong: alive.
    Beat,
    Ended {
        close: Option<Closed>,
        error: Error,
    },
}

impl Socket {
    pub(super) async fn dial(
        generation: u64,
        config: &Config,
        bearer: Option<String>,
    ) -> Result<Self, Error> {
        let stream = open(config, bearer).await?;
        let (mouth, ear) = stream.split();
        let (words, told) = mpsc::channel(DEPTH);
        petasos_runtime::spawn(write(mouth, told));
        Ok(Self { generation, heard: Instant::now(), words, ear })
    }

    /// The next thing that comes in. May be abandoned and asked again.
    pub(super) async fn hear(&mut self) -> Heard {
        let heard = match self.ear.next().await {
            Some(Ok(Message::Text(text))) => Heard::Data(text.as_bytes().to_vec()),
            Some(Ok(Message::Binary(bytes))) => Heard::Data(bytes.to_vec()),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => Heard::Beat,
            Some(Ok(Message::Close(frame))) => {
                let close = frame.map(|frame| Closed {
                    code: frame.code.into(),
                    expired: frame.reason.as_str() == close::EXPIRED,
                });
                Heard::Ended { close, error: Error::Closed { code: close.map(|close| close.code) } }
            }
            Some(Err(WsError::Capacity(CapacityError::MessageTooLong { .. }))) => {
                Heard::Ended { close: None, error: Error::TooBig }
            }
            Some(Err(_)) | None => Heard::Ended { close: None, error: Error::Closed { code: None } },
        };
        self.heard = Instant::now();
        heard
    }

    /// `false`: the other end does not take anything any more.
    #[must_use]
    pub(super) fn say(&self, line: String) -> bool {
        self.words.try_send(Message::text(line)).is_ok()
    }

    #[must_use]
    pub(super) fn ping(&self) -> bool {
        self.words.try_send(Message::Ping(Vec::new().into())).is_ok()
    }
}

async fn open(config: &Config, bearer: Option<String>) -> Result<Stream, NotOpened> {
    #[cfg(feature = "simulation")]
    if let Some(dial) = &config.dial {
        return websocket::dial_given(dial.as_ref(), LONGEST_READ, bearer).await;
    }
    let url = websocket::address(&address::dial(&config.url))?;
    websocket::dial(url, None, LONGEST_READ, bearer.as_deref()).await
}

async fn write(mut mouth: SplitSink<Stream, Message>, mut told: mpsc::Receiver<Message>) {
    while let Some(message) = told.recv().await {
        match timeout(SAY_WITHIN, mouth.send(message)).await {
            Ok(Ok(())) => {}
            // The reader sees the end, and the sender of the message hears that its fate is unknown.
            Ok(Err(error)) => return debug!(%error, "the relay's socket takes no more"),
            Err(_elapsed) => return debug!("the relay's socket does not take a message"),
        }
    }
    let _gone_anyway = timeout(GOODBYE_WITHIN, mouth.close()).await;
}
