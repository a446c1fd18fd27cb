//! Parses a request into an event. Pure.

use std::time::Duration;

use aws_lc_rs::digest;
use axum::http::{HeaderMap, header};
use petasos_core::message::{ChatType, Fingerprint};
use petasos_core::text::hex;
use petasos_core::{Inbound, Millis, Platform, Route, Source};
use reqwest::Url;
use serde_json::{Map, Value};

use super::signature::{SignatureScheme, VerifiedSignature};

/// Headers with a delivery id that stays the same in retries.
const ID_HEADERS: [&str; 6] =
    ["x-github-delivery", "svix-id", "webhook-id", "idempotency-key", "x-gitlab-event-uuid", "x-request-id"];
const SIGNED_ID_HEADERS: [&str; 2] = ["svix-id", "webhook-id"];
/// Names of the event: headers, else payload fields.
const EVENT_HEADERS: [&str; 2] = ["x-github-event", "x-gitlab-event"];
const EVENT_FIELDS: [&str; 3] = ["event_type", "object_kind", "type"];
const MAX_ID: usize = 128;

/// Any JSON value, or a form as an object. `None`: unreadable.
pub(super) fn payload(headers: &HeaderMap, body: &[u8]) -> Option<Value> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.trim().to_ascii_lowercase().starts_with("application/x-www-form-urlencoded") {
        return form(body);
    }
    serde_json::from_slice(body).ok()
}

/// GitHub puts its JSON into a field called `payload`.
fn form(body: &[u8]) -> Option<Value> {
    let mut url = Url::parse("http://form/").ok()?;
    url.set_query(Some(std::str::from_utf8(body).ok()?.trim()));
    let fields: Map<String, Value> =
        url.query_pairs().map(|(name, value)| (name.into_owned(), Value::from(value.into_owned()))).collect();
    let wrapped =
        fields.get("payload").and_then(Value::as_str).and_then(|json| serde_json::from_str(json).ok());
    (!fields.is_empty()).then(|| wrapped.unwrap_or(Value::Object(fields)))
}

/// Every name of the event, the most specific first.
pub(super) fn event_names(headers: &HeaderMap, payload: &Value) -> Vec<String> {
    let headers = EVENT_HEADERS.iter().filter_map(|name| headers.get(*name)?.to_str().ok());
    let fields = EVENT_FIELDS.iter().filter_map(|name| payload.get(*name)?.as_str());
    headers.chain(fields).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The idempotency key of a delivery, if any. A signed id takes precedence over all others; a timed signature
/// without an id is the id itself. So neither can be replayed under another id.
pub(super) fn delivery_id(headers: &HeaderMap, scheme: Option<SignatureScheme>) -> Option<String> {
    let text = |name: &str| headers.get(name).map(|value| value.as_bytes()).filter(|id| !id.is_empty());
    let first = |names: &[&str]| names.iter().find_map(|name| text(name));
    let id = match scheme {
        Some(SignatureScheme::Svix) => first(&SIGNED_ID_HEADERS)?.to_vec(),
        Some(SignatureScheme::V2) => {
            let signature = || text("x-webhook-signature-v2").map(<[u8]>::to_ascii_lowercase);
            first(&["idempotency-key"]).map(<[u8]>::to_vec).or_else(signature)?
        }
        Some(SignatureScheme::GitHub | SignatureScheme::GitLab | SignatureScheme::V1) | None => {
            first(&ID_HEADERS)?.to_vec()
        }
    };
    let plain = id.len() <= MAX_ID && id.iter().all(u8::is_ascii_graphic);
    let plain = plain.then(|| String::from_utf8(id.clone()).ok()).flatten();
    Some(plain.unwrap_or_else(|| hex(digest::digest(&digest::SHA256, &id).as_ref())))
}

/// How long the fingerprints of timed signatures are stored, and of those that can be replayed as V1.
const FINGERPRINT_RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);
/// Covers an immediate replay; shorter than the period of programs that post the same body regularly.
const BODY_WINDOW: Duration = Duration::from_secs(30);

/// Detects replays under another delivery id, on another route or in another scheme.
pub(super) fn fingerprints(
    headers: &HeaderMap,
    signed: Option<&VerifiedSignature>,
    route: &str,
    body: &[u8],
) -> Vec<Fingerprint> {
    let digest = |bytes: &[u8]| hex(digest::digest(&digest::SHA256, bytes).as_ref());
    let Some(VerifiedSignature { scheme, code }) = signed else { return vec![] };
    let code = digest(code);
    let fingerprint = |key: String, within, recorded| Fingerprint { key, within, recorded };
    // An intended repetition looks like a replay, so requests without an id are not recorded.
    let named = delivery_id(headers, Some(*scheme)).is_some();
    match scheme {
        SignatureScheme::Svix | SignatureScheme::V2 => {
            vec![fingerprint(format!("replay:timed:{code}"), Some(FINGERPRINT_RETENTION), true)]
        }
        SignatureScheme::GitHub => vec![
            fingerprint(format!("untimed:{code}"), None, true),
            fingerprint(format!("replay:v1-as-github:{code}"), Some(FINGERPRINT_RETENTION), false),
        ],
        SignatureScheme::V1 => vec![
            fingerprint(format!("untimed:{code}"), None, false),
            fingerprint(format!("replay:v1:{code}"), Some(BODY_WINDOW), named),
            // For replays as GitHub, which never repeats a body.
            fingerprint(format!("replay:v1-as-github:{code}"), Some(Duration::ZERO), true),
        ],
        // The header is the secret itself: a recorded request allows forging others.
        SignatureScheme::GitLab => {
            vec![fingerprint(format!("replay:{route}:gitlab:{}", digest(body)), Some(BODY_WINDOW), named)]
        }
    }
}

