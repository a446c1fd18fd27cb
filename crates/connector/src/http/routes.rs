//! HTTP routes: one for sockets, the rest for files, provisioning and management.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, SEC_WEBSOCKET_ACCEPT,
    SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::Response;
use futures_util::stream;
use petasos_gateway::Error;
use petasos_platforms::listener::{
    ConnectionSlot, Request, body_error_response, error_response, json_response, read_body,
};
use petasos_relay::token::Refused;
use petasos_store::Error as StoreError;
use petasos_store::connector::GatewayCredentials;
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::concurrency::{ConcurrencyPermit, LimitKind};
use super::{authentication, concurrency, files, manage};
use crate::context::ConnectorContext;
use crate::socket;

/// Except for files.
const MAX_BODY: usize = 64 * 1024;
/// Chunk size of a download.
const CHUNK: usize = 64 * 1024;

pub(crate) async fn handle(connector: Arc<ConnectorContext>, request: Request) -> Response {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    if is_upgrade(request.headers()) {
        return match (method, path.as_str()) {
            (Method::GET, "/relay") => upgrade(connector, request).await,
            _other => error_response(StatusCode::BAD_REQUEST, "WebSocket connections are accepted at /relay"),
        };
    }
    let response = match (method, path.as_str()) {
        (Method::GET, "/health") => Ok(json_response(StatusCode::OK, &serde_json::json!({ "status": "ok" }))),
        (Method::GET, path) if path.starts_with(files::PATH) => download(&connector, &request).await,
        (Method::POST, "/relay/media") => upload(&connector, request).await,
        (Method::POST, path) if path.starts_with("/relay/") || path.starts_with("/manage/") => {
            let path = path.to_owned();
            manage_request(&connector, &path, request).await
        }
        _unknown => return error_response(StatusCode::NOT_FOUND, "not found"),
    };
    response.unwrap_or_else(|error| failure(&error))
}

fn is_upgrade(headers: &HeaderMap) -> bool {
    header(headers, &UPGRADE).is_some_and(|to| to.eq_ignore_ascii_case("websocket"))
}

