//! Bot API client: `POST <base_url><token>/<method>` with JSON, and Telegram's response envelope.

use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, RequestBuilder};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Config, Error};
use crate::http::{self, HttpError, HttpResponse};
use crate::upload::{self, Upload};
use crate::{RateLimits, Secret};

#[derive(Debug)]
pub(super) struct BotApi {
    client: Client,
    base_url: String,
    token: Secret,
    limits: RateLimits,
}

#[derive(Deserialize)]
struct ResponseEnvelope {
    ok: bool,
    result: Option<Box<RawValue>>,
    error_code: Option<u16>,
    description: Option<String>,
    parameters: Option<ResponseParameters>,
}

#[derive(Deserialize, Default)]
struct ResponseParameters {
    retry_after: Option<f64>,
    migrate_to_chat_id: Option<i64>,
}

impl BotApi {
    pub(super) fn new(client: Client, config: &Config, limits: RateLimits) -> Self {
        Self { client, base_url: config.base_url.clone(), token: config.token.clone(), limits }
    }

    /// Sends one request and parses `result` as `T`. `Adapter` handles the rate limits of chats.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        method: &'static str,
        parameters: &Value,
        within: Duration,
    ) -> Result<T, Error> {
        let request = self.post(method).header(CONTENT_TYPE, "application/json");
        let request = request.body(parameters.to_string());
        if parameters.get("chat_id").is_some() {
            return self.exchange(request, within).await;
        }
        self.limits.check_method(method)?;
        let answered = self.exchange(request, within).await;
        answered
            .inspect_err(|error: &Error| self.limits.record_method(method, error.fault(), &error.to_string()))
    }

    /// Like `call`, with a file in the form field `field`.
    pub(super) async fn upload<T: DeserializeOwned>(
        &self,
        method: &'static str,
        parameters: &Value,
        field: &'static str,
        upload: Upload<'_>,
        within: Duration,
    ) -> Result<T, Error> {
        let within = upload.timeout(within);
        let request = upload.form(self.post(method), &upload::fields(parameters), field)?;
        self.exchange(request, within).await
    }

    fn post(&self, method: &str) -> RequestBuilder {
        self.client.post(format!("{}{}/{method}", self.base_url, self.token.expose()))
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
        within: Duration,
    ) -> Result<T, Error> {
        let answer = http::send(request, within).await?;
        let result = result(&answer).map_err(|error| self.redacted(error))?;
        serde_json::from_str(result.get())
            .map_err(|error| HttpError::Malformed(error_position(&error)).into())
    }

    /// Server errors may echo the request's address.
    fn redacted(&self, error: Error) -> Error {
        match error {
            Error::Answered { code, description, retry_after, migrated_to } => {
                let description = self.token.redact(&description);
                Error::Answered { code, description, retry_after, migrated_to }
            }
            Error::Intermediary { .. }
            | Error::Link(_)
            | Error::Penalized(_)
            | Error::Unreachable(_)
            | Error::Conflict
            | Error::BindError(_)
            | Error::Webhook(_)
            | Error::SelfCheckFailed
            | Error::Closed => error,
        }
    }
}

fn result(answer: &HttpResponse) -> Result<Box<RawValue>, Error> {
    // One update with broken UTF-8 must not block the others.
    let body = String::from_utf8_lossy(&answer.body);
    let good = (200..300).contains(&answer.status);
    let envelope: ResponseEnvelope = match serde_json::from_str(&body) {
        Ok(envelope) => envelope,
        Err(error) if good => return Err(HttpError::Malformed(error_position(&error)).into()),
        Err(_) if answer.status >= 500 => return Err(Error::Intermediary { status: answer.status }),
        Err(_) => return Err(refusal(answer.status, None, None)),
    };
    if good && envelope.ok {
        return envelope.result.ok_or_else(|| HttpError::Malformed("no result".into()).into());
    }
    if envelope.ok && answer.status >= 500 {
        return Err(Error::Intermediary { status: answer.status });
    }
    let code = envelope.error_code.unwrap_or(answer.status);
    if (200..300).contains(&code) {
        return Err(HttpError::Malformed("neither a result nor an error".into()).into());
    }
    Err(refusal(code, envelope.description, envelope.parameters))
}

fn refusal(code: u16, description: Option<String>, parameters: Option<ResponseParameters>) -> Error {
    let ResponseParameters { retry_after, migrate_to_chat_id } = parameters.unwrap_or_default();
    Error::Answered {
        code,
        description: description.unwrap_or_else(|| "no description".to_owned()),
        retry_after: retry_after.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
        migrated_to: migrate_to_chat_id,
    }
}

/// The parser's own message may quote user text.
fn error_position(error: &serde_json::Error) -> String {
    format!("{:?} error at line {} column {}", error.classify(), error.line(), error.column())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(status: u16, body: &str) -> Result<String, Error> {
        result(&HttpResponse { status, body: body.as_bytes().to_vec(), retry_after: None })
            .map(|raw| raw.get().to_owned())
    }

    fn refused(code: u16, description: &str) -> Result<String, Error> {
        Err(refusal(code, Some(description.into()), None))
    }

    #[test]
    fn envelope_takes_precedence_over_the_status() {
        assert_eq!(read(200, r#"{"ok":true,"result":[1, 2]}"#), Ok("[1, 2]".to_owned()));
        assert_eq!(read(200, r#"{"ok":false,"error_code":403,"description":"no"}"#), refused(403, "no"));
        assert_eq!(read(400, r#"{"ok":false,"description":"no"}"#), refused(400, "no"));
        assert_eq!(read(502, r#"{"ok":false,"description":"no"}"#), refused(502, "no"));
        assert_eq!(read(413, "<html>"), refused(413, "no description"));
    }

    #[test]
    fn attributes_foreign_server_errors_to_an_intermediary() {
        for body in ["<html>502 Bad Gateway</html>", "", "{}", r#"{"error":"upstream"}"#, r#"{"ok":true}"#] {
            assert_eq!(read(502, body), Err(Error::Intermediary { status: 502 }), "{body:?}");
        }
    }

    #[test]
    fn malformed_success_has_an_unknown_outcome() {
        for body in ["<html>", "", "{}", r#"{"ok":true}"#, r#"{"ok":false}"#] {
            let error = read(200, body).expect_err(body);
            assert_eq!(error.reached(), petasos_core::Reached::Maybe, "{body:?}: {error}");
        }
    }

    #[test]
    fn accepts_fractional_and_invalid_waits() {
        let body = r#"{"ok":false,"error_code":429,"description":"slow","parameters":{"retry_after":1.5}}"#;
        let Err(Error::Answered { retry_after, .. }) = read(429, body) else { panic!("an answer") };
        assert_eq!(retry_after, Some(Duration::from_millis(1500)));
        let body = r#"{"ok":false,"error_code":429,"description":"slow","parameters":{"retry_after":-1}}"#;
        let Err(Error::Answered { retry_after, .. }) = read(429, body) else { panic!("an answer") };
        assert_eq!(retry_after, None);
    }

    #[test]
    fn broken_utf8_in_one_update_keeps_the_others_readable() {
        let mut body = br#"{"ok":true,"result":[{"update_id":1,"x":""#.to_vec();
        body.push(0xff);
        body.extend_from_slice(br#""},{"update_id":2}]}"#);
        let raw = result(&HttpResponse { status: 200, body, retry_after: None }).expect("an envelope");
        let updates: Vec<Box<RawValue>> = serde_json::from_str(raw.get()).expect("a list");
        assert_eq!(updates.len(), 2);
    }
}
