//! HTTP listener of the webhook adapters and the connector.
//!
//! Strangers can reach it, so connections, headers, bodies and their times are bounded. One connection
//! carries one request. Dropping `serve` cuts off requests under way; callers without a response retry, and
//! the inbox deduplicates.

pub mod body_budget;
mod connection_slots;
pub(crate) mod self_check;

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use petasos_core::Fault;
use petasos_runtime::clock;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{debug, warn};

use body_budget::{Budget, Charge, WEBHOOKS};
pub use connection_slots::{ConnectionSlot, ConnectionSlots};

pub type Request = axum::http::Request<Incoming>;

const MAX_CONNECTIONS: usize = 64;
const MAX_HEADERS: usize = 100;
const MAX_HEAD_BYTES: usize = 32 * 1024;
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
const BODY_TIMEOUT: Duration = Duration::from_secs(20);
/// From the first byte to the last.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause after a failed `accept`, when file handles have run out.
const ACCEPT_RETRY: Duration = Duration::from_millis(200);
pub(crate) const SELF_CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// Address to bind, and the setting that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenAddress {
    pub host: String,
    pub port: u16,
    pub port_key: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// May pass: the process that we replace may still hold it.
    #[error("port {} on {} is already in use; stop the program that uses it, or set {} to another port", .0.port, .0.host, .0.port_key)]
    InUse(ListenAddress),
    /// May pass: file handles have run out, or the address does not exist yet.
    #[error("cannot listen on {} port {} ({why}); will retry; check {} and the host setting", .listen.host, .listen.port, .listen.port_key)]
    Unavailable { listen: ListenAddress, why: String },
    #[error("cannot listen on {} port {} ({why}); check {} and the host setting", .listen.host, .listen.port, .listen.port_key)]
    InvalidAddress { listen: ListenAddress, why: String },
}

