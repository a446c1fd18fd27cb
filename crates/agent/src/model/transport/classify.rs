//! Classifies provider errors by structured code, then by known phrases, then by HTTP status.

use std::time::Duration;

use serde_json::Value;

use crate::model::failure::{CallError, ModelFailureClass};
use petasos_core::Secret;

const SHOWN: usize = 200;

pub(crate) fn classify(
    status: u16,
    retry_after: Option<Duration>,
    body: &str,
    key: Option<&Secret>,
) -> CallError {
    let body: Value = serde_json::from_str(body).unwrap_or(Value::Null);
    CallError { retry_after, ..classify_body(Some(status), &body, key) }
}

/// Classifies an error object inside a stream, where there is no HTTP status.
pub(crate) fn classify_event(body: &Value, key: Option<&Secret>) -> CallError {
    classify_body(None, body, key)
}

fn classify_body(status: Option<u16>, body: &Value, key: Option<&Secret>) -> CallError {
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
        .unwrap_or(ModelFailureClass::ServerError);
    let limit = match class {
        ModelFailureClass::ContextOverflow => stated_window(error, message),
        ModelFailureClass::OutputLimit => stated_output(message),
        _ => None,
    };
    CallError { class, detail: sanitise(message, key), retry_after: None, limit }
}

/// The context window that the error names: `maximum context length is 8192`, `210000 tokens > 200000
/// maximum`.
fn stated_window(error: &Value, message: &str) -> Option<usize> {
    let field = error["n_ctx"].as_u64().and_then(|tokens| usize::try_from(tokens).ok());
    let stated = || {
        let message = message.to_lowercase();
        let marks = ["maximum context length is", "maximum context length of", "context window of", ">"];
        marks.iter().find_map(|mark| number_after(&message, mark))
    };
    field.or_else(stated)
}

/// The output limit that the error names: `at most 16384 completion tokens`, `100000 > 64000`, or what the
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

/// Codes that are more specific than the HTTP status.
fn by_code(code: &str) -> Option<ModelFailureClass> {
    Some(match code {
        "insufficient_quota" | "billing_hard_limit_reached" | "billing_error" | "billing_not_active" => {
            ModelFailureClass::Billing
        }
        "invalid_api_key" | "authentication_error" | "permission_error" | "account_deactivated" => {
            ModelFailureClass::Auth
        }
        "rate_limit_exceeded" | "rate_limit_error" | "RESOURCE_EXHAUSTED" => ModelFailureClass::RateLimit,
        "overloaded_error" | "engine_overloaded" | "UNAVAILABLE" => ModelFailureClass::Overloaded,
        "context_length_exceeded" | "exceed_context_size_error" | "string_above_max_length" => {
            ModelFailureClass::ContextOverflow
        }
        "request_too_large" => ModelFailureClass::PayloadTooLarge,
        "model_not_found" | "not_found_error" | "model_not_supported" => ModelFailureClass::ModelNotFound,
        "content_filter" | "content_policy_violation" | "moderation" => ModelFailureClass::Refused,
        "server_error" | "api_error" | "internal_server_error" => ModelFailureClass::ServerError,
        "timeout" | "timeout_error" => ModelFailureClass::Timeout,
        _ => return None,
    })
}

/// Anthropic, vLLM and Ollama have no code for an oversized prompt. It must be recognised, because a shorter
/// prompt will pass.
fn by_prose(message: &str) -> Option<ModelFailureClass> {
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
    let contains_any = |phrases: &[&str]| phrases.iter().any(|phrase| message.contains(phrase));
    let output = ["max_tokens", "max_completion_tokens", "max_output_tokens"];
    if contains_any(&output) && contains_any(&TOO_MUCH) {
        return Some(ModelFailureClass::OutputLimit);
    }
    contains_any(&TOO_LONG).then_some(ModelFailureClass::ContextOverflow)
}

fn by_status(status: u16) -> ModelFailureClass {
    match status {
        401 | 403 => ModelFailureClass::Auth,
        402 => ModelFailureClass::Billing,
        404 => ModelFailureClass::ModelNotFound,
        408 | 504 => ModelFailureClass::Timeout,
        413 => ModelFailureClass::PayloadTooLarge,
        429 => ModelFailureClass::RateLimit,
        503 | 529 => ModelFailureClass::Overloaded,
        500.. => ModelFailureClass::ServerError,
        // A redirect means a wrong base URL, not a missing model.
        300..=399 => ModelFailureClass::Malformed,
        _ => ModelFailureClass::BadRequest,
    }
}

