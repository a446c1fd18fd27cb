//! What a caller gets, check by check, in the order of the contract: whoever may not call learns nothing about what
//! comes later. A 2xx is given after the commit, never before.
#![allow(clippy::result_large_err, reason = "a refusal is the whole answer, and is made once for a request")]

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::Incoming;
use petasos_core::lifecycle::Closed;
use petasos_core::message::Fingerprint;
use petasos_core::{Millis, Route};
use serde_json::{Value, json};
use tracing::{debug, warn};

use super::filter::Event;
use super::hook::{Hook, Key};
use super::signature::{self, Scheme, Signed};
use super::{Desk, parse};
use crate::called::{HEALTH, News, healthy};
use crate::intake::{NotTaken, Posted, Taken, Unreadable};
use crate::listener::{self, Request, Seat, later, refused, unread};

const ROUTES: &str = "/webhooks/";
const PROFILES: &str = "/p/";
/// When to try again what could not be kept, in seconds; and what is closed for maintenance.
const SOON: u64 = 5;
const AFTER_DRAIN: u64 = 30;

/// A request that passed every check.
struct Delivery<'a> {
    route: &'a str,
    id: String,
    /// The kind of event, if it has one.
    event: Option<String>,
    fingerprints: Vec<Fingerprint>,
}

pub(super) async fn answer(desk: Arc<Desk>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    if path == HEALTH {
        return healthy("webhook");
    }
    if path.starts_with(PROFILES) {
        return refused(StatusCode::NOT_FOUND, "this gateway has no profiles; call /webhooks/<route>");
    }
    let Some(route) = path.strip_prefix(ROUTES) else {
        return refused(StatusCode::NOT_FOUND, "not found; deliveries go to /webhooks/<route>");
    };
    if parts.method != Method::POST {
        return refused(StatusCode::METHOD_NOT_ALLOWED, "deliveries are posted");
    }
    let answered = desk.call(route, &parts, body).await;
    answered.unwrap_or_else(|refusal| refusal)
}

/// Longest text that is passed on, in bytes: some messages on every platform, not thousands.
const LONGEST_POST: usize = 64 * 1024;

fn within_reason(mut text: String) -> String {
    if text.len() > LONGEST_POST {
        text.truncate(text.floor_char_boundary(LONGEST_POST));
        text.push_str("\n[The rest was cut: it is longer than 64 KB.]");
    }
    text
}

impl Desk {
    async fn call(&self, route: &str, parts: &Parts, body: Incoming) -> Result<Response, Response> {
        let headers = &parts.headers;
        let hook = self.find(route).await;
        let hook = hook.ok_or_else(|| refused(StatusCode::NOT_FOUND, "there is no such route"))?;
        if !hook.enabled {
            return Err(refused(StatusCode::FORBIDDEN, "this route is switched off"));
        }
        let body = listener::read(parts, body, self.max_body).await.map_err(unread)?;
        let signed = self.authenticated(route, &hook, headers, &body)?;
        let scheme = signed.as_ref().map(|signed| signed.scheme);
        if let Some(seat) = parts.extensions.get::<Seat>() {
            seat.keep();
        }
        self.rate(route)?;
        let Some(payload) = parse::payload(headers, &body) else {
            return Err(self.set_aside(parse::delivery(headers, scheme), &body).await);
        };
        let names = parse::names(headers, &payload);
        if !hook.events.is_empty() && !names.iter().any(|name| hook.events.contains(name)) {
            return Err(ignored("event"));
        }
        if !hook.filter.holds(Event { payload: &payload, headers, names: &names }) {
            return Err(ignored("filter"));
        }
        let id = parse::delivery(headers, scheme).map_or_else(random, Ok)?;
        let fingerprints = parse::fingerprints(headers, signed.as_ref(), route, &body);
        let delivery = Delivery { route, id, event: names.into_iter().next(), fingerprints };
        self.take(&hook, &payload, delivery).await
    }

    async fn find(&self, route: &str) -> Option<Arc<Hook>> {
        let (routes, name) = (self.routes.clone(), route.to_owned());
        let found = tokio::task::spawn_blocking(move || routes.find(&name)).await;
        found.ok().flatten()
    }

