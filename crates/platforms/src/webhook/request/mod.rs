//! Handles one request: the checks in the order of the contract (docs/webhooks.md), then the commit.
//!
//! A 2xx is sent only after the commit. A caller that fails a check learns nothing about the later ones.
#![allow(clippy::result_large_err, reason = "the error is the whole response, made once per request")]

#[cfg(feature = "fuzzing")]
pub(super) mod fuzzing;
mod parse;
mod rate_limit;
mod signature;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::Incoming;
use petasos_core::lifecycle::NotAccepting;
use petasos_core::message::Fingerprint;
use petasos_core::{Platform, Route};
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::Webhook;
use super::routes::Routes;
use super::routes::filter::DeliveryEvent;
use super::routes::route::{RouteAuth, WebhookRoute};
use crate::inbound::{CommitError, CommitResult, InboundSink, PostOutcome, Unreadable};
use crate::listener::self_check::{HEALTH_PATH, LinkSignal, SignalSender, health_response};
use crate::listener::{self, ConnectionSlot, Request, body_error_response, error_response, with_retry_after};
use petasos_runtime::clock;
pub(super) use rate_limit::RequestCounts;
pub(crate) use signature::constant_time_eq;
pub use signature::sign;
use signature::{SignatureScheme, VerifiedSignature};

const ROUTES: &str = "/webhooks/";
const PROFILES: &str = "/p/";
/// `Retry-After` when a commit failed.
const RETRY_SECONDS: u64 = 5;
/// `Retry-After` while the gateway accepts no events.
const DRAIN_RETRY_SECONDS: u64 = 30;
/// Longest text that is delivered without a turn, in bytes.
const MAX_POST: usize = 64 * 1024;

/// Shared by the requests of one link.
#[derive(Debug)]
pub(super) struct RequestHandler {
    platform: Platform,
    routes: Arc<Routes>,
    counts: Arc<Mutex<RequestCounts>>,
    rate_limit: u32,
    max_body: usize,
    delivery_wait: Duration,
    sink: InboundSink,
    signals: SignalSender,
    /// Routes with a logged V1 signature.
    v1_warned: Mutex<BTreeSet<String>>,
    started: Instant,
}

struct AcceptedDelivery<'a> {
    route: &'a str,
    id: String,
    event: Option<String>,
    fingerprints: Vec<Fingerprint>,
}

pub(super) async fn handle_request(handler: Arc<RequestHandler>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    if path == HEALTH_PATH {
        return health_response("webhook");
    }
    if path.starts_with(PROFILES) {
        return error_response(StatusCode::NOT_FOUND, "this gateway has no profiles; call /webhooks/<route>");
    }
    let Some(route) = path.strip_prefix(ROUTES) else {
        return error_response(StatusCode::NOT_FOUND, "not found; send deliveries to /webhooks/<route>");
    };
    if parts.method != Method::POST {
        return error_response(StatusCode::METHOD_NOT_ALLOWED, "use POST for deliveries");
    }
    let result = handler.process(route, &parts, body).await;
    result.unwrap_or_else(|refusal| refusal)
}

fn truncated(mut text: String) -> String {
    if text.len() > MAX_POST {
        text.truncate(text.floor_char_boundary(MAX_POST));
        text.push_str("\n[The rest was cut: it is longer than 64 KB.]");
    }
    text
}

impl RequestHandler {
    pub(super) fn new(webhook: &Webhook, sink: InboundSink, signals: SignalSender) -> Self {
        Self {
            platform: webhook.platform,
            routes: webhook.routes.clone(),
            counts: webhook.counts.clone(),
            rate_limit: webhook.rate_limit,
            max_body: webhook.max_body,
            delivery_wait: webhook.delivery_wait,
            sink,
            signals,
            v1_warned: Mutex::default(),
            started: webhook.started,
        }
    }

