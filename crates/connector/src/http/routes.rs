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
use petasos_gateway::shell::Db;
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

use super::concurrency::{ConcurrencyPermit, LimitKey, ServerLimits};
use super::files::MediaFiles;
use super::manage::Management;
use super::{authentication, concurrency, files};
use crate::socket::{self, SocketHandles};

const MAX_BODY: usize = 64 * 1024;
const CHUNK: usize = 64 * 1024;

/// Handles of the HTTP requests.
#[derive(Debug)]
pub(crate) struct HttpServer {
    pub(crate) db: Db,
    pub(crate) limits: ServerLimits,
    pub(crate) management: Management,
    pub(crate) media: Arc<MediaFiles>,
    pub(crate) sockets: Arc<SocketHandles>,
}

/// An accepted connection and the permits it holds until it ends.
pub(crate) struct AcceptedSocket {
    pub(crate) gateway: Result<GatewayCredentials, Refused>,
    pub(crate) slot: OwnedSemaphorePermit,
    pub(crate) permit: Option<ConcurrencyPermit>,
}

impl HttpServer {
    pub(crate) async fn handle(&self, request: Request) -> Response {
        let method = request.method().clone();
        let path = request.uri().path().to_owned();
        if is_upgrade(request.headers()) {
            return match (method, path.as_str()) {
                (Method::GET, "/relay") => self.upgrade(request).await,
                _other => {
                    error_response(StatusCode::BAD_REQUEST, "WebSocket connections are accepted at /relay")
                }
            };
        }
        let response = match (method, path.as_str()) {
            (Method::GET, "/health") => {
                Ok(json_response(StatusCode::OK, &serde_json::json!({ "status": "ok" })))
            }
            (Method::GET, path) if path.starts_with(files::PATH) => self.download(&request).await,
            (Method::POST, "/relay/media") => self.upload(request).await,
            (Method::POST, path) if path.starts_with("/relay/") || path.starts_with("/manage/") => {
                self.manage(path, request).await
            }
            _unknown => return error_response(StatusCode::NOT_FOUND, "not found"),
        };
        response.unwrap_or_else(|error| failure(&error))
    }

