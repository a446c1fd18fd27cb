//! HTTP client. One call is one attempt; errors say whether the request may have had an effect.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use petasos_core::{Fault, Reached};
use reqwest::dns::Resolve;
use reqwest::header::RETRY_AFTER;
use reqwest::{Client, ClientBuilder, RequestBuilder, Response, Url};

const BODY_LIMIT: usize = 64 * 1024 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Shorter than the servers' idle timeout, so we rarely write to a closed connection.
const IDLE: Duration = Duration::from_secs(30);
const IDLE_CONNECTIONS: usize = 16;

#[derive(Debug, Default)]
pub struct HttpResponse {
    pub status: u16,
    pub body: Vec<u8>,
    /// The `Retry-After` header, if it is in seconds.
    pub retry_after: Option<Duration>,
}

/// No response. The texts contain no address, since some addresses contain tokens.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// Refused, unknown host or failed TLS: the request was not written.
    #[error("cannot connect ({0})")]
    ConnectFailed(String),
    #[error("connection lost ({0})")]
    ConnectionLost(String),
    #[error("no response within {0:?}")]
    Timeout(Duration),
    #[error("the response is larger than {BODY_LIMIT} bytes")]
    TooLarge,
    #[error("malformed response ({0})")]
    Malformed(String),
    /// Nothing was written.
    #[error("the file cannot be read ({0})")]
    UnreadableFile(String),
}

impl HttpError {
    pub fn fault(&self) -> Fault {
        match self {
            Self::ConnectFailed(_)
            | Self::ConnectionLost(_)
            | Self::Timeout(_)
            | Self::TooLarge
            | Self::Malformed(_) => Fault::Later { after: None },
            // Later messages must not wait for it.
            Self::UnreadableFile(_) => Fault::Refused,
        }
    }

    pub fn reached(&self) -> Reached {
        match self {
            Self::ConnectFailed(_) | Self::UnreadableFile(_) => Reached::No,
            Self::ConnectionLost(_) | Self::Timeout(_) | Self::TooLarge | Self::Malformed(_) => {
                Reached::Maybe
            }
        }
    }
}

/// A client with its own connection pool. It follows no redirects: they would take a token in the path
/// elsewhere.
pub fn client(base: &Url, proxy: Option<&str>) -> Result<Client, reqwest::Error> {
    builder(base, proxy)?.build()
}

/// HTTP/1.1 only, for connections that are upgraded to WebSockets.
pub fn http1_client(base: &Url, proxy: Option<&str>) -> Result<Client, reqwest::Error> {
    builder(base, proxy)?.http1_only().build()
}

/// For untrusted addresses; `resolver` restricts them.
pub(crate) fn public_client(
    proxy: Option<&str>,
    resolver: Arc<impl Resolve + 'static>,
) -> Result<Client, reqwest::Error> {
    let mut builder = base_builder();
    if let Some(proxy) = proxy {
        builder = builder.proxy(reqwest::Proxy::all(proxy)?);
    }
    builder.dns_resolver(resolver).build()
}

/// Hosts of the configured proxy, or else of the system's.
pub(crate) fn proxy_hosts(named: Option<&str>) -> Vec<String> {
    const SYSTEM: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
    let all: Vec<String> = match named {
        Some(named) => vec![named.to_owned()],
        None => SYSTEM.iter().filter_map(|name| std::env::var(name).ok()).collect(),
    };
    // The scheme is optional.
    let parsed = |at: &String| Url::parse(at).ok().filter(Url::has_host);
    let host =
        |at: &String| parsed(at).or_else(|| parsed(&format!("http://{at}")))?.host_str().map(str::to_owned);
    all.iter().filter_map(host).collect()
}

pub(crate) fn base_builder() -> ClientBuilder {
    Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .user_agent(concat!("petasos/", env!("CARGO_PKG_VERSION")))
}

fn builder(base: &Url, proxy: Option<&str>) -> Result<ClientBuilder, reqwest::Error> {
    let mut builder = base_builder();
    if is_loopback(base) {
        builder = builder.no_proxy();
    } else if let Some(proxy) = proxy {
        builder = builder.proxy(reqwest::Proxy::all(proxy)?);
    }
    if base.scheme() == "http" {
        // Reading the system's certificates dominates the start time.
        builder = builder.tls_certs_only([]);
    }
    Ok(builder)
}

pub async fn send(request: RequestBuilder, within: Duration) -> Result<HttpResponse, HttpError> {
    match tokio::time::timeout(within, exchange(request)).await {
        Ok(outcome) => outcome,
        Err(_elapsed) => Err(HttpError::Timeout(within)),
    }
}

async fn exchange(request: RequestBuilder) -> Result<HttpResponse, HttpError> {
    let mut response = request.send().await.map_err(http_error)?;
    let status = response.status().as_u16();
    let retry_after = retry_after(&response);
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(http_error)? {
        if body.len() + chunk.len() > BODY_LIMIT {
            return Err(HttpError::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(HttpResponse { status, body, retry_after })
}

pub(crate) fn retry_after(response: &Response) -> Option<Duration> {
    let value = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    Duration::try_from_secs_f64(value.trim().parse().ok()?).ok()
}

pub(crate) fn http_error(error: reqwest::Error) -> HttpError {
    let error = error.without_url();
    let unreached = error.is_connect() || error.is_builder();
    let text = root_cause(&error);
    if unreached { HttpError::ConnectFailed(text) } else { HttpError::ConnectionLost(text) }
}

/// The innermost cause, for example of the operating system or of TLS; the outer texts only name layers of the client.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

fn is_loopback(url: &Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_loopback_addresses() {
        for (url, want) in [
            ("http://127.0.0.1:9/bot", true),
            ("http://[::1]:9/", true),
            ("http://LocalHost/", true),
            ("https://api.telegram.org/bot", false),
            ("http://10.0.0.1/", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(url).expect("url")), want, "{url}");
        }
    }

    #[test]
    fn root_cause_is_the_innermost_error() {
        let refused = std::io::Error::other("connection refused");
        let wrapped = std::io::Error::other(std::io::Error::other(refused));
        assert_eq!(root_cause(&wrapped), "connection refused");
    }

    #[test]
    fn parses_proxy_hosts_in_every_notation() {
        for (named, want) in [
            ("http://proxy.local:3128", "proxy.local"),
            ("http://me:secret@proxy.local", "proxy.local"),
            ("proxy.local:3128", "proxy.local"),
        ] {
            assert_eq!(proxy_hosts(Some(named)), [want], "{named}");
        }
    }

    #[tokio::test]
    async fn refused_connection_has_no_effect_and_hides_the_path() {
        let port = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            listener.local_addr().expect("an address").port()
        };
        let url = Url::parse(&format!("http://127.0.0.1:{port}/bot123:abc/getMe")).expect("url");
        let client = client(&url, None).expect("a client");
        let failure = send(client.get(url), Duration::from_secs(5)).await.expect_err("no listener");
        assert_eq!(failure.reached(), Reached::No, "{failure}");
        assert!(!failure.to_string().contains("123:abc"), "{failure}");
    }
}