    async fn process(&self, route: &str, parts: &Parts, body: Incoming) -> Result<Response, Response> {
        let headers = &parts.headers;
        let webhook = self.find_route(route).await;
        let webhook = webhook.ok_or_else(|| error_response(StatusCode::NOT_FOUND, "no such route"))?;
        if !webhook.enabled {
            return Err(error_response(StatusCode::FORBIDDEN, "this route is switched off"));
        }
        let body = listener::read_body(parts, body, self.max_body).await.map_err(body_error_response)?;
        let signature = self.authenticate(route, &webhook, headers, &body)?;
        let scheme = signature.as_ref().map(|signature| signature.scheme);
        if let Some(slot) = parts.extensions.get::<ConnectionSlot>() {
            slot.mark_authenticated();
        }
        self.check_rate(route)?;
        let Some(payload) = parse::payload(headers, &body) else {
            return Err(self.store_unreadable(parse::delivery_id(headers, scheme), &body).await);
        };
        let names = parse::event_names(headers, &payload);
        if !webhook.events.is_empty() && !names.iter().any(|name| webhook.events.contains(name)) {
            return Err(ignored_response("event"));
        }
        if !webhook.filter.matches(DeliveryEvent { payload: &payload, headers, names: &names }) {
            return Err(ignored_response("filter"));
        }
        let id = parse::delivery_id(headers, scheme).map_or_else(random_id, Ok)?;
        let fingerprints = parse::fingerprints(headers, signature.as_ref(), route, &body);
        let delivery = AcceptedDelivery { route, id, event: names.into_iter().next(), fingerprints };
        self.accept(&webhook, &payload, delivery).await
    }

    async fn find_route(&self, route: &str) -> Option<Arc<WebhookRoute>> {
        let routes = self.routes.clone();
        let name = route.to_owned();
        let found = petasos_runtime::blocking(move || routes.find(&name)).await;
        found.ok().flatten()
    }

    /// `Ok(None)`: the route needs no signature.
    fn authenticate(
        &self,
        route: &str,
        webhook: &WebhookRoute,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<Option<VerifiedSignature>, Response> {
        let secret = match &webhook.auth {
            RouteAuth::Open => return Ok(None),
            RouteAuth::Missing => {
                return Err(error_response(StatusCode::FORBIDDEN, "this route has no secret"));
            }
            RouteAuth::Secret(secret) => secret,
        };
        let signature = signature::verify(secret, headers, body, clock::now().0 / 1000);
        let signature = signature.ok_or_else(|| {
            debug!(platform = "webhook", route, "delivery without a valid signature");
            error_response(StatusCode::UNAUTHORIZED, "the signature is missing, wrong or too old")
        })?;
        if signature.scheme == SignatureScheme::V1 && self.is_first_v1(route) {
            warn!(
                platform = "webhook",
                route, "signature without a timestamp can be replayed; send X-Webhook-Signature-V2"
            );
        }
        Ok(Some(signature))
    }

    fn is_first_v1(&self, route: &str) -> bool {
        self.v1_warned.lock().unwrap_or_else(PoisonError::into_inner).insert(route.to_owned())
    }

    fn check_rate(&self, route: &str) -> Result<(), Response> {
        let counted = {
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            counts.count(route, self.rate_limit, self.started.elapsed())
        };
        counted.map_err(|seconds| {
            with_retry_after(
                error_response(StatusCode::TOO_MANY_REQUESTS, "too many deliveries for this route"),
                seconds,
            )
        })
    }

    async fn accept(
        &self,
        webhook: &WebhookRoute,
        payload: &Value,
        delivery: AcceptedDelivery<'_>,
    ) -> Result<Response, Response> {
        let own_chat = parse::chat_id(delivery.route, &delivery.id);
        let target = webhook.target(payload, self.platform, &own_chat).ok_or_else(|| {
            warn!(
                platform = "webhook",
                route = delivery.route,
                "the payload lacks a value that deliver_extra refers to"
            );
            error_response(
                StatusCode::BAD_GATEWAY,
                "the payload does not say where its answer goes (deliver_extra)",
            )
        })?;
        let text = webhook.text(payload);
        if webhook.deliver_only {
            self.post(text, target, &delivery).await
        } else {
            self.start_turn(text, target, &delivery).await
        }
    }

    async fn start_turn(
        &self,
        text: String,
        target: Route,
        delivery: &AcceptedDelivery<'_>,
    ) -> Result<Response, Response> {
        let names = (delivery.route, delivery.id.as_str());
        let fingerprints = delivery.fingerprints.clone();
        let event = parse::inbound(self.platform, names, fingerprints, text, target, clock::now());
        let offered = self.sink.offer(vec![event], vec![], None).await;
        match offered.map_err(|error| self.commit_error_response(error))? {
            CommitResult::Committed => {
                self.signals.send(LinkSignal::RequestHandled);
                Ok(delivery.response(StatusCode::ACCEPTED, "accepted"))
            }
            CommitResult::Duplicate => Ok(delivery.response(StatusCode::OK, "duplicate")),
            CommitResult::NotStored | CommitResult::Invalid => Err(self.not_stored_response()),
            CommitResult::NoHomeChannel => Err(delivery.no_home_response()),
            CommitResult::Closed(reason) => Err(not_accepting_response(reason)),
        }
    }

    /// Delivers the text without a turn.
    async fn post(
        &self,
        text: String,
        target: Route,
        delivery: &AcceptedDelivery<'_>,
    ) -> Result<Response, Response> {
        let dedup = format!("post:{}:{}", delivery.route, delivery.id);
        let fingerprints = delivery.fingerprints.clone();
        let posted = self.sink.post(dedup, fingerprints, target, truncated(text), self.delivery_wait).await;
        match posted.map_err(|error| self.commit_error_response(error))? {
            PostOutcome::Delivered { duplicate: false } => Ok(delivery.response(StatusCode::OK, "delivered")),
            PostOutcome::Delivered { duplicate: true } => Ok(delivery.response(StatusCode::OK, "duplicate")),
            PostOutcome::Queued => Err(delivery.response(StatusCode::BAD_GATEWAY, "owed")),
            PostOutcome::Dead => Err(delivery.response(StatusCode::BAD_GATEWAY, "refused")),
            PostOutcome::NoHomeChannel => Err(delivery.no_home_response()),
            PostOutcome::NotStored => Err(self.not_stored_response()),
        }
    }

    /// For an authenticated caller. A retry would not help.
    async fn store_unreadable(&self, id: Option<String>, body: &Bytes) -> Response {
        let why = "the body is neither JSON nor a form";
        let unreadable = Unreadable::new(id, why, &String::from_utf8_lossy(body));
        warn!(platform = "webhook", bytes = body.len(), "unreadable delivery stored");
        match self.sink.offer(vec![], vec![unreadable], None).await {
            Ok(CommitResult::Committed | CommitResult::Duplicate) => {
                error_response(StatusCode::BAD_REQUEST, why)
            }
            Ok(
                CommitResult::NotStored
                | CommitResult::Invalid
                | CommitResult::NoHomeChannel
                | CommitResult::Closed(_),
            ) => self.not_stored_response(),
            Err(error) => self.commit_error_response(error),
        }
    }

    fn not_stored_response(&self) -> Response {
        self.signals.send(LinkSignal::NotStored);
        with_retry_after(
            error_response(StatusCode::SERVICE_UNAVAILABLE, "the delivery could not be stored"),
            RETRY_SECONDS,
        )
    }

    fn commit_error_response(&self, error: CommitError) -> Response {
        self.signals.send(match error {
            CommitError::Closed => LinkSignal::GatewayClosed,
            CommitError::Refused | CommitError::Invalid => LinkSignal::NotStored,
        });
        with_retry_after(error_response(StatusCode::SERVICE_UNAVAILABLE, "gateway_stopping"), RETRY_SECONDS)
    }
}

impl AcceptedDelivery<'_> {
    fn no_home_response(&self) -> Response {
        warn!(platform = "webhook", route = self.route, "the target platform has no home channel");
        let why =
            "the target platform has no home channel: send /sethome there, or set deliver_extra.chat_id";
        error_response(StatusCode::BAD_GATEWAY, why)
    }