    /// How the caller showed that it may; `None`: it need not.
    fn authenticated(
        &self,
        route: &str,
        hook: &Hook,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<Option<Signed>, Response> {
        let secret = match &hook.key {
            Key::Open => return Ok(None),
            Key::Missing => return Err(refused(StatusCode::FORBIDDEN, "this route has no secret")),
            Key::Secret(secret) => secret,
        };
        let signed = signature::verified(secret, headers, body, since_1970().0 / 1000);
        let signed = signed.ok_or_else(|| {
            debug!(platform = "webhook", route, "a delivery without a good signature");
            refused(StatusCode::UNAUTHORIZED, "the signature is missing, wrong or too old")
        })?;
        if signed.scheme == Scheme::V1 && self.is_first_v1(route) {
            warn!(
                platform = "webhook",
                route, "signed without its time, so it can be played again: send X-Webhook-Signature-V2"
            );
        }
        Ok(Some(signed))
    }

    fn rate(&self, route: &str) -> Result<(), Response> {
        self.count(route).map_err(|seconds| {
            later(refused(StatusCode::TOO_MANY_REQUESTS, "too many deliveries for this route"), seconds)
        })
    }

    async fn take(&self, hook: &Hook, payload: &Value, delivery: Delivery<'_>) -> Result<Response, Response> {
        let here = parse::chat(delivery.route, &delivery.id);
        let target = hook.target(payload, self.platform, &here).ok_or_else(|| {
            warn!(
                platform = "webhook",
                route = delivery.route,
                "the payload does not say where its answer goes"
            );
            refused(StatusCode::BAD_GATEWAY, "the payload does not say where its answer goes (deliver_extra)")
        })?;
        let text = hook.text(payload);
        if hook.deliver_only {
            self.pass_on(text, target, &delivery).await
        } else {
            self.begin(text, target, &delivery).await
        }
    }

    /// A turn of its own.
    async fn begin(
        &self,
        text: String,
        target: Route,
        delivery: &Delivery<'_>,
    ) -> Result<Response, Response> {
        let names = (delivery.route, delivery.id.as_str());
        let fingerprints = delivery.fingerprints.clone();
        let event = parse::inbound(self.platform, names, fingerprints, text, target, since_1970());
        match self.intake.offer(vec![event], vec![], None).await.map_err(|gone| self.gone(gone))? {
            Taken::Committed => {
                self.bell.ring(News::Heard);
                Ok(delivery.told(StatusCode::ACCEPTED, "accepted"))
            }
            Taken::Known => Ok(delivery.told(StatusCode::OK, "duplicate")),
            Taken::NotTaken | Taken::Unfit => Err(self.not_taken()),
            Taken::NoHome => Err(delivery.homeless()),
            Taken::Closed(closed) => Err(shut(closed)),
        }
    }

    /// The text as it is, without a turn.
    async fn pass_on(
        &self,
        text: String,
        target: Route,
        delivery: &Delivery<'_>,
    ) -> Result<Response, Response> {
        let dedup = format!("post:{}:{}", delivery.route, delivery.id);
        let (fingerprints, text) = (delivery.fingerprints.clone(), within_reason(text));
        let posted = self.intake.post(dedup, fingerprints, target, text, self.delivery_wait).await;
        match posted.map_err(|gone| self.gone(gone))? {
            Posted::Delivered { again: false } => Ok(delivery.told(StatusCode::OK, "delivered")),
            Posted::Delivered { again: true } => Ok(delivery.told(StatusCode::OK, "duplicate")),
            Posted::Owed => Err(delivery.told(StatusCode::BAD_GATEWAY, "owed")),
            Posted::Dead => Err(delivery.told(StatusCode::BAD_GATEWAY, "refused")),
            Posted::NoHome => Err(delivery.homeless()),
            Posted::NotTaken => Err(self.not_taken()),
        }
    }

    /// Whoever signed it meant something: it is kept as it came. The same again would not help.
    async fn set_aside(&self, id: Option<String>, body: &Bytes) -> Response {
        let why = "the body is neither JSON nor a form";
        let unreadable = Unreadable::new(id, why, &String::from_utf8_lossy(body));
        warn!(platform = "webhook", bytes = body.len(), "unreadable delivery set aside");
        match self.intake.offer(vec![], vec![unreadable], None).await {
            Ok(Taken::Committed | Taken::Known) => refused(StatusCode::BAD_REQUEST, why),
            Ok(Taken::NotTaken | Taken::Unfit | Taken::NoHome | Taken::Closed(_)) => self.not_taken(),
            Err(gone) => self.gone(gone),
        }
    }

    fn not_taken(&self) -> Response {
        self.bell.ring(News::NotTaken);
        later(refused(StatusCode::SERVICE_UNAVAILABLE, "could not be kept"), SOON)
    }

    fn gone(&self, gone: NotTaken) -> Response {
        self.bell.ring(match gone {
            NotTaken::Closed => News::Gone,
            NotTaken::Refused | NotTaken::Unfit => News::NotTaken,
        });
        later(refused(StatusCode::SERVICE_UNAVAILABLE, "gateway_stopping"), SOON)
    }
}

impl Delivery<'_> {
    fn homeless(&self) -> Response {
        warn!(platform = "webhook", route = self.route, "the platform that it is for has no home yet");
        let why = "the platform that it is for has no home: say /sethome there, or set deliver_extra.chat_id";
        refused(StatusCode::BAD_GATEWAY, why)
    }

    fn told(&self, status: StatusCode, word: &str) -> Response {
        let mut body = json!({ "status": word, "route": self.route, "delivery_id": self.id });
        if let Some(event) = &self.event {
            body["event"] = event.as_str().into();
        }
        listener::json(status, &body)
    }
}

fn ignored(reason: &str) -> Response {
    listener::json(StatusCode::OK, &json!({ "status": "ignored", "reason": reason }))
}

fn shut(closed: Closed) -> Response {
    let word = match closed {
        Closed::Draining => "gateway_draining",
        Closed::Leaving { .. } => "gateway_stopping",
        Closed::Full { .. } => "gateway_busy",
    };
    later(refused(StatusCode::SERVICE_UNAVAILABLE, word), AFTER_DRAIN)
}

/// For a delivery that has no name: it is taken for a new one every time.
fn random() -> Result<String, Response> {
    let mut bytes = [0; 16];
    match getrandom::fill(&mut bytes) {
        Ok(()) => Ok(parse::hex(&bytes)),
        Err(error) => {
            warn!(platform = "webhook", %error, "no random numbers");
            Err(later(refused(StatusCode::SERVICE_UNAVAILABLE, "could not be kept"), SOON))
        }
    }
}

fn since_1970() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
