//! WebSocket client. reqwest dials, so proxies, certificates and loopback follow one rule; tungstenite
//! handles the upgraded connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use reqwest::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use reqwest::{StatusCode, Upgraded, Url};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::http::{self, HttpError};

pub(crate) type WsStream = WebSocketStream<Connection>;

/// The bytes below a WebSocket.
#[derive(Debug)]
pub(crate) enum Connection {
    Upgraded(Upgraded),
    #[cfg(feature = "simulation")]
    Simulated(Box<dyn crate::simulated::Io>),
}

/// The same call on whichever kind of connection it is.
macro_rules! each {
    ($connection:expr, $it:ident => $call:expr) => {
        match $connection {
            Connection::Upgraded($it) => $call,
            #[cfg(feature = "simulation")]
            Connection::Simulated($it) => $call,
        }
    };
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(self.get_mut(), it => Pin::new(it).poll_read(context, to))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), it => Pin::new(it).poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), it => Pin::new(it).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), it => Pin::new(it).poll_shutdown(context))
    }
}

#[derive(Debug)]
pub(crate) enum DialError {
    Failed(HttpError),
    /// The server did not upgrade the connection.
    Answered {
        status: u16,
    },
}

impl From<HttpError> for DialError {
    fn from(failure: HttpError) -> Self {
        Self::Failed(failure)
    }
}

/// `wss://` becomes `https://` until the upgrade. Other schemes are refused.
pub(crate) fn address(url: &str) -> Result<Url, HttpError> {
    let rest = url.strip_prefix("ws").filter(|rest| rest.starts_with(':') || rest.starts_with("s:"));
    let parsed = rest.and_then(|rest| Url::parse(&format!("http{rest}")).ok());
    parsed.ok_or_else(|| HttpError::Malformed("no address of a socket".into()))
}

/// `largest`: the longest message in bytes. `bearer`: token for the upgrade request.
pub(crate) async fn dial(
    url: Url,
    proxy: Option<&str>,
    largest: usize,
    bearer: Option<&str>,
) -> Result<WsStream, DialError> {
    let key = generate_key();
    let mut request = http::http1_client(&url, proxy)
        .map_err(http::http_error)?
        .get(url)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_VERSION, "13")
        .header(SEC_WEBSOCKET_KEY, &key);
    if let Some(bearer) = bearer {
        request = request.bearer_auth(bearer);
    }
    let response = request.send().await.map_err(http::http_error)?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(DialError::Answered { status: response.status().as_u16() });
    }
    let accepted = response.headers().get(SEC_WEBSOCKET_ACCEPT).map(|value| value.as_bytes());
    if accepted != Some(derive_accept_key(key.as_bytes()).as_bytes()) {
        return Err(HttpError::Malformed("no WebSocket".into()).into());
    }
    let upgraded = response.upgrade().await.map_err(http::http_error)?;
    Ok(stream(Connection::Upgraded(upgraded), largest).await)
}

/// Dials over a simulated connection.
#[cfg(feature = "simulation")]
pub(crate) async fn dial_simulated(
    dial: &dyn crate::simulated::Dial,
    largest: usize,
    bearer: Option<String>,
) -> Result<WsStream, DialError> {
    match dial.dial(bearer).await {
        Ok(io) => Ok(stream(Connection::Simulated(io), largest).await),
        Err(Some(status)) => Err(DialError::Answered { status }),
        Err(None) => Err(DialError::Failed(HttpError::ConnectFailed("simulated".into()))),
    }
}

async fn stream(connection: Connection, largest: usize) -> WsStream {
    let limits = WebSocketConfig::default().max_message_size(Some(largest)).max_frame_size(Some(largest));
    WebSocketStream::from_raw_socket(connection, Role::Client, Some(limits)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dials_only_websocket_addresses() {
        let dialled = |url| address(url).ok().map(String::from);
        assert_eq!(dialled("wss://e.org/link?ticket=1").as_deref(), Some("https://e.org/link?ticket=1"));
        assert_eq!(dialled("ws://127.0.0.1:9/").as_deref(), Some("http://127.0.0.1:9/"));
        for url in ["https://e.org/", "file:///etc/passwd", "", "ws", "wsftp://e.org", "nonsense"] {
            assert_eq!(dialled(url), None, "{url}");
        }
    }
}
