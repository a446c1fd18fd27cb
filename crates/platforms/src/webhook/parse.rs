//! From a request to an event. Pure.

use std::time::Duration;

use aws_lc_rs::digest;
use axum::http::{HeaderMap, header};
use petasos_core::message::{ChatType, Fingerprint};
use petasos_core::{Inbound, Millis, Platform, Route, Source};
use reqwest::Url;
use serde_json::{Map, Value};

use super::signature::{Scheme, Signed};

/// Headers that name a delivery, and name it the same when it is repeated.
const IDS: [&str; 6] =
    ["x-github-delivery", "svix-id", "webhook-id", "idempotency-key", "x-gitlab-event-uuid", "x-request-id"];
/// Those that are part of what Svix signs.
const SIGNED_IDS: [&str; 2] = ["svix-id", "webhook-id"];
/// Where the kind of an event stands: in a header, else in the payload.
const KIND_HEADERS: [&str; 2] = ["x-github-event", "x-gitlab-event"];
const KIND_FIELDS: [&str; 3] = ["event_type", "object_kind", "type"];
const LONGEST_ID: usize = 128;

/// What the body says; `None`: it cannot be read. It need not be an object.
pub(super) fn payload(headers: &HeaderMap, body: &[u8]) -> Option<Value> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.trim().to_ascii_lowercase().starts_with("application/x-www-form-urlencoded") {
        return form(body);
    }
    serde_json::from_slice(body).ok()
}

/// Fields become an object; GitHub puts its whole JSON into one called `payload`.
fn form(body: &[u8]) -> Option<Value> {
    let mut url = Url::parse("http://form/").ok()?;
    url.set_query(Some(std::str::from_utf8(body).ok()?.trim()));
    let fields: Map<String, Value> =
        url.query_pairs().map(|(name, value)| (name.into_owned(), Value::from(value.into_owned()))).collect();
    let wrapped =
        fields.get("payload").and_then(Value::as_str).and_then(|json| serde_json::from_str(json).ok());
    (!fields.is_empty()).then(|| wrapped.unwrap_or(Value::Object(fields)))
}

