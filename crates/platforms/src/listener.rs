//! A small HTTP listener for those who are called instead of calling: adapters, and the connector.
//!
//! Strangers can reach it, so everything has a bound: connections, headers, bodies, and the time for each. One
//! connection carries one request. Dropping `serve` cuts off what is under way; a caller without an answer repeats
//! its request, and the inbox knows what it already has.

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
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use crate::body_budget::{Budget, Charge, WEBHOOKS};
pub use crate::seats::Seat;
use crate::seats::Seats;

pub type Request = axum::http::Request<Incoming>;

/// Requests that are dealt with at the same time; see `seats`.
const CONNECTIONS: usize = 64;
const HEADERS: usize = 100;
const HEAD_BYTES: usize = 32 * 1024;
const HEAD_WITHIN: Duration = Duration::from_secs(5);
const BODY_WITHIN: Duration = Duration::from_secs(20);
/// From the first byte to the last; longer than any answer is waited for.
const ALL_WITHIN: Duration = Duration::from_secs(60);
/// How long to rest when nothing can be accepted: there are no file handles left.
const REST: Duration = Duration::from_millis(200);
/// How long our own listener may take to answer us.
pub(crate) const PROOF: Duration = Duration::from_secs(10);

/// Where to listen, and the setting that says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub host: String,
    pub port: u16,
    pub port_key: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotBound {
    /// Time may help: it may be the process that we replace.
    #[error("port {} on {} is in use; end whoever listens there, or choose another with {}", .0.port, .0.host, .0.port_key)]
    InUse(Place),
    /// So may it here: there are no file handles left, or the address is not there yet.
    #[error("cannot listen on {} port {} ({why}) for now; {} and the host beside it say where", .place.host, .place.port, .place.port_key)]
    NotNow { place: Place, why: String },
    #[error("cannot listen on {} port {} ({why}); {} and the host beside it say where", .place.host, .place.port, .place.port_key)]
    Impossible { place: Place, why: String },
}

impl NotBound {
    pub fn fault(&self) -> Fault {
        match self {
            Self::InUse(_) | Self::NotNow { .. } => Fault::Later { after: None },
            Self::Impossible { .. } => Fault::Fatal,
        }
    }
}

/// Why there is no body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    TooLarge,
    TooSlow,
    Broken,
    /// The bodies of others take all the memory that there is for them.
    NoRoom,
}

/// Whether only programs on this machine can reach a listener on this host.
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
    seats: Arc<Semaphore>,
    budget: &'static Budget,
}

impl Listener {
    pub async fn bind(place: &Place) -> Result<Self, NotBound> {
        let bound = async {
            let socket = TcpListener::bind((place.host.as_str(), place.port)).await?;
            let address = socket.local_addr()?;
            let seats = Arc::new(Semaphore::new(CONNECTIONS));
            Ok(Self { socket, address, seats, budget: &WEBHOOKS })
        };
        bound.await.map_err(|error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => NotBound::InUse(place.clone()),
            io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput => {
                NotBound::Impossible { place: place.clone(), why: error.to_string() }
            }
            _ => NotBound::NotNow { place: place.clone(), why: error.to_string() },
        })
    }

    /// Memory budget of its request bodies.
    pub fn with_budget(self, budget: &'static Budget) -> Self {
        Self { budget, ..self }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests until it is dropped.
    pub async fn serve<F>(&self, answer: impl Fn(Request) -> F + Clone + Send + Sync + 'static) -> Infallible
    where
        F: Future<Output = Response> + Send + 'static,
    {
        // Dropped with us, and with it every connection.
        let mut connections = JoinSet::new();
        let mut seats = Seats::of(self.seats.clone());
        loop {
            let stream = self.accept().await;
            let Some(permit) = seats.take().await else { return std::future::pending().await };
            while connections.try_join_next().is_some() {}
            let (answer, seat) = (answer.clone(), Seat::default());
            let (its, budget) = (seat.clone(), self.budget);
            let task = connections.spawn(async move {
                converse(stream, answer, its, budget).await;
                drop(permit);
            });
            seats.occupy(task, seat);
        }
    }

    async fn accept(&self) -> TcpStream {
        loop {
            match self.socket.accept().await {
                Ok((stream, _caller)) => return stream,
                Err(error) => {
                    warn!(%error, "a connection cannot be accepted");
                    sleep(REST).await;
                }
            }
        }
    }

    /// Whether as many are being dealt with as may be.
    pub(crate) fn is_full(&self) -> bool {
        self.seats.available_permits() == 0
    }

    /// Whether a request to `path` comes through to us and back.
    pub(crate) async fn answers(&self, path: &str, within: Duration) -> bool {
        answers(self.address, path, within).await
    }
}

/// Whether somebody at this place answers a request to `path`.
pub(crate) async fn is_served(place: &Place, path: &str) -> bool {
    match tokio::net::lookup_host((place.host.as_str(), place.port)).await.map(|mut found| found.next()) {
        Ok(Some(address)) => answers(address, path, PROOF).await,
        Ok(None) | Err(_) => false,
    }
}

async fn answers(address: SocketAddr, path: &str, within: Duration) -> bool {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let asked = timeout(within, ask(SocketAddr::new(ip, address.port()), path)).await;
    matches!(asked, Ok(Ok(true)))
}

async fn ask(address: SocketAddr, path: &str) -> io::Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await?;
    Ok(head == *b"HTTP/1.1 200")
}

