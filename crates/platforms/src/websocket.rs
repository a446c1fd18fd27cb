//! Opens a WebSocket. The HTTP client dials, so that proxies, certificates and loopback follow one rule; the
//! upgraded connection is spoken to by tungstenite. What is said over it is for the platform to know.

use reqwest::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use reqwest::{StatusCode, Upgraded, Url};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::http::{self, Failure};

pub(crate) type Stream = WebSocketStream<Upgraded>;

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
    let limits = WebSocketConfig::default().max_message_size(Some(largest)).max_frame_size(Some(largest));
    Ok(WebSocketStream::from_raw_socket(upgraded, Role::Client, Some(limits)).await)
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
