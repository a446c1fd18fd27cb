//! The door: one address for sockets, a few for what is asked over HTTP. Everything else is not here.

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
use petasos_platforms::listener::{Request, Seat, json, read, refused, unread};
use petasos_relay::token::Refused;
use petasos_store::Error as StoreError;
use petasos_store::connector::Gateway;
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::guests::{Kind, Place};
use crate::shell::Shell;
use crate::{files, guests, manage, proof, socket};

/// Of a request that is no file.
const LONGEST_BODY: usize = 64 * 1024;
/// Of a file, on its way out.
const PIECE: usize = 64 * 1024;

pub(crate) async fn answer(shell: Arc<Shell>, request: Request) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    if is_upgrade(request.headers()) {
        return match (method, path.as_str()) {
            (Method::GET, "/relay") => open(shell, request).await,
            _elsewhere => refused(StatusCode::BAD_REQUEST, "sockets are opened at /relay"),
        };
    }
    let answered = match (method, path.as_str()) {
        (Method::GET, "/health") => Ok(json(StatusCode::OK, &serde_json::json!({ "status": "ok" }))),
        (Method::GET, path) if path.starts_with(files::PATH) => fetch(&shell, &request).await,
        (Method::POST, "/relay/media") => keep(&shell, request).await,
        (Method::POST, path) if path.starts_with("/relay/") || path.starts_with("/manage/") => {
            let path = path.to_owned();
            asked(&shell, &path, request).await
        }
        _nowhere => return refused(StatusCode::NOT_FOUND, "there is nothing here"),
    };
    answered.unwrap_or_else(|error| troubled(&error))
}

fn is_upgrade(headers: &HeaderMap) -> bool {
    text(headers, &UPGRADE).is_some_and(|to| to.eq_ignore_ascii_case("websocket"))
}

