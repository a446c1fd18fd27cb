//! One HTTP request is one try. What comes back is either a whole answer or a failure that says whether
//! the request may have had its effect.

use std::error::Error as _;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use petasos_core::{Fault, Reached};
use reqwest::dns::Resolve;
use reqwest::header::RETRY_AFTER;
use reqwest::{Client, ClientBuilder, RequestBuilder, Response, Url};

/// Longest answer that is read into memory.
const BODY_LIMIT: usize = 64 * 1024 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Shorter than servers keep idle connections, so that we seldom write into one that has just been closed.
const IDLE: Duration = Duration::from_secs(30);
/// Connections kept for the next request.
const IDLE_CONNECTIONS: usize = 16;

/// A status and a body; whether it is good news is for the protocol to say.
#[derive(Debug, Default)]
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
    /// The wait that the header of this name asks for, if it is in seconds.
    pub retry_after: Option<Duration>,
}

/// There is no answer. The texts name no address: tokens are part of some.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Refused, unknown host, failed TLS: the request was not written.
    #[error("no connection ({0})")]
    Unreached(String),
    #[error("the connection broke ({0})")]
    Lost(String),
    #[error("no answer within {0:?}")]
    Silent(Duration),
    #[error("the answer is larger than {BODY_LIMIT} bytes")]
    TooLarge,
    #[error("the answer makes no sense ({0})")]
    Garbage(String),
    /// What we were to send could not be read; nothing was written.
    #[error("the file cannot be read ({0})")]
    File(String),
}

impl Failure {
    pub fn fault(&self) -> Fault {
        match self {
            Self::Unreached(_) | Self::Lost(_) | Self::Silent(_) | Self::TooLarge | Self::Garbage(_) => {
                Fault::Later { after: None }
            }
            // What follows it must not wait for it.
            Self::File(_) => Fault::Refused,
        }
    }

    pub fn reached(&self) -> Reached {
        match self {
            Self::Unreached(_) | Self::File(_) => Reached::No,
            Self::Lost(_) | Self::Silent(_) | Self::TooLarge | Self::Garbage(_) => Reached::Maybe,
        }
    }
}

/// A client with its own connection pool for one base address. Redirects are not followed: they would
/// carry a token in the path elsewhere.
pub fn client(base: &Url, proxy: Option<&str>) -> Result<Client, reqwest::Error> {
    builder(base, proxy)?.build()
}

/// One whose connections can become something else, such as a WebSocket: HTTP/2 knows no upgrade.
pub fn upgradable(base: &Url, proxy: Option<&str>) -> Result<Client, reqwest::Error> {
    builder(base, proxy)?.http1_only().build()
}

/// One for addresses that others name: `resolver` says where a name may lead.
pub(crate) fn public(
    proxy: Option<&str>,
    resolver: Arc<impl Resolve + 'static>,
) -> Result<Client, reqwest::Error> {
    let mut builder = common();
    if let Some(proxy) = proxy {
        builder = builder.proxy(reqwest::Proxy::all(proxy)?);
    }
    builder.dns_resolver(resolver).build()
}

/// The hosts of the proxies that a request to the open internet may take: the one that was named, else the system's.
pub(crate) fn proxies(named: Option<&str>) -> Vec<String> {
    const SYSTEM: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
    let all: Vec<String> = match named {
        Some(named) => vec![named.to_owned()],
        None => SYSTEM.iter().filter_map(|name| std::env::var(name).ok()).collect(),
    };
    // The scheme may be left out.
    let parsed = |at: &String| Url::parse(at).ok().filter(Url::has_host);
    let host =
        |at: &String| parsed(at).or_else(|| parsed(&format!("http://{at}")))?.host_str().map(str::to_owned);
    all.iter().filter_map(host).collect()
}

pub(crate) fn common() -> ClientBuilder {
    Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .user_agent(concat!("petasos/", env!("CARGO_PKG_VERSION")))
}

fn builder(base: &Url, proxy: Option<&str>) -> Result<ClientBuilder, reqwest::Error> {
    let mut builder = common();
    if is_loopback(base) {
        builder = builder.no_proxy();
    } else if let Some(proxy) = proxy {
        builder = builder.proxy(reqwest::Proxy::all(proxy)?);
    }
    if base.scheme() == "http" {
        // Reading the system's certificates costs more than everything else at start.
        builder = builder.tls_certs_only([]);
    }
    Ok(builder)
}

/// Sends once and reads the whole answer.
pub async fn once(request: RequestBuilder, within: Duration) -> Result<Answer, Failure> {
    match tokio::time::timeout(within, exchange(request)).await {
        Ok(outcome) => outcome,
        Err(_elapsed) => Err(Failure::Silent(within)),
    }
}

async fn exchange(request: RequestBuilder) -> Result<Answer, Failure> {
    let mut response = request.send().await.map_err(failure)?;
    let status = response.status().as_u16();
    let retry_after = retry_after(&response);
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failure)? {
        if body.len() + chunk.len() > BODY_LIMIT {
            return Err(Failure::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Answer { status, body, retry_after })
}

pub(crate) fn retry_after(response: &Response) -> Option<Duration> {
    let value = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    Duration::try_from_secs_f64(value.trim().parse().ok()?).ok()
}

pub(crate) fn failure(error: reqwest::Error) -> Failure {
    let error = error.without_url();
    let unreached = error.is_connect() || error.is_builder();
    let text = chain(&error);
    if unreached { Failure::Unreached(text) } else { Failure::Lost(text) }
}

/// The error and its causes in one line; reqwest's own text alone says nothing.
fn chain(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
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
    fn loopback_is_known_in_every_spelling() {
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
    fn the_host_of_a_proxy_is_known_however_it_is_written() {
        for (named, want) in [
            ("http://proxy.local:3128", "proxy.local"),
            ("http://me:secret@proxy.local", "proxy.local"),
            ("proxy.local:3128", "proxy.local"),
        ] {
            assert_eq!(proxies(Some(named)), [want], "{named}");
        }
    }

    #[tokio::test]
    async fn a_refused_connection_did_not_reach_anyone_and_shows_no_path() {
        let port = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            listener.local_addr().expect("an address").port()
        };
        let url = Url::parse(&format!("http://127.0.0.1:{port}/bot123:abc/getMe")).expect("url");
        let client = client(&url, None).expect("a client");
        let failure = once(client.get(url), Duration::from_secs(5)).await.expect_err("nobody listens");
        assert_eq!(failure.reached(), Reached::No, "{failure}");
        assert!(!failure.to_string().contains("123:abc"), "{failure}");
    }
}