pub(super) fn chat_id(route: &str, delivery: &str) -> String {
    format!("webhook:{route}:{delivery}")
}

pub(super) fn inbound(
    platform: Platform,
    (route, delivery): (&str, &str),
    fingerprints: Vec<Fingerprint>,
    text: String,
    reply_route: Route,
    now: Millis,
) -> Inbound {
    let mut source = Source::new(platform, ChatType::Webhook, chat_id(route, delivery));
    source.chat_name = Some(format!("webhook/{route}"));
    source.user_id = Some(format!("webhook:{route}"));
    source.user_name = Some(route.to_owned());
    source.message_id = Some(delivery.to_owned());
    Inbound {
        source,
        dedup: format!("turn:{route}:{delivery}"),
        text,
        attachments: vec![],
        quoted: None,
        context: None,
        sent_at: Some(now),
        internal: false,
        reply_route: Some(reply_route),
        fingerprints,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};
    use serde_json::json;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::try_from(*value).expect("a value"))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn parses_json_and_forms() {
        let form = "application/x-www-form-urlencoded; charset=utf-8";
        for (kind, body, want) in [
            ("application/json", r#"{"a":1}"#, Some(json!({ "a": 1 }))),
            ("application/json", "[1,\"é\"]", Some(json!([1, "é"]))),
            ("application/json", "7", Some(json!(7))),
            ("application/json", "null", Some(json!(null))),
            ("text/plain", r#""x""#, Some(json!("x"))),
            ("application/json", "{", None),
            ("application/json", "", None),
            (form, "a=1&b=x+y%21", Some(json!({ "a": "1", "b": "x y!" }))),
            (form, "payload=%7B%22a%22%3A1%7D", Some(json!({ "a": 1 }))),
            (form, "payload=text", Some(json!({ "payload": "text" }))),
            (form, "", None),
        ] {
            assert_eq!(payload(&headers(&[("content-type", kind)]), body.as_bytes()), want, "{kind} {body}");
        }
        assert_eq!(payload(&HeaderMap::new(), b"{}"), Some(json!({})));
        assert_eq!(payload(&headers(&[("content-type", form)]), b"\xff"), None);
    }

    #[test]
    fn reads_event_names_from_headers_and_payload() {
        let gitlab = headers(&[("x-gitlab-event", "Push Hook")]);
        assert_eq!(event_names(&gitlab, &json!({ "object_kind": "push" })), ["Push Hook", "push"]);
        assert_eq!(event_names(&headers(&[("x-github-event", "ping")]), &json!([])), ["ping"]);
        assert_eq!(event_names(&HeaderMap::new(), &json!({ "event_type": "a", "type": 3 })), ["a"]);
        assert!(event_names(&HeaderMap::new(), &json!(1)).is_empty());
    }

    #[test]
    fn derives_the_delivery_id_from_signed_headers_first() {
        let github = headers(&[("x-github-delivery", "72d3162e-cc78"), ("x-request-id", "r")]);
        assert_eq!(delivery_id(&github, None).as_deref(), Some("72d3162e-cc78"));
        assert_eq!(delivery_id(&headers(&[("x-request-id", "r")]), None).as_deref(), Some("r"));
        let signed = headers(&[("x-webhook-signature-v2", "abc")]);
        assert_eq!(delivery_id(&signed, Some(SignatureScheme::V2)).as_deref(), Some("abc"));
        assert_eq!(delivery_id(&signed, Some(SignatureScheme::V1)), None, "not verified, so not used");
        let spelt = headers(&[("x-webhook-signature-v2", "ABC"), ("x-request-id", "another")]);
        assert_eq!(delivery_id(&spelt, Some(SignatureScheme::V2)).as_deref(), Some("abc"), "replayed");
        let svix = headers(&[("x-github-delivery", "another"), ("svix-id", "msg_1")]);
        assert_eq!(delivery_id(&svix, Some(SignatureScheme::Svix)).as_deref(), Some("msg_1"), "replayed");
        assert_eq!(delivery_id(&HeaderMap::new(), Some(SignatureScheme::GitHub)), None);
        for odd in ["a b".to_owned(), "x".repeat(129)] {
            let named = delivery_id(&headers(&[("x-request-id", &odd)]), None).expect("a name");
            assert!(named.len() == 64 && named.bytes().all(|byte| byte.is_ascii_hexdigit()), "{named}");
        }
    }
}