/// Whoever may not come in is told over the socket: see `socket::serve`.
async fn open(shell: Arc<Shell>, mut request: Request) -> Response {
    let headers = request.headers();
    let key = headers.get(SEC_WEBSOCKET_KEY).map(|key| derive_accept_key(key.as_bytes()));
    let Some(accept) = key.and_then(|key| HeaderValue::try_from(key).ok()) else {
        return refused(StatusCode::BAD_REQUEST, "no key for the socket");
    };
    if text(headers, &SEC_WEBSOCKET_VERSION).as_deref() != Some("13") {
        return refused(StatusCode::BAD_REQUEST, "sockets are spoken in version 13");
    }
    let guest = match guest(&shell, text(headers, &AUTHORIZATION).as_deref()).await {
        Ok(guest) => guest,
        Err(response) => return response,
    };
    let upgrading = hyper::upgrade::on(&mut request);
    petasos_runtime::spawn(async move {
        if let Some(upgraded) = socket::upgraded(upgrading).await {
            socket::serve(shell, upgraded, guest.who).await;
        }
        drop((guest.seat, guest.place));
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    response
}

/// Who opens a socket, and the limits that it counts towards until it ends.
pub(crate) struct Guest {
    pub(crate) who: Result<Gateway, Refused>,
    pub(crate) seat: OwnedSemaphorePermit,
    pub(crate) place: Option<Place>,
}

/// `Err`: the response if no socket may be opened.
pub(crate) async fn guest(shell: &Shell, authorization: Option<&str>) -> Result<Guest, Response> {
    let who = proof::admit(shell, authorization).await.map_err(|error| troubled(&error))?;
    // Refused callers, who get a close frame, have a limit of their own.
    let (seats, place) = match &who {
        Ok(gateway) => {
            let place = shell.guests.enter_now(Kind::Socket, gateway);
            (&shell.seats, Some(place.ok_or_else(busy)?))
        }
        Err(_refused) => (&shell.strangers, None),
    };
    let seat = seats.clone().try_acquire_owned();
    let seat = seat.map_err(|_full| refused(StatusCode::SERVICE_UNAVAILABLE, "too many sockets"))?;
    Ok(Guest { who, seat, place })
}

/// A gateway that has shown who it is: it keeps its seat, unless it has enough of them. `Err`: what it is told.
async fn admitted(shell: &Shell, request: &Request) -> Result<Result<(Gateway, Place), Response>, Error> {
    let shown = text(request.headers(), &AUTHORIZATION);
    let gateway = match proof::admit(shell, shown.as_deref()).await? {
        Ok(gateway) => gateway,
        Err(why) => return Ok(Err(not_admitted(why))),
    };
    let Some(place) = shell.guests.enter(Kind::Request, &gateway).await else { return Ok(Err(busy())) };
    if let Some(seat) = request.extensions().get::<Seat>() {
        seat.keep();
    }
    Ok(Ok((gateway, place)))
}

/// For somebody who has enough under way.
fn busy() -> Response {
    let mut response = refused(StatusCode::SERVICE_UNAVAILABLE, "too much at once");
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// What a first token is shown for is not kept a seat for.
async fn asked(shell: &Arc<Shell>, path: &str, request: Request) -> Result<Response, Error> {
    let known = match path {
        "/relay/provision" | "/relay/enroll" => None,
        _with_proof => match admitted(shell, &request).await? {
            Ok(known) => Some(known),
            Err(response) => return Ok(response),
        },
    };
    let (parts, body) = request.into_parts();
    let bytes = match read(&parts, body, LONGEST_BODY).await {
        Ok(bytes) => bytes,
        Err(why) => return Ok(unread(why)),
    };
    let Ok(body) = serde_json::from_slice::<Value>(&bytes) else {
        return Ok(refused(StatusCode::BAD_REQUEST, "the body is no JSON"));
    };
    let shown = text(&parts.headers, &AUTHORIZATION);
    match known {
        Some((gateway, _place)) => manage::manage(shell, &gateway, path, &body).await,
        None if path == "/relay/provision" => manage::provision(shell, shown.as_deref(), &body).await,
        None => manage::enroll(shell, shown.as_deref(), &body).await,
    }
}

async fn fetch(shell: &Arc<Shell>, request: &Request) -> Result<Response, Error> {
    let (gateway, place) = match admitted(shell, request).await? {
        Ok(known) => known,
        Err(response) => return Ok(response),
    };
    let Some(files) = room_for_a_file(shell, &gateway).await else { return Ok(busy()) };
    let id = request.uri().path().strip_prefix(files::PATH).unwrap_or_default();
    let Some((bytes, media)) = files::fetch(shell, &gateway.instance, id).await? else {
        return Ok(refused(StatusCode::NOT_FOUND, "no such file"));
    };
    let length = bytes.len();
    let mut response = Response::new(in_pieces(bytes, (place, files)));
    response.headers_mut().insert(CONTENT_LENGTH, length.into());
    let kind = media.mime.and_then(|mime| HeaderValue::try_from(mime).ok());
    let kind = kind.unwrap_or(HeaderValue::from_static("application/octet-stream"));
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

/// Whoever reads it slowly has their places for as long.
fn in_pieces(bytes: Vec<u8>, places: impl Send + 'static) -> Body {
    Body::from_stream(stream::unfold((Bytes::from(bytes), places), |(mut left, places)| async {
        let piece = left.split_to(left.len().min(PIECE));
        (!piece.is_empty()).then_some((Ok::<_, Infallible>(piece), (left, places)))
    }))
}

/// Files are large and slow: some seats are not theirs.
async fn room_for_a_file(shell: &Shell, gateway: &Gateway) -> Option<(Place, OwnedSemaphorePermit)> {
    let place = shell.guests.enter(Kind::File, gateway).await?;
    let seat = timeout(guests::PATIENCE, shell.files.clone().acquire_owned()).await.ok()?.ok()?;
    Some((place, seat))
}

async fn keep(shell: &Arc<Shell>, request: Request) -> Result<Response, Error> {
    let (gateway, _place) = match admitted(shell, &request).await? {
        Ok(known) => known,
        Err(response) => return Ok(response),
    };
    let Some(_files) = room_for_a_file(shell, &gateway).await else { return Ok(busy()) };
    let (parts, body) = request.into_parts();
    let bytes = match read(&parts, body, files::LARGEST).await {
        Ok(bytes) if bytes.is_empty() => return Ok(refused(StatusCode::BAD_REQUEST, "the file is empty")),
        Ok(bytes) => bytes,
        Err(why) => return Ok(unread(why)),
    };
    let name = text(&parts.headers, &HeaderName::from_static("x-media-filename"));
    let name = name.filter(|name| name.len() <= 255 && !name.contains(['/', '\\', '\0']));
    let id = files::keep(shell, &gateway.instance, &bytes, name, text(&parts.headers, &CONTENT_TYPE)).await?;
    Ok(json(StatusCode::OK, &serde_json::json!({ "id": id, "size": bytes.len() })))
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

fn not_admitted(why: Refused) -> Response {
    refused(
        StatusCode::UNAUTHORIZED,
        match why {
            Refused::Expired => "the token has expired",
            Refused::Unauthorized => "unauthorized",
        },
    )
}

/// What the store said, as far as a stranger may know.
fn troubled(error: &Error) -> Response {
    match error {
        Error::Store(StoreError::Conflict(why)) => refused(StatusCode::CONFLICT, why),
        Error::Store(StoreError::Missing(what)) => refused(StatusCode::NOT_FOUND, &format!("no such {what}")),
        error => {
            tracing::error!(%error, "a request was not served");
            refused(StatusCode::SERVICE_UNAVAILABLE, "not now")
        }
    }
}
