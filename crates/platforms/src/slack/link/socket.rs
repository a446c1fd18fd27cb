//! One WebSocket of Socket Mode.

use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use petasos_runtime::clock;
use serde_json::json;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::Message;

use crate::slack::rest::api::{Token, TokenKind};
use crate::slack::wire::{SocketFrame, SocketUrl};
use crate::slack::{Error, Slack};
use crate::websocket::{self, WsStream};

const MAX_ENVELOPE: usize = 16 << 20;
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(in crate::slack) struct SlackSocket {
    /// Ascending. An envelope is acknowledged over the socket that delivered it, or not at all.
    pub(super) number: u64,
    pub(super) opened_at: Instant,
    pub(super) last_received: Instant,
    /// When Slack announced that it will close the socket.
    pub(super) retired_at: Option<Instant>,
    stream: WsStream,
}

#[derive(Debug)]
pub(super) enum SocketEvent {
    Text(String),
    /// A ping, a pong or another frame without text.
    Heartbeat,
    Closed(String),
}

impl SlackSocket {
    async fn dial(number: u64, url: &str, proxy: Option<&str>) -> Result<Self, Error> {
        let stream = websocket::dial(websocket::address(url)?, proxy, MAX_ENVELOPE, None).await?;
        let now = clock::monotonic();
        Ok(Self { number, opened_at: now, last_received: now, retired_at: None, stream })
    }

    /// Cancel-safe.
    async fn receive(&mut self) -> SocketEvent {
        std::future::poll_fn(|cx| self.poll_receive(cx)).await
    }

    pub(super) fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<SocketEvent> {
        let event = match std::task::ready!(self.stream.poll_next_unpin(cx)) {
            Some(Ok(Message::Text(text))) => SocketEvent::Text(text.as_str().to_owned()),
            Some(Ok(Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {
                SocketEvent::Heartbeat
            }
            Some(Ok(Message::Close(_))) | None => SocketEvent::Closed("closed".to_owned()),
            Some(Err(error)) => SocketEvent::Closed(error.to_string()),
        };
        self.last_received = clock::monotonic();
        Poll::Ready(event)
    }

    pub(super) async fn send_text(&mut self, text: String) -> Result<(), Error> {
        self.write(Message::text(text)).await
    }

    pub(super) async fn ping(&mut self) -> Result<(), Error> {
        self.write(Message::Ping(Vec::new().into())).await
    }

    /// Best effort.
    pub(super) async fn close(mut self) {
        let _already_gone = self.write(Message::Close(None)).await;
    }

    async fn write(&mut self, message: Message) -> Result<(), Error> {
        match timeout(WRITE_TIMEOUT, self.stream.send(message)).await {
            Ok(sent) => sent.map_err(|error| Error::SocketLost(error.to_string())),
            Err(_elapsed) => Err(Error::SocketSilent(WRITE_TIMEOUT)),
        }
    }
}

impl Slack {
    /// Returns a socket over which Slack has sent its hello.
    pub(super) async fn open_socket(&self, number: u64) -> Result<SlackSocket, Error> {
        if self.state().workspaces.0.is_empty() {
            self.sign_in().await?;
        }
        let token = Token { secret: self.config.app_token.clone(), kind: TokenKind::App };
        let SocketUrl { url } = self.api.post(&token, "apps.connections.open", &json!({})).await?;
        let limit = self.config.hello_timeout;
        match timeout(limit, self.dial_until_hello(number, &url)).await {
            Ok(outcome) => outcome,
            Err(_elapsed) => Err(Error::NoHello(limit)),
        }
    }

    async fn dial_until_hello(&self, number: u64, url: &str) -> Result<SlackSocket, Error> {
        let proxy = self.config.proxy.as_ref().map(|proxy| proxy.expose());
        let mut socket = SlackSocket::dial(number, url, proxy).await?;
        loop {
            match socket.receive().await {
                SocketEvent::Text(text) => match serde_json::from_str::<SocketFrame>(&text) {
                    Ok(frame) if frame.kind == "hello" => return Ok(socket),
                    Ok(frame) if frame.kind == "disconnect" => {
                        return Err(disconnect_error(frame.reason.as_deref()));
                    }
                    // Not acknowledged, so Slack delivers it again.
                    Ok(_) | Err(_) => {}
                },
                SocketEvent::Heartbeat => {}
                SocketEvent::Closed(reason) => return Err(Error::SocketLost(reason)),
            }
        }
    }
}

pub(super) fn disconnect_error(reason: Option<&str>) -> Error {
    match reason {
        Some("link_disabled") => Error::SocketModeDisabled,
        Some(reason) => Error::SocketLost(reason.chars().take(40).collect()),
        None => Error::SocketLost("disconnect".to_owned()),
    }
}
