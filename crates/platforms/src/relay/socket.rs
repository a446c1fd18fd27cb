//! One connection to a connector. A separate task writes in order and closes the socket when its queue is dropped.

use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use petasos_relay::channel::Closed;
use petasos_relay::{LONGEST_READ, address, close};
use petasos_runtime::clock;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::error::{CapacityError, Error as WsError};
use tracing::debug;

use super::{Config, Error};
use crate::websocket::{self, DialError, WsStream};

const WRITE_QUEUE: usize = 512;
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Socket {
    pub(super) generation: u64,
    pub(super) last_frame_at: Instant,
    queue: mpsc::Sender<Message>,
    stream: SplitStream<WsStream>,
}

#[derive(Debug)]
pub(super) enum SocketInput {
    Data(Vec<u8>),
    Heartbeat,
    Closed { close: Option<Closed>, error: Error },
}

impl Socket {
    pub(super) async fn dial(
        generation: u64,
        config: &Config,
        bearer: Option<String>,
    ) -> Result<Self, Error> {
        let stream = open(config, bearer).await?;
        let (sink, stream) = stream.split();
        let (queue, messages) = mpsc::channel(WRITE_QUEUE);
        petasos_runtime::spawn(write(sink, messages));
        Ok(Self { generation, last_frame_at: clock::monotonic(), queue, stream })
    }

    /// Cancel-safe.
    pub(super) async fn receive(&mut self) -> SocketInput {
        let input = match self.stream.next().await {
            Some(Ok(Message::Text(text))) => SocketInput::Data(text.as_bytes().to_vec()),
            Some(Ok(Message::Binary(bytes))) => SocketInput::Data(bytes.to_vec()),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => SocketInput::Heartbeat,
            Some(Ok(Message::Close(frame))) => {
                let close = frame.map(|frame| Closed {
                    code: frame.code.into(),
                    expired: frame.reason.as_str() == close::EXPIRED,
                });
                SocketInput::Closed { close, error: Error::Closed { code: close.map(|close| close.code) } }
            }
            Some(Err(WsError::Capacity(CapacityError::MessageTooLong { .. }))) => {
                SocketInput::Closed { close: None, error: Error::TooBig }
            }
            Some(Err(_)) | None => SocketInput::Closed { close: None, error: Error::Closed { code: None } },
        };
        self.last_frame_at = clock::monotonic();
        input
    }

    /// `false`: the peer accepts nothing more.
    #[must_use]
    pub(super) fn write(&self, line: String) -> bool {
        self.queue.try_send(Message::text(line)).is_ok()
    }

    #[must_use]
    pub(super) fn ping(&self) -> bool {
        self.queue.try_send(Message::Ping(Vec::new().into())).is_ok()
    }
}

async fn open(config: &Config, bearer: Option<String>) -> Result<WsStream, DialError> {
    #[cfg(feature = "simulation")]
    if let Some(dial) = &config.dial {
        return websocket::dial_simulated(dial.as_ref(), LONGEST_READ, bearer).await;
    }
    let url = websocket::address(&address::dial(&config.url))?;
    websocket::dial(url, None, LONGEST_READ, bearer.as_deref()).await
}

async fn write(mut sink: SplitSink<WsStream, Message>, mut messages: mpsc::Receiver<Message>) {
    while let Some(message) = messages.recv().await {
        match timeout(WRITE_TIMEOUT, sink.send(message)).await {
            Ok(Ok(())) => {}
            // The reader notices the end; pending requests get an unknown outcome.
            Ok(Err(error)) => return debug!(%error, "relay socket closed while writing"),
            Err(_elapsed) => return debug!("relay socket write timed out"),
        }
    }
    let _gone_anyway = timeout(CLOSE_TIMEOUT, sink.close()).await;
}