/// Every name of the event, the most telling first.
pub(super) fn names(headers: &HeaderMap, payload: &Value) -> Vec<String> {
    let headers = KIND_HEADERS.iter().filter_map(|name| headers.get(*name)?.to_str().ok());
    let fields = KIND_FIELDS.iter().filter_map(|name| payload.get(*name)?.as_str());
    headers.chain(fields).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// What tells this delivery from others, and not from its own repetitions. `None`: nobody says. Where the name of a
/// delivery is signed, no other counts; a request that is signed with its time and has no name is told by its
/// signature: neither can be played again under another name.
pub(super) fn delivery(headers: &HeaderMap, scheme: Option<Scheme>) -> Option<String> {
    let text = |name: &str| headers.get(name).map(|value| value.as_bytes()).filter(|id| !id.is_empty());
    let first = |names: &[&str]| names.iter().find_map(|name| text(name));
    let id = match scheme {
        Some(Scheme::Svix) => first(&SIGNED_IDS)?.to_vec(),
        Some(Scheme::V2) => {
            let signature = || text("x-webhook-signature-v2").map(<[u8]>::to_ascii_lowercase);
            first(&["idempotency-key"]).map(<[u8]>::to_vec).or_else(signature)?
        }
        Some(Scheme::GitHub | Scheme::GitLab | Scheme::V1) | None => first(&IDS)?.to_vec(),
    };
    let plain = id.len() <= LONGEST_ID && id.iter().all(u8::is_ascii_graphic);
    let plain = plain.then(|| String::from_utf8(id.clone()).ok()).flatten();
    Some(plain.unwrap_or_else(|| hex(digest::digest(&digest::SHA256, &id).as_ref())))
}

/// How long fingerprints are stored of what is signed with its time, or can be played again as V1 anyway.
const REMEMBERED: Duration = Duration::from_secs(30 * 24 * 3600);
/// Long enough for a request that is played again at once, and short enough for a program that posts the same body
/// every minute.
const BODY_WINDOW: Duration = Duration::from_secs(30);

/// By what a replay under another delivery id, on another route or in another scheme is recognised: the code that its
/// sender made with the secret, for a time that depends on what the scheme signs.
pub(super) fn fingerprints(
    headers: &HeaderMap,
    signed: Option<&Signed>,
    route: &str,
    body: &[u8],
) -> Vec<Fingerprint> {
    let digest = |bytes: &[u8]| hex(digest::digest(&digest::SHA256, bytes).as_ref());
    // Without a secret nothing is trustworthy.
    let Some(Signed { scheme, code }) = signed else { return vec![] };
    let code = digest(code);
    let fingerprint = |key: String, within, recorded| Fingerprint { key, within, recorded };
    // Nothing tells a repetition that is meant from a replay. A sender that names no id means each of its requests.
    let named = delivery(headers, Some(*scheme)).is_some();
    match scheme {
        Scheme::Svix | Scheme::V2 => {
            vec![fingerprint(format!("replay:timed:{code}"), Some(REMEMBERED), true)]
        }
        Scheme::GitHub => vec![
            fingerprint(format!("untimed:{code}"), None, true),
            fingerprint(format!("replay:v1-as-github:{code}"), Some(REMEMBERED), false),
        ],
        Scheme::V1 => vec![
            fingerprint(format!("untimed:{code}"), None, false),
            fingerprint(format!("replay:v1:{code}"), Some(BODY_WINDOW), named),
            // For GitHub's, which never repeats a body.
            fingerprint(format!("replay:v1-as-github:{code}"), Some(Duration::ZERO), true),
        ],
        // Its caller shows the secret: whoever records a request can make others.
        Scheme::GitLab => {
            vec![fingerprint(format!("replay:{route}:gitlab:{}", digest(body)), Some(BODY_WINDOW), named)]
        }
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The conversation of one delivery.
pub(super) fn chat(route: &str, delivery: &str) -> String {
    format!("webhook:{route}:{delivery}")
}

pub(super) fn inbound(
    platform: Platform,
    (route, delivery): (&str, &str),
    fingerprints: Vec<Fingerprint>,
    text: String,
    answer_to: Route,
    now: Millis,
) -> Inbound {
    let mut source = Source::new(platform, ChatType::Webhook, chat(route, delivery));
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
        answer_to: Some(answer_to),
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
    fn bodies_of_every_kind_are_read_and_rubbish_is_not() {
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
    fn events_have_the_names_their_senders_give_them() {
        let gitlab = headers(&[("x-gitlab-event", "Push Hook")]);
        assert_eq!(names(&gitlab, &json!({ "object_kind": "push" })), ["Push Hook", "push"]);
        assert_eq!(names(&headers(&[("x-github-event", "ping")]), &json!([])), ["ping"]);
        assert_eq!(names(&HeaderMap::new(), &json!({ "event_type": "a", "type": 3 })), ["a"]);
        assert!(names(&HeaderMap::new(), &json!(1)).is_empty());
    }

    #[test]
    fn a_delivery_is_named_by_its_sender() {
        let github = headers(&[("x-github-delivery", "72d3162e-cc78"), ("x-request-id", "r")]);
        assert_eq!(delivery(&github, None).as_deref(), Some("72d3162e-cc78"));
        assert_eq!(delivery(&headers(&[("x-request-id", "r")]), None).as_deref(), Some("r"));
        let signed = headers(&[("x-webhook-signature-v2", "abc")]);
        assert_eq!(delivery(&signed, Some(Scheme::V2)).as_deref(), Some("abc"));
        assert_eq!(delivery(&signed, Some(Scheme::V1)), None, "not checked, so it says nothing");
        let spelt = headers(&[("x-webhook-signature-v2", "ABC"), ("x-request-id", "another")]);
        assert_eq!(delivery(&spelt, Some(Scheme::V2)).as_deref(), Some("abc"), "played again");
        let svix = headers(&[("x-github-delivery", "another"), ("svix-id", "msg_1")]);
        assert_eq!(delivery(&svix, Some(Scheme::Svix)).as_deref(), Some("msg_1"), "played again");
        assert_eq!(delivery(&HeaderMap::new(), Some(Scheme::GitHub)), None);
        for odd in ["a b".to_owned(), "x".repeat(129)] {
            let named = delivery(&headers(&[("x-request-id", &odd)]), None).expect("a name");
            assert!(named.len() == 64 && named.bytes().all(|byte| byte.is_ascii_hexdigit()), "{named}");
        }
    }
}