/// What every listener of ours takes of a request's head: so much, within this time. A connection that waits for its
/// next request waits for a head, too.
pub fn bounded(head_within: Duration) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(head_within)
        .max_headers(HEADERS)
        .max_buf_size(HEAD_BYTES);
    builder
}

async fn converse<F>(stream: TcpStream, answer: impl Fn(Request) -> F, seat: Seat, budget: &'static Budget)
where
    F: Future<Output = Response>,
{
    let service = service_fn(|mut request: Request| {
        let charge = Arc::new(Charge::new(budget));
        request.extensions_mut().insert(seat.clone());
        request.extensions_mut().insert(charge.clone());
        let answered = answer(request);
        async move {
            let mut response = answered.await;
            drop(charge);
            // One request each; the builder's own way to say so would also say it of an upgrade.
            if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                response.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let conversation = bounded(HEAD_WITHIN)
        .serve_connection(TokioIo::new(stream), service)
        // A connection that becomes something else is not ours any more, and has its seat no longer.
        .with_upgrades();
    match timeout(ALL_WITHIN, conversation).await {
        Ok(Ok(())) => {}
        // Strangers may send anything; it is of no interest unless somebody looks for it.
        Ok(Err(error)) => debug!(%error, "a caller was not served"),
        Err(_elapsed) => debug!("a caller was too slow"),
    }
}

/// The whole body as it came, for signatures are made over its bytes.
pub async fn read(parts: &Parts, body: Incoming, limit: usize) -> Result<Bytes, Unread> {
    let charge = parts.extensions.get::<Arc<Charge>>();
    if announced(&parts.headers).is_some_and(|length| length > limit) {
        return Err(Unread::TooLarge);
    }
    let gather = async {
        let mut chunks = Body::new(body).into_data_stream();
        let mut bytes = BytesMut::new();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|_broken| Unread::Broken)?;
            if bytes.len() + chunk.len() > limit {
                return Err(Unread::TooLarge);
            }
            charge.map_or(Ok(()), |charge| charge.add(chunk.len())).map_err(|_exhausted| Unread::NoRoom)?;
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes.freeze())
    };
    timeout(BODY_WITHIN, gather).await.unwrap_or(Err(Unread::TooSlow))
}

fn announced(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

pub fn json(status: StatusCode, body: &Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

pub fn refused(status: StatusCode, error: &str) -> Response {
    json(status, &serde_json::json!({ "error": error }))
}

pub fn unread(unread: Unread) -> Response {
    match unread {
        Unread::TooLarge => refused(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"),
        Unread::TooSlow => refused(StatusCode::REQUEST_TIMEOUT, "the body did not come in time"),
        Unread::Broken => refused(StatusCode::BAD_REQUEST, "the body ends too early"),
        Unread::NoRoom => {
            later(refused(StatusCode::SERVICE_UNAVAILABLE, "too many request bodies at once"), 1)
        }
    }
}

/// The same answer, with the wait after which to ask again.
pub(crate) fn later(mut response: Response, seconds: u64) -> Response {
    response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    response
}

#[cfg(test)]
#[path = "listener_tests.rs"]
mod tests;
