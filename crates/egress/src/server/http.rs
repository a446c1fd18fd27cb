//! The HTTP side: CONNECT, and the answer to everything that is refused.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, PROXY_AUTHENTICATE, TRANSFER_ENCODING};
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};

use super::authentication::basic_credential;
use super::connection::{ClientConnection, ProgramStream, ServerStream, tunnel};
use super::forward;
use crate::policy::host_port::HostPort;
use crate::refusal::Refusal;

const MAX_HEAD_BYTES: usize = 32 * 1024;
const MAX_HEADERS: usize = 100;

pub(super) type ProxyBody = BoxBody<Bytes, hyper::Error>;

/// A refusal, and the destination if the request named one.
pub(super) struct RefusedRequest {
    pub(super) refusal: Refusal,
    pub(super) to: Option<HostPort>,
}

impl From<Refusal> for RefusedRequest {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, to: None }
    }
}

/// The tunnel that begins when the response to a CONNECT has been sent.
type PendingTunnel = Arc<Mutex<Option<(OnUpgrade, ServerStream)>>>;

pub(super) async fn serve(connection: Arc<ClientConnection>, stream: ProgramStream) {
    let pending = PendingTunnel::default();
    let service = service_fn(|request| {
        let connection = connection.clone();
        let pending = pending.clone();
        async move { Ok::<_, Infallible>(respond(&connection, &pending, request).await) }
    });
    let mut server = hyper::server::conn::http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(connection.server.limits.handshake)
        .max_header_size(MAX_HEAD_BYTES)
        .max_buf_size(2 * MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .preserve_header_case(true);
    // Errors are those of the program's end; it knows them.
    let _ended = server.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
    let tunnelled = pending.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((upgrade, to_server)) = tunnelled
        && let Ok(program) = upgrade.await
    {
        tunnel(&mut TokioIo::new(program), to_server).await;
    }
}

async fn respond(
    connection: &ClientConnection,
    pending: &PendingTunnel,
    request: Request<Incoming>,
) -> Response<ProxyBody> {
    let answered = if request.method() == Method::CONNECT {
        connect(connection, pending, request).await
    } else {
        forward::forward(connection, request).await
    };
    answered.unwrap_or_else(|refused| refused_response(&refused))
}

async fn connect(
    connection: &ClientConnection,
    pending: &PendingTunnel,
    mut request: Request<Incoming>,
) -> Result<Response<ProxyBody>, RefusedRequest> {
    let sandbox = connection.authenticate(basic_credential(request.headers()).as_ref())?;
    if request.headers().contains_key(CONTENT_LENGTH) || request.headers().contains_key(TRANSFER_ENCODING) {
        return Err(Refusal::BadRequest("a CONNECT request has no body").into());
    }
    if request.uri().scheme().is_some() {
        return Err(
            Refusal::BadRequest("a CONNECT request names host:port, not an address with a scheme").into()
        );
    }
    let authority = request.uri().authority().map_or("", |authority| authority.as_str());
    let to = HostPort::parse(authority).map_err(Refusal::BadHostPort)?;
    let opened = connection.open(&sandbox, &to).await;
    let server = opened.map_err(|refusal| RefusedRequest { refusal, to: Some(to) })?;
    let upgrade = hyper::upgrade::on(&mut request);
    *pending.lock().unwrap_or_else(PoisonError::into_inner) = Some((upgrade, server));
    Ok(Response::new(body("")))
}

fn refused_response(refused: &RefusedRequest) -> Response<ProxyBody> {
    let RefusedRequest { refusal, to } = refused;
    let text = format!("petasos: {}\n", refusal.text(to.as_ref()));
    let mut response = Response::new(body(text));
    *response.status_mut() = StatusCode::from_u16(refusal.http_status()).unwrap_or(StatusCode::BAD_GATEWAY);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert("x-petasos-egress", HeaderValue::from_static(refusal.as_str()));
    if *refusal == Refusal::Unauthenticated {
        headers.insert(PROXY_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"petasos\""));
    }
    response
}

fn body(text: impl Into<Bytes>) -> ProxyBody {
    Full::new(text.into()).map_err(|never| match never {}).boxed()
}