impl BindError {
    pub fn fault(&self) -> Fault {
        match self {
            Self::InUse(_) | Self::Unavailable { .. } => Fault::Later { after: None },
            Self::InvalidAddress { .. } => Fault::Fatal,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyError {
    TooLarge,
    TooSlow,
    Broken,
    /// The body budget is used up.
    NoMemory,
}

/// Whether only programs on this machine can reach this host.
pub fn is_loopback(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    slots: Arc<Semaphore>,
    budget: &'static Budget,
}

impl Listener {
    pub async fn bind(listen: &ListenAddress) -> Result<Self, BindError> {
        let bound = async {
            let socket = TcpListener::bind((listen.host.as_str(), listen.port)).await?;
            let address = socket.local_addr()?;
            let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
            Ok(Self { socket, address, slots, budget: &WEBHOOKS })
        };
        bound.await.map_err(|error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse(listen.clone()),
            io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput => {
                BindError::InvalidAddress { listen: listen.clone(), why: error.to_string() }
            }
            _ => BindError::Unavailable { listen: listen.clone(), why: error.to_string() },
        })
    }

    pub fn with_budget(self, budget: &'static Budget) -> Self {
        Self { budget, ..self }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves requests until it is dropped.
    pub async fn serve<F>(&self, answer: impl Fn(Request) -> F + Clone + Send + Sync + 'static) -> Infallible
    where
        F: Future<Output = Response> + Send + 'static,
    {
        // Dropped together with this future.
        let mut connections = JoinSet::new();
        let mut slots = ConnectionSlots::with_semaphore(self.slots.clone());
        loop {
            let stream = self.accept().await;
            let Some(permit) = slots.acquire().await else { return std::future::pending().await };
            while connections.try_join_next().is_some() {}
            let answer = answer.clone();
            let slot = ConnectionSlot::default();
            let its = slot.clone();
            let budget = self.budget;
            let task = petasos_runtime::spawn_into(&mut connections, async move {
                serve_connection(stream, answer, its, budget).await;
                drop(permit);
            });
            slots.register(task, slot);
        }
    }

    async fn accept(&self) -> TcpStream {
        loop {
            match self.socket.accept().await {
                Ok((stream, _caller)) => return stream,
                Err(error) => {
                    warn!(%error, "cannot accept a connection");
                    clock::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }

    pub(crate) fn at_capacity(&self) -> bool {
        self.slots.available_permits() == 0
    }

    /// Whether a request to `path` gets a 200 response.
    pub(crate) async fn responds(&self, path: &str, within: Duration) -> bool {
        responds(self.address, path, within).await
    }
}

/// Whether another listener at this address responds to `path`.
pub(crate) async fn is_served(listen: &ListenAddress, path: &str) -> bool {
    match tokio::net::lookup_host((listen.host.as_str(), listen.port)).await.map(|mut found| found.next()) {
        Ok(Some(address)) => responds(address, path, SELF_CHECK_TIMEOUT).await,
        Ok(None) | Err(_) => false,
    }
}

async fn responds(address: SocketAddr, path: &str, within: Duration) -> bool {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let asked = timeout(within, probe(SocketAddr::new(ip, address.port()), path)).await;
    matches!(asked, Ok(Ok(true)))
}

async fn probe(address: SocketAddr, path: &str) -> io::Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await?;
    Ok(head == *b"HTTP/1.1 200")
}

/// HTTP/1 with header limits. A connection that waits for its next request is under `head_within`, too.
pub fn bounded_http1(head_within: Duration) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(head_within)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD_BYTES);
    builder
}

async fn serve_connection<F>(
    stream: TcpStream,
    answer: impl Fn(Request) -> F,
    slot: ConnectionSlot,
    budget: &'static Budget,
) where
    F: Future<Output = Response>,
{
    let service = service_fn(|mut request: Request| {
        let charge = Arc::new(Charge::new(budget));
        request.extensions_mut().insert(slot.clone());
        request.extensions_mut().insert(charge.clone());
        let answered = answer(request);
        async move {
            let mut response = answered.await;
            drop(charge);
            // One request per connection. The builder's own option would close upgrades, too.
            if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                response.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let conversation = bounded_http1(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        // An upgraded connection leaves the connection limit.
        .with_upgrades();
    match timeout(REQUEST_TIMEOUT, conversation).await {
        Ok(Ok(())) => {}
        // Strangers may send anything, so this is not a warning.
        Ok(Err(error)) => debug!(%error, "request failed"),
        Err(_elapsed) => debug!("request timed out"),
    }
}

/// The whole body, byte for byte: signatures cover it.
pub async fn read_body(parts: &Parts, body: Incoming, limit: usize) -> Result<Bytes, BodyError> {
    let charge = parts.extensions.get::<Arc<Charge>>();
    if announced(&parts.headers).is_some_and(|length| length > limit) {
        return Err(BodyError::TooLarge);
    }
    let gather = async {
        let mut chunks = Body::new(body).into_data_stream();
        let mut bytes = BytesMut::new();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|_broken| BodyError::Broken)?;
            if bytes.len() + chunk.len() > limit {
                return Err(BodyError::TooLarge);
            }
            charge
                .map_or(Ok(()), |charge| charge.add(chunk.len()))
                .map_err(|_exhausted| BodyError::NoMemory)?;
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes.freeze())
    };
    timeout(BODY_TIMEOUT, gather).await.unwrap_or(Err(BodyError::TooSlow))
}

fn announced(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

pub fn json_response(status: StatusCode, body: &Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

pub fn error_response(status: StatusCode, error: &str) -> Response {
    json_response(status, &serde_json::json!({ "error": error }))
}

pub fn body_error_response(error: BodyError) -> Response {
    match error {
        BodyError::TooLarge => error_response(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"),
        BodyError::TooSlow => {
            error_response(StatusCode::REQUEST_TIMEOUT, "the body was not received in time")
        }
        BodyError::Broken => error_response(StatusCode::BAD_REQUEST, "the body ends too early"),
        BodyError::NoMemory => with_retry_after(
            error_response(StatusCode::SERVICE_UNAVAILABLE, "too many request bodies at once"),
            1,
        ),
    }
}

pub(crate) fn with_retry_after(mut response: Response, seconds: u64) -> Response {
    response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    response
}

#[cfg(test)]
mod tests;