    /// Gateways that fail authentication are refused over the socket; see `socket::serve`.
    async fn upgrade(&self, mut request: Request) -> Response {
        let headers = request.headers();
        let key = headers.get(SEC_WEBSOCKET_KEY).map(|key| derive_accept_key(key.as_bytes()));
        let Some(accept) = key.and_then(|key| HeaderValue::try_from(key).ok()) else {
            return error_response(StatusCode::BAD_REQUEST, "missing Sec-WebSocket-Key");
        };
        if header(headers, &SEC_WEBSOCKET_VERSION).as_deref() != Some("13") {
            return error_response(StatusCode::BAD_REQUEST, "unsupported WebSocket version; use 13");
        }
        let accepted = match self.accept_socket(header(headers, &AUTHORIZATION).as_deref()).await {
            Ok(accepted) => accepted,
            Err(response) => return response,
        };
        let upgrading = hyper::upgrade::on(&mut request);
        let sockets = self.sockets.clone();
        petasos_runtime::spawn(async move {
            if let Some(upgraded) = socket::await_upgrade(upgrading).await {
                socket::serve(sockets, upgraded, accepted.gateway).await;
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

    pub(crate) async fn accept_socket(
        &self,
        authorization: Option<&str>,
    ) -> Result<AcceptedSocket, Response> {
        let gateway = authentication::authenticate(&self.db, authorization).await;
        let gateway = gateway.map_err(|error| failure(&error))?;
        let (slots, permit) = match &gateway {
            Ok(gateway) => {
                let permit = self.limits.gateways.try_acquire(LimitKey::Socket(gateway.id.clone()));
                (&self.limits.sockets, Some(permit.ok_or_else(busy)?))
            }
            Err(_refused) => (&self.limits.refusals, None),
        };
        let slot = slots.clone().try_acquire_owned();
        let slot =
            slot.map_err(|_full| error_response(StatusCode::SERVICE_UNAVAILABLE, "too many sockets"))?;
        Ok(AcceptedSocket { gateway, slot, permit })
    }

    /// Authenticates a request and marks its connection slot. `Err`: the response that refuses it.
    async fn authenticate(
        &self,
        request: &Request,
    ) -> Result<Result<(GatewayCredentials, ConcurrencyPermit), Response>, Error> {
        let authorization = header(request.headers(), &AUTHORIZATION);
        let gateway = match authentication::authenticate(&self.db, authorization.as_deref()).await? {
            Ok(gateway) => gateway,
            Err(reason) => return Ok(Err(unauthorized(reason))),
        };
        let key = LimitKey::Request(gateway.id.clone());
        let Some(permit) = self.limits.gateways.acquire(key).await else { return Ok(Err(busy())) };
        if let Some(slot) = request.extensions().get::<ConnectionSlot>() {
            slot.mark_authenticated();
        }
        Ok(Ok((gateway, permit)))
    }

    /// Provisioning and enrolment do not mark the connection slot.
    async fn manage(&self, path: &str, request: Request) -> Result<Response, Error> {
        let authenticated = match path {
            "/relay/provision" | "/relay/enroll" => None,
            _authenticated => match self.authenticate(&request).await? {
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
        let management = &self.management;
        match authenticated {
            Some((gateway, _permit)) => management.manage(&gateway, path, &body).await,
            None if path == "/relay/provision" => management.provision(authorization.as_deref(), &body).await,
            None => management.enroll(authorization.as_deref(), &body).await,
        }
    }

    async fn download(&self, request: &Request) -> Result<Response, Error> {
        let (gateway, permit) = match self.authenticate(request).await? {
            Ok(authenticated) => authenticated,
            Err(response) => return Ok(response),
        };
        let Some(file_permit) = self.acquire_file_permits(&gateway).await else { return Ok(busy()) };
        let id = files::file_id(request.uri().path());
        let Some((bytes, media)) = self.media.fetch(&gateway.instance, id).await? else {
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

    async fn acquire_file_permits(
        &self,
        gateway: &GatewayCredentials,
    ) -> Option<(ConcurrencyPermit, OwnedSemaphorePermit)> {
        let permit = self.limits.gateways.acquire(LimitKey::File(gateway.tenant.clone())).await?;
        let transfer = self.limits.transfers.clone().acquire_owned();
        let slot = timeout(concurrency::ACQUIRE_TIMEOUT, transfer).await.ok()?.ok()?;
        Some((permit, slot))
    }

    async fn upload(&self, request: Request) -> Result<Response, Error> {
        let (gateway, _permit) = match self.authenticate(&request).await? {
            Ok(authenticated) => authenticated,
            Err(response) => return Ok(response),
        };
        let Some(_file_permit) = self.acquire_file_permits(&gateway).await else { return Ok(busy()) };
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
        let kind = header(&parts.headers, &CONTENT_TYPE);
        let id = self.media.store(&gateway.instance, &bytes, name, kind).await?;
        Ok(json_response(StatusCode::OK, &serde_json::json!({ "id": id, "size": bytes.len() })))
    }
}

fn is_upgrade(headers: &HeaderMap) -> bool {
    header(headers, &UPGRADE).is_some_and(|to| to.eq_ignore_ascii_case("websocket"))
}

/// The gateway exceeds its concurrency limit.
fn busy() -> Response {
    let mut response = error_response(StatusCode::SERVICE_UNAVAILABLE, "too many concurrent requests");
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// A slow reader holds its permits until the end.
fn chunked(bytes: Vec<u8>, permits: impl Send + 'static) -> Body {
    Body::from_stream(stream::unfold((Bytes::from(bytes), permits), |(mut rest, permits)| async {
        let chunk = rest.split_to(rest.len().min(CHUNK));
        (!chunk.is_empty()).then_some((Ok::<_, Infallible>(chunk), (rest, permits)))
    }))
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
