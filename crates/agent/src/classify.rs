//! From a refusal on the wire to its class. Status and structured codes decide; prose only where a
//! provider gives nothing else.

use std::time::Duration;

use serde_json::Value;

use crate::failure::{CallError, Class};
use petasos_core::Secret;

const SHOWN: usize = 200;

/// An HTTP answer that is not a success.
pub(crate) fn classify(
    status: u16,
    retry_after: Option<Duration>,
    body: &str,
    key: Option<&Secret>,
) -> CallError {
    let body: Value = serde_json::from_str(body).unwrap_or(Value::Null);
    CallError { retry_after, ..refusal(Some(status), &body, key) }
}

/// An error object in the middle of a stream, where there is no status any more.
pub(crate) fn classify_event(body: &Value, key: Option<&Secret>) -> CallError {
    refusal(None, body, key)
}

fn refusal(status: Option<u16>, body: &Value, key: Option<&Secret>) -> CallError {
    let error = if body["error"].is_null() { body } else { &body["error"] };
    let words = [&error["code"], &error["type"], &error["status"]];
    let message =
        [&error["message"], error, &body["message"], &body["detail"]].into_iter().find_map(Value::as_str);
    let message = message.unwrap_or_default();
    let inner = error["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    let class = words
        .into_iter()
        .filter_map(Value::as_str)
        .find_map(by_code)
        .or_else(|| by_prose(message))
        .or_else(|| status.or(inner).map(by_status))
        .unwrap_or(Class::ServerError);
    let limit = match class {
        Class::ContextOverflow => stated_window(error, message),
        Class::OutputLimit => stated_output(message),
        _ => None,
    };
    CallError { class, detail: sanitise(message, key), retry_after: None, limit }
}

/// The window, where a refusal names it: `maximum context length is 8192`, `210000 tokens > 200000 maximum`.
fn stated_window(error: &Value, message: &str) -> Option<usize> {
    let field = error["n_ctx"].as_u64().and_then(|tokens| usize::try_from(tokens).ok());
    let stated = || {
        let message = message.to_lowercase();
        let marks = ["maximum context length is", "maximum context length of", "context window of", ">"];
        marks.iter().find_map(|mark| number_after(&message, mark))
    };
    field.or_else(stated)
}

/// The longest answer, where a refusal names it: `at most 16384 completion tokens`, `100000 > 64000`, or what the
/// prompt leaves of the window: `188240 + 21333 > 200000`.
fn stated_output(message: &str) -> Option<usize> {
    let over = number_after(message, ">");
    let Some((before, _)) = message.split_once('+') else {
        return over.or_else(|| number_after(message, "at most"));
    };
    let prompt = before.trim_end().rsplit(|c: char| !c.is_ascii_digit()).next()?.parse::<usize>().ok()?;
    over?.checked_sub(prompt)
}

fn number_after(message: &str, mark: &str) -> Option<usize> {
    let (_, rest) = message.split_once(mark)?;
    let digits = rest.trim_start().split(|c: char| !c.is_ascii_digit() && c != ',').next()?;
    digits.replace(',', "").parse().ok()
}

/// Codes that say more than the status they come with.
fn by_code(code: &str) -> Option<Class> {
    Some(match code {
        "insufficient_quota" | "billing_hard_limit_reached" | "billing_error" | "billing_not_active" => {
            Class::Billing
        }
        "invalid_api_key" | "authentication_error" | "permission_error" | "account_deactivated" => {
            Class::Auth
        }
        "rate_limit_exceeded" | "rate_limit_error" | "RESOURCE_EXHAUSTED" => Class::RateLimit,
        "overloaded_error" | "engine_overloaded" | "UNAVAILABLE" => Class::Overloaded,
        "context_length_exceeded" | "exceed_context_size_error" | "string_above_max_length" => {
            Class::ContextOverflow
        }
        "request_too_large" => Class::PayloadTooLarge,
        "model_not_found" | "not_found_error" | "model_not_supported" => Class::ModelNotFound,
        "content_filter" | "content_policy_violation" | "moderation" => Class::Refused,
        "server_error" | "api_error" | "internal_server_error" => Class::ServerError,
        "timeout" | "timeout_error" => Class::Timeout,
        _ => return None,
    })
}

/// A prompt that is too long has no code at Anthropic, vLLM and Ollama; it is worth recognising, because
/// a shorter one will pass.
fn by_prose(message: &str) -> Option<Class> {
    const TOO_LONG: [&str; 5] = [
        "prompt is too long",
        "maximum context length",
        "exceeds the context window",
        "exceeds context length",
        "exceeds the available context size",
    ];
    const TOO_MUCH: [&str; 4] =
        ["too large", "at most", "maximum allowed number of output tokens", "exceed context limit"];
    let message = message.to_lowercase();
    let says = |phrases: &[&str]| phrases.iter().any(|phrase| message.contains(phrase));
    let output = ["max_tokens", "max_completion_tokens", "max_output_tokens"];
    if says(&output) && says(&TOO_MUCH) {
        return Some(Class::OutputLimit);
    }
    says(&TOO_LONG).then_some(Class::ContextOverflow)
}

fn by_status(status: u16) -> Class {
    match status {
        401 | 403 => Class::Auth,
        402 => Class::Billing,
        404 => Class::ModelNotFound,
        408 | 504 => Class::Timeout,
        413 => Class::PayloadTooLarge,
        429 => Class::RateLimit,
        503 | 529 => Class::Overloaded,
        500.. => Class::ServerError,
        // A redirect is a wrong address, not a model.
        300..=399 => Class::Malformed,
        _ => Class::BadRequest,
    }
}

/// Seconds, as whole or broken numbers. A date is not worth a calendar: the backoff takes over.
pub(crate) fn retry_after(header: &str) -> Option<Duration> {
    let seconds: f64 = header.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// One short line without markup and without anything that looks like a key.
fn sanitise(message: &str, key: Option<&Secret>) -> String {
    if message.contains('<') && message.contains('>') {
        return String::new();
    }
    let masked = match key {
        Some(key) => message.replace(key.expose(), "***"),
        None => message.to_owned(),
    };
    let words: Vec<&str> =
        masked.split_whitespace().map(|word| if secret_like(word) { "***" } else { word }).collect();
    let line: String = words.join(" ").chars().filter(|c| !c.is_control()).collect();
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

fn secret_like(word: &str) -> bool {
    let run = word.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_').map(str::len).max();
    word.contains("sk-") || word.contains("Bearer") || run.is_some_and(|longest| longest >= 40)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: u16, body: &str, want: Class) {
        assert_eq!(classify(status, None, body, None).class, want, "{status} {body}");
    }

    #[test]
    fn the_status_decides_when_the_body_says_nothing() {
        let table = [
            (401, Class::Auth),
            (403, Class::Auth),
            (402, Class::Billing),
            (404, Class::ModelNotFound),
            (413, Class::PayloadTooLarge),
            (400, Class::BadRequest),
            (422, Class::BadRequest),
            (429, Class::RateLimit),
            (500, Class::ServerError),
            (502, Class::ServerError),
            (503, Class::Overloaded),
            (504, Class::Timeout),
            (529, Class::Overloaded),
            (307, Class::Malformed),
        ];
        for (status, want) in table {
            check(status, "<html><body>nginx</body></html>", want);
            check(status, "", want);
        }
    }

    #[test]
    fn a_structured_code_beats_the_status() {
        check(429, r#"{"error":{"code":"insufficient_quota","message":"x"}}"#, Class::Billing);
        check(400, r#"{"error":{"code":"context_length_exceeded"}}"#, Class::ContextOverflow);
        check(400, r#"{"error":{"type":"exceed_context_size_error","code":400}}"#, Class::ContextOverflow);
        check(400, r#"{"type":"error","error":{"type":"overloaded_error"}}"#, Class::Overloaded);
        check(
            400,
            r#"{"error":{"type":"invalid_request_error","message":"prompt is too long: 9 > 8"}}"#,
            Class::ContextOverflow,
        );
        check(400, r#"{"error":{"code":"content_filter"}}"#, Class::Refused);
        check(404, r#"{"error":"model 'x' not found"}"#, Class::ModelNotFound);
    }

    #[test]
    fn a_stated_limit_is_read() {
        let limit = |message: &str| {
            let body = serde_json::json!({"error": {"message": message}}).to_string();
            let error = classify(400, None, &body, None);
            (error.class, error.limit)
        };
        for (message, class, want) in [
            (
                "This model's maximum context length is 8192 tokens. However, you requested 9000.",
                Class::ContextOverflow,
                Some(8192),
            ),
            ("prompt is too long: 210000 tokens > 200000 maximum", Class::ContextOverflow, Some(200_000)),
            ("maximum context length is 1,048,576 tokens", Class::ContextOverflow, Some(1_048_576)),
            ("prompt is too long", Class::ContextOverflow, None),
            (
                "max_tokens is too large: 64000. This model supports at most 16384 completion tokens",
                Class::OutputLimit,
                Some(16_384),
            ),
            (
                "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens",
                Class::OutputLimit,
                Some(64_000),
            ),
            (
                "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000",
                Class::OutputLimit,
                Some(11_760),
            ),
            ("max_tokens is too large", Class::OutputLimit, None),
        ] {
            assert_eq!(limit(message), (class, want), "{message}");
        }
        let body = r#"{"error":{"type":"exceed_context_size_error","n_ctx":4096}}"#;
        assert_eq!(classify(400, None, body, None).limit, Some(4096));
    }

    #[test]
    fn an_error_in_the_stream_is_classified_without_a_status() {
        let check = |body: &str, want| {
            assert_eq!(classify_event(&serde_json::from_str(body).unwrap(), None).class, want, "{body}");
        };
        check(r#"{"error":{"code":429,"message":"slow down"}}"#, Class::RateLimit);
        check(r#"{"error":{"code":502,"message":"Provider returned error"}}"#, Class::ServerError);
        check(
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            Class::Overloaded,
        );
        check(r#"{"error":"boom"}"#, Class::ServerError);
    }

    #[test]
    fn pages_and_keys_never_reach_the_detail() {
        let key = Secret::new("my-own-key");
        let detail = |body: &str| classify(401, None, body, Some(&key)).detail;
        assert_eq!(detail("<html>secret proxy page</html>"), "");
        assert_eq!(detail(r#"{"error":{"message":"<b>no</b>"}}"#), "");
        assert_eq!(detail(r#"{"error":{"message":"Wrong key: sk-abc123 sent"}}"#), "Wrong key: *** sent");
        assert_eq!(detail(r#"{"error":{"message":"got my-own-key,\nsorry"}}"#), "got ***, sorry");
        let long = format!(r#"{{"error":"{}"}}"#, "word ".repeat(200));
        assert!(detail(&long).chars().count() <= SHOWN + 1);
    }

    #[test]
    fn waits_are_read_in_seconds_only() {
        assert_eq!(retry_after("7"), Some(Duration::from_secs(7)));
        assert_eq!(retry_after(" 0.5 "), Some(Duration::from_millis(500)));
        assert_eq!(retry_after("Wed, 21 Oct 2026 07:28:00 GMT"), None);
        assert_eq!(retry_after("-1"), None);
        assert_eq!(retry_after("inf"), None);
    }
}