/// Parses whole or fractional seconds. HTTP dates are ignored; the backoff applies instead.
pub(crate) fn retry_after(header: &str) -> Option<Duration> {
    let seconds: f64 = header.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// One short line without markup and without anything that resembles a key.
fn sanitise(message: &str, key: Option<&Secret>) -> String {
    if message.contains('<') && message.contains('>') {
        return String::new();
    }
    let masked = match key {
        Some(key) => message.replace(key.expose(), "***"),
        None => message.to_owned(),
    };
    let words: Vec<&str> =
        masked.split_whitespace().map(|word| if resembles_secret(word) { "***" } else { word }).collect();
    let line: String = words.join(" ").chars().filter(|c| !c.is_control()).collect();
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

fn resembles_secret(word: &str) -> bool {
    let run = word.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_').map(str::len).max();
    word.contains("sk-") || word.contains("Bearer") || run.is_some_and(|longest| longest >= 40)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: u16, body: &str, want: ModelFailureClass) {
        assert_eq!(classify(status, None, body, None).class, want, "{status} {body}");
    }

    #[test]
    fn status_decides_without_details_in_body() {
        let table = [
            (401, ModelFailureClass::Auth),
            (403, ModelFailureClass::Auth),
            (402, ModelFailureClass::Billing),
            (404, ModelFailureClass::ModelNotFound),
            (413, ModelFailureClass::PayloadTooLarge),
            (400, ModelFailureClass::BadRequest),
            (422, ModelFailureClass::BadRequest),
            (429, ModelFailureClass::RateLimit),
            (500, ModelFailureClass::ServerError),
            (502, ModelFailureClass::ServerError),
            (503, ModelFailureClass::Overloaded),
            (504, ModelFailureClass::Timeout),
            (529, ModelFailureClass::Overloaded),
            (307, ModelFailureClass::Malformed),
        ];
        for (status, want) in table {
            check(status, "<html><body>nginx</body></html>", want);
            check(status, "", want);
        }
    }

    #[test]
    fn structured_code_beats_status() {
        check(429, r#"{"error":{"code":"insufficient_quota","message":"x"}}"#, ModelFailureClass::Billing);
        check(400, r#"{"error":{"code":"context_length_exceeded"}}"#, ModelFailureClass::ContextOverflow);
        check(
            400,
            r#"{"error":{"type":"exceed_context_size_error","code":400}}"#,
            ModelFailureClass::ContextOverflow,
        );
        check(400, r#"{"type":"error","error":{"type":"overloaded_error"}}"#, ModelFailureClass::Overloaded);
        check(
            400,
            r#"{"error":{"type":"invalid_request_error","message":"prompt is too long: 9 > 8"}}"#,
            ModelFailureClass::ContextOverflow,
        );
        check(400, r#"{"error":{"code":"content_filter"}}"#, ModelFailureClass::Refused);
        check(404, r#"{"error":"model 'x' not found"}"#, ModelFailureClass::ModelNotFound);
    }

    #[test]
    fn parses_stated_limit() {
        let limit = |message: &str| {
            let body = serde_json::json!({"error": {"message": message}}).to_string();
            let error = classify(400, None, &body, None);
            (error.class, error.limit)
        };
        for (message, class, want) in [
            (
                "This model's maximum context length is 8192 tokens. However, you requested 9000.",
                ModelFailureClass::ContextOverflow,
                Some(8192),
            ),
            (
                "prompt is too long: 210000 tokens > 200000 maximum",
                ModelFailureClass::ContextOverflow,
                Some(200_000),
            ),
            (
                "maximum context length is 1,048,576 tokens",
                ModelFailureClass::ContextOverflow,
                Some(1_048_576),
            ),
            ("prompt is too long", ModelFailureClass::ContextOverflow, None),
            (
                "max_tokens is too large: 64000. This model supports at most 16384 completion tokens",
                ModelFailureClass::OutputLimit,
                Some(16_384),
            ),
            (
                "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens",
                ModelFailureClass::OutputLimit,
                Some(64_000),
            ),
            (
                "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000",
                ModelFailureClass::OutputLimit,
                Some(11_760),
            ),
            ("max_tokens is too large", ModelFailureClass::OutputLimit, None),
        ] {
            assert_eq!(limit(message), (class, want), "{message}");
        }
        let body = r#"{"error":{"type":"exceed_context_size_error","n_ctx":4096}}"#;
        assert_eq!(classify(400, None, body, None).limit, Some(4096));
    }

    #[test]
    fn classifies_stream_error_without_status() {
        let check = |body: &str, want| {
            assert_eq!(classify_event(&serde_json::from_str(body).unwrap(), None).class, want, "{body}");
        };
        check(r#"{"error":{"code":429,"message":"slow down"}}"#, ModelFailureClass::RateLimit);
        check(
            r#"{"error":{"code":502,"message":"Provider returned error"}}"#,
            ModelFailureClass::ServerError,
        );
        check(
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            ModelFailureClass::Overloaded,
        );
        check(r#"{"error":"boom"}"#, ModelFailureClass::ServerError);
    }

    #[test]
    fn detail_contains_no_pages_or_keys() {
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
    fn parses_retry_after_in_seconds_only() {
        assert_eq!(retry_after("7"), Some(Duration::from_secs(7)));
        assert_eq!(retry_after(" 0.5 "), Some(Duration::from_millis(500)));
        assert_eq!(retry_after("Wed, 21 Oct 2026 07:28:00 GMT"), None);
        assert_eq!(retry_after("-1"), None);
        assert_eq!(retry_after("inf"), None);
    }
}
