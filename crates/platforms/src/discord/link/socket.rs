//! The gateway's WebSocket.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use reqwest::Url;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

use crate::discord::Error;
use crate::http::HttpError;
use crate::websocket::{self, WsStream};

/// A server with thousands of channels arrives in one frame.
const MAX_FRAME: usize = 64 * 1024 * 1024;
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Any code but 1000 and 1001 keeps the session.
const KEEP_SESSION: u16 = 4000;

#[derive(Debug)]
pub(in crate::discord) struct GatewaySocket(WsStream);

#[derive(Debug)]
pub(in crate::discord) enum SocketEvent {
    Text(String),
    /// With the close code, if there was one.
    Closed(Option<u16>),
}

impl GatewaySocket {
    pub(in crate::discord) async fn dial(url: &str, proxy: Option<&str>) -> Result<Self, Error> {
        Ok(Self(websocket::dial(gateway_address(url)?, proxy, MAX_FRAME, None).await?))
    }

    /// Cancel-safe.
    pub(in crate::discord) async fn receive(&mut self) -> SocketEvent {
        loop {
            match self.0.next().await {
                Some(Ok(Message::Text(text))) => return SocketEvent::Text(text.as_str().to_owned()),
                Some(Ok(Message::Close(frame))) => {
                    return SocketEvent::Closed(frame.map(|frame| u16::from(frame.code)));
                }
                Some(Ok(Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Err(_)) | None => return SocketEvent::Closed(None),
            }
        }
    }

    /// Returns false if the socket is broken.
    pub(in crate::discord) async fn send(&mut self, frame: &impl serde::Serialize) -> bool {
        let Ok(text) = serde_json::to_string(frame) else { return false };
        let sent = timeout(WRITE_TIMEOUT, self.0.send(Message::Text(text.into()))).await;
        matches!(sent, Ok(Ok(())))
    }

    /// Best effort; the close code keeps the session resumable.
    pub(in crate::discord) async fn close_resumable(mut self) {
        let frame = CloseFrame { code: KEEP_SESSION.into(), reason: "".into() };
        let _unheard = timeout(CLOSE_TIMEOUT, self.0.close(Some(frame))).await;
    }
}

/// With the version and encoding that we support.
fn gateway_address(url: &str) -> Result<Url, HttpError> {
    let mut url = websocket::address(url)?;
    url.set_query(Some("v=10&encoding=json"));
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dials_with_version_and_encoding() {
        for (url, want) in [
            ("wss://gateway.discord.gg", "https://gateway.discord.gg/?v=10&encoding=json"),
            ("ws://127.0.0.1:9/gw?x=1", "http://127.0.0.1:9/gw?v=10&encoding=json"),
        ] {
            assert_eq!(gateway_address(url).expect("an address").as_str(), want, "{url}");
        }
    }
}