    fn response(&self, code: StatusCode, status: &str) -> Response {
        let mut body = json!({ "status": status, "route": self.route, "delivery_id": self.id });
        if let Some(event) = &self.event {
            body["event"] = event.as_str().into();
        }
        listener::json_response(code, &body)
    }
}

fn ignored_response(reason: &str) -> Response {
    listener::json_response(StatusCode::OK, &json!({ "status": "ignored", "reason": reason }))
}

fn not_accepting_response(reason: NotAccepting) -> Response {
    let code = match reason {
        NotAccepting::Draining => "gateway_draining",
        NotAccepting::ShuttingDown { .. } => "gateway_stopping",
        NotAccepting::AtCapacity { .. } => "gateway_busy",
    };
    with_retry_after(error_response(StatusCode::SERVICE_UNAVAILABLE, code), DRAIN_RETRY_SECONDS)
}

/// For a delivery without an id, which counts as new every time.
fn random_id() -> Result<String, Response> {
    let mut bytes = [0; 16];
    match getrandom::fill(&mut bytes) {
        Ok(()) => Ok(petasos_core::text::hex(&bytes)),
        Err(error) => {
            warn!(platform = "webhook", %error, "no random numbers");
            Err(with_retry_after(
                error_response(StatusCode::SERVICE_UNAVAILABLE, "the delivery could not be stored"),
                RETRY_SECONDS,
            ))
        }
    }
}
