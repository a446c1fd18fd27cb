//! The socket to the gateway: how it is dialled, what we say over it, and how it is left.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use reqwest::Url;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

use super::Error;
use crate::http::Failure;
use crate::websocket::{self, Stream};

/// Longest frame that is read: a server of thousands of channels is told in one.
const LARGEST: usize = 64 * 1024 * 1024;
/// A frame of ours is small; who does not take it is not there.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Any code but 1000 and 1001 leaves the session as it is.
const STILL_HERE: u16 = 4000;

#[derive(Debug)]
pub(super) struct Socket(Stream);

/// What came through.
#[derive(Debug)]
pub(super) enum Heard {
    Text(String),
    /// Closed, with the code if there was one, or simply ended.
    Closed(Option<u16>),
}

impl Socket {
    pub(super) async fn dial(url: &str, proxy: Option<&str>) -> Result<Self, Error> {
        Ok(Self(websocket::dial(address(url)?, proxy, LARGEST, None).await?))
    }

    /// Safe to drop and call again: nothing is lost between two calls.
    pub(super) async fn hear(&mut self) -> Heard {
        loop {
            match self.0.next().await {
                Some(Ok(Message::Text(text))) => return Heard::Text(text.as_str().to_owned()),
                Some(Ok(Message::Close(frame))) => {
                    return Heard::Closed(frame.map(|frame| u16::from(frame.code)));
                }
                Some(Ok(Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Err(_)) | None => return Heard::Closed(None),
            }
        }
    }

    /// False: it could not be said, and the socket is of no use any more.
    pub(super) async fn say(&mut self, frame: &impl serde::Serialize) -> bool {
        let Ok(text) = serde_json::to_string(frame) else { return false };
        let sent = timeout(WRITE_TIMEOUT, self.0.send(Message::Text(text.into()))).await;
        matches!(sent, Ok(Ok(())))
    }

    /// Leaves so that the session can be resumed. Whether it is heard does not matter.
    pub(super) async fn leave(mut self) {
        let frame = CloseFrame { code: STILL_HERE.into(), reason: "".into() };
        let _unheard = timeout(CLOSE_TIMEOUT, self.0.close(Some(frame))).await;
    }
}

/// With the version and encoding we speak.
fn address(url: &str) -> Result<Url, Failure> {
    let mut url = websocket::address(url)?;
    url.set_query(Some("v=10&encoding=json"));
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_dialled_with_version_and_encoding() {
        for (url, want) in [
            ("wss://gateway.discord.gg", "https://gateway.discord.gg/?v=10&encoding=json"),
            ("ws://127.0.0.1:9/gw?x=1", "http://127.0.0.1:9/gw?v=10&encoding=json"),
        ] {
            assert_eq!(address(url).expect("an address").as_str(), want, "{url}");
        }
    }
}