/// Gateways that fail authentication are refused over the socket; see `socket::serve`.
async fn upgrade(connector: Arc<ConnectorContext>, mut request: Request) -> Response {
    let headers = request.headers();
    let key = headers.get(SEC_WEBSOCKET_KEY).map(|key| derive_accept_key(key.as_bytes()));
    let Some(accept) = key.and_then(|key| HeaderValue::try_from(key).ok()) else {
        return error_response(StatusCode::BAD_REQUEST, "missing Sec-WebSocket-Key");
    };
    if header(headers, &SEC_WEBSOCKET_VERSION).as_deref() != Some("13") {
        return error_response(StatusCode::BAD_REQUEST, "unsupported WebSocket version; use 13");
    }
    let accepted = match accept_socket(&connector, header(headers, &AUTHORIZATION).as_deref()).await {
        Ok(accepted) => accepted,
        Err(response) => return response,
    };
    let upgrading = hyper::upgrade::on(&mut request);
    petasos_runtime::spawn(async move {
        if let Some(upgraded) = socket::await_upgrade(upgrading).await {
            socket::serve(connector, upgraded, accepted.gateway).await;
        }
        drop((accepted.slot, accepted.permit));
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    response
}

/// An accepted connection and the permits it holds until it ends.
pub(crate) struct AcceptedSocket {
    pub(crate) gateway: Result<GatewayCredentials, Refused>,
    pub(crate) slot: OwnedSemaphorePermit,
    pub(crate) permit: Option<ConcurrencyPermit>,
}

/// `Err`: the response that refuses the upgrade.
pub(crate) async fn accept_socket(
    connector: &ConnectorContext,
    authorization: Option<&str>,
) -> Result<AcceptedSocket, Response> {
    let gateway =
        authentication::authenticate(connector, authorization).await.map_err(|error| failure(&error))?;
    // Refusals have a limit of their own.
    let (slots, permit) = match &gateway {
        Ok(gateway) => {
            let permit = connector.concurrency.try_acquire(LimitKind::Socket, gateway);
            (&connector.socket_slots, Some(permit.ok_or_else(busy)?))
        }
        Err(_refused) => (&connector.refusal_slots, None),
    };
    let slot = slots.clone().try_acquire_owned();
    let slot = slot.map_err(|_full| error_response(StatusCode::SERVICE_UNAVAILABLE, "too many sockets"))?;
    Ok(AcceptedSocket { gateway, slot, permit })
}

/// Authenticates a request and marks its connection slot. `Err`: the response that refuses it.
async fn authenticate(
    connector: &ConnectorContext,
    request: &Request,
) -> Result<Result<(GatewayCredentials, ConcurrencyPermit), Response>, Error> {
    let authorization = header(request.headers(), &AUTHORIZATION);
    let gateway = match authentication::authenticate(connector, authorization.as_deref()).await? {
        Ok(gateway) => gateway,
        Err(reason) => return Ok(Err(unauthorized(reason))),
    };
    let Some(permit) = connector.concurrency.acquire(LimitKind::Request, &gateway).await else {
        return Ok(Err(busy()));
    };
    if let Some(slot) = request.extensions().get::<ConnectionSlot>() {
        slot.mark_authenticated();
    }
    Ok(Ok((gateway, permit)))
}

/// The gateway exceeds its concurrency limit.
fn busy() -> Response {
    let mut response = error_response(StatusCode::SERVICE_UNAVAILABLE, "too many concurrent requests");
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// Provisioning and enrolment do not mark the connection slot.
async fn manage_request(
    connector: &Arc<ConnectorContext>,
    path: &str,
    request: Request,
) -> Result<Response, Error> {
    let authenticated = match path {
        "/relay/provision" | "/relay/enroll" => None,
        _authenticated => match authenticate(connector, &request).await? {
            Ok(authenticated) => Some(authenticated),
            Err(response) => return Ok(response),
        },
    };
    let (parts, body) = request.into_parts();
    let bytes = match read_body(&parts, body, MAX_BODY).await {
        Ok(bytes) => bytes,
        Err(reason) => return Ok(body_error_response(reason)),
    };
    let Ok(body) = serde_json::from_slice::<Value>(&bytes) else {
        return Ok(error_response(StatusCode::BAD_REQUEST, "the body is not JSON"));
    };
    let authorization = header(&parts.headers, &AUTHORIZATION);
    match authenticated {
        Some((gateway, _permit)) => manage::manage(connector, &gateway, path, &body).await,
        None if path == "/relay/provision" => {
            manage::provision(connector, authorization.as_deref(), &body).await
        }
        None => manage::enroll(connector, authorization.as_deref(), &body).await,
    }
}

async fn download(connector: &Arc<ConnectorContext>, request: &Request) -> Result<Response, Error> {
    let (gateway, permit) = match authenticate(connector, request).await? {
        Ok(authenticated) => authenticated,
        Err(response) => return Ok(response),
    };
    let Some(file_permit) = acquire_file_permits(connector, &gateway).await else { return Ok(busy()) };
    let id = request.uri().path().strip_prefix(files::PATH).unwrap_or_default();
    let Some((bytes, media)) = files::fetch(connector, &gateway.instance, id).await? else {
        return Ok(error_response(StatusCode::NOT_FOUND, "no such file"));
    };
    let length = bytes.len();
    let mut response = Response::new(chunked(bytes, (permit, file_permit)));
    response.headers_mut().insert(CONTENT_LENGTH, length.into());
    let kind = media.mime.and_then(|mime| HeaderValue::try_from(mime).ok());
    let kind = kind.unwrap_or(HeaderValue::from_static("application/octet-stream"));
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

/// A slow reader holds its permits until the end.
fn chunked(bytes: Vec<u8>, permits: impl Send + 'static) -> Body {
    Body::from_stream(stream::unfold((Bytes::from(bytes), permits), |(mut rest, permits)| async {
        let chunk = rest.split_to(rest.len().min(CHUNK));
        (!chunk.is_empty()).then_some((Ok::<_, Infallible>(chunk), (rest, permits)))
    }))
}

/// Files have their own limit, because they are large and slow.
async fn acquire_file_permits(
    connector: &ConnectorContext,
    gateway: &GatewayCredentials,
) -> Option<(ConcurrencyPermit, OwnedSemaphorePermit)> {
    let permit = connector.concurrency.acquire(LimitKind::File, gateway).await?;
    let slot = timeout(concurrency::ACQUIRE_TIMEOUT, connector.file_slots.clone().acquire_owned())
        .await
        .ok()?
        .ok()?;
    Some((permit, slot))
}

async fn upload(connector: &Arc<ConnectorContext>, request: Request) -> Result<Response, Error> {
    let (gateway, _permit) = match authenticate(connector, &request).await? {
        Ok(authenticated) => authenticated,
        Err(response) => return Ok(response),
    };
    let Some(_file_permit) = acquire_file_permits(connector, &gateway).await else { return Ok(busy()) };
    let (parts, body) = request.into_parts();
    let bytes = match read_body(&parts, body, files::MAX_SIZE).await {
        Ok(bytes) if bytes.is_empty() => {
            return Ok(error_response(StatusCode::BAD_REQUEST, "the file is empty"));
        }
        Ok(bytes) => bytes,
        Err(reason) => return Ok(body_error_response(reason)),
    };
    let name = header(&parts.headers, &HeaderName::from_static("x-media-filename"));
    let name = name.filter(|name| name.len() <= 255 && !name.contains(['/', '\\', '\0']));
    let id = files::store(connector, &gateway.instance, &bytes, name, header(&parts.headers, &CONTENT_TYPE))
        .await?;
    Ok(json_response(StatusCode::OK, &serde_json::json!({ "id": id, "size": bytes.len() })))
}

fn header(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

fn unauthorized(reason: Refused) -> Response {
    error_response(
        StatusCode::UNAUTHORIZED,
        match reason {
            Refused::Expired => "the token has expired",
            Refused::Unauthorized => "unauthorized",
        },
    )
}

/// Hides internal errors from the caller.
fn failure(error: &Error) -> Response {
    match error {
        Error::Store(StoreError::Conflict(reason)) => error_response(StatusCode::CONFLICT, reason),
        Error::Store(StoreError::Missing(what)) => {
            error_response(StatusCode::NOT_FOUND, &format!("no such {what}"))
        }
        error => {
            tracing::error!(%error, "request failed");
            error_response(StatusCode::SERVICE_UNAVAILABLE, "temporarily unavailable")
        }
    }
}
