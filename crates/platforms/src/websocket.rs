//! Opens a WebSocket. The HTTP client dials, so that proxies, certificates and loopback follow one rule; the
//! upgraded connection is spoken to by tungstenite. What is said over it is for the platform to know.

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

use crate::http::{self, Failure};

pub(crate) type Stream = WebSocketStream<Connection>;

/// The bytes below a WebSocket.
#[derive(Debug)]
pub(crate) enum Connection {
    Upgraded(Upgraded),
    #[cfg(feature = "simulation")]
    Given(Box<dyn crate::given::Io>),
}

/// The same call on whichever kind of connection it is.
macro_rules! each {
    ($connection:expr, $it:ident => $call:expr) => {
        match $connection {
            Connection::Upgraded($it) => $call,
            #[cfg(feature = "simulation")]
            Connection::Given($it) => $call,
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

/// There is no socket.
#[derive(Debug)]
pub(crate) enum NotOpened {
    Failed(Failure),
    /// Something answered, and stayed with HTTP.
    Answered {
        status: u16,
    },
}

impl From<Failure> for NotOpened {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// `wss://` is `https://` until the upgrade. Other addresses are not dialled.
pub(crate) fn address(url: &str) -> Result<Url, Failure> {
    let rest = url.strip_prefix("ws").filter(|rest| rest.starts_with(':') || rest.starts_with("s:"));
    let parsed = rest.and_then(|rest| Url::parse(&format!("http{rest}")).ok());
    parsed.ok_or_else(|| Failure::Garbage("no address of a socket".into()))
}

/// `largest`: the longest message that is read, in bytes. `bearer`: who we are, if the upgrade asks for it.
pub(crate) async fn dial(
    url: Url,
    proxy: Option<&str>,
    largest: usize,
    bearer: Option<&str>,
) -> Result<Stream, NotOpened> {
    let key = generate_key();
    let mut request = http::upgradable(&url, proxy)
        .map_err(http::failure)?
        .get(url)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_VERSION, "13")
        .header(SEC_WEBSOCKET_KEY, &key);
    if let Some(bearer) = bearer {
        request = request.bearer_auth(bearer);
    }
    let response = request.send().await.map_err(http::failure)?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(NotOpened::Answered { status: response.status().as_u16() });
    }
    let accepted = response.headers().get(SEC_WEBSOCKET_ACCEPT).map(|value| value.as_bytes());
    if accepted != Some(derive_accept_key(key.as_bytes()).as_bytes()) {
        return Err(Failure::Garbage("no WebSocket".into()).into());
    }
    let upgraded = response.upgrade().await.map_err(http::failure)?;
    Ok(stream(Connection::Upgraded(upgraded), largest).await)
}

/// The same over a connection of a simulation.
#[cfg(feature = "simulation")]
pub(crate) async fn dial_given(
    dial: &dyn crate::given::Dial,
    largest: usize,
    bearer: Option<String>,
) -> Result<Stream, NotOpened> {
    match dial.dial(bearer).await {
        Ok(io) => Ok(stream(Connection::Given(io), largest).await),
        Err(Some(status)) => Err(NotOpened::Answered { status }),
        Err(None) => Err(NotOpened::Failed(Failure::Unreached("simulated".into()))),
    }
}

async fn stream(connection: Connection, largest: usize) -> Stream {
    let limits = WebSocketConfig::default().max_message_size(Some(largest)).max_frame_size(Some(largest));
    WebSocketStream::from_raw_socket(connection, Role::Client, Some(limits)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_socket_addresses_are_dialled() {
        let dialled = |url| address(url).ok().map(String::from);
        assert_eq!(dialled("wss://e.org/link?ticket=1").as_deref(), Some("https://e.org/link?ticket=1"));
        assert_eq!(dialled("ws://127.0.0.1:9/").as_deref(), Some("http://127.0.0.1:9/"));
        for url in ["https://e.org/", "file:///etc/passwd", "", "ws", "wsftp://e.org", "nonsense"] {
            assert_eq!(dialled(url), None, "{url}");
        }
    }
}
