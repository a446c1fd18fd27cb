//! REST client: JSON to `<api_base><path>`, the token in a header, and Discord's error codes.
//!
//! A global rate limit blocks every request of the bot except responses to interactions, until it is over.

use std::time::Duration;

use petasos_core::rate_limit::{MAX_WAIT, PenaltyScope};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use reqwest::{Client, Method, RequestBuilder};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::discord::{Config, Error};
use crate::http::{self, HttpError, HttpResponse};
use crate::upload::Upload;
use crate::{RateLimits, Secret};

#[derive(Debug)]
pub(in crate::discord) struct RestApi {
    client: Client,
    base: String,
    token: Secret,
    within: Duration,
    limits: RateLimits,
}

#[derive(Debug, PartialEq, Eq)]
enum RateLimitClass {
    /// Not counted by Discord.
    Exempt,
    /// Limits of the chat and the platform.
    Chat,
    /// Limits of the method and the platform.
    Method(String),
}

impl RateLimitClass {
    fn of(method: &Method, path: &str) -> Self {
        if path.starts_with("/interactions/") {
            return Self::Exempt;
        }
        if path.starts_with("/channels/") {
            return Self::Chat;
        }
        let path = path.split('?').next().unwrap_or_default();
        Self::Method(format!("{method} {path}"))
    }
}

/// Discord's error format.
#[derive(Deserialize)]
struct ApiErrorBody {
    message: String,
    #[serde(default)]
    code: u64,
    retry_after: Option<f64>,
    #[serde(default)]
    global: bool,
    #[serde(default)]
    errors: Map<String, Value>,
}

impl RestApi {
    pub(in crate::discord) fn new(client: Client, config: &Config, limits: RateLimits) -> Self {
        let base = config.api_base.trim_end_matches('/').to_owned();
        let token = config.token.clone();
        let within = config.request_timeout;
        Self { client, base, token, within, limits }
    }

    /// One attempt. `path` begins with `/`; an empty response parses as `null`.
    pub(in crate::discord) async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, Error> {
        let limit = RateLimitClass::of(&method, path);
        let mut request = self.request(method, path);
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.to_string());
        }
        self.exchange(request, self.within, &limit).await
    }

    pub(in crate::discord) async fn upload<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
        upload: Upload<'_>,
    ) -> Result<T, Error> {
        let within = upload.timeout(self.within);
        let fields = [("payload_json", body.to_string())];
        let request = upload.form(self.request(Method::POST, path), &fields, "files[0]")?;
        self.exchange(request, within, &RateLimitClass::of(&Method::POST, path)).await
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let authorization = format!("Bot {}", self.token.expose());
        self.client.request(method, format!("{}{path}", self.base)).header(AUTHORIZATION, authorization)
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
        within: Duration,
        limit: &RateLimitClass,
    ) -> Result<T, Error> {
        match limit {
            RateLimitClass::Exempt => {}
            RateLimitClass::Chat => self.limits.check(self.limits.platform(), &PenaltyScope::Platform)?,
            RateLimitClass::Method(method) => self.limits.check_method(method)?,
        }
        let answer = http::send(request, within).await?;
        result(&answer).map_err(|error| self.recorded(self.redacted(error), limit))
    }

    /// `Adapter` records the limits of chats.
    fn recorded(&self, error: Error, limit: &RateLimitClass) -> Error {
        match (&error, limit) {
            (Error::GlobalLimit { after }, _) => self.limits.record_platform(*after, &error.to_string()),
            (_, RateLimitClass::Method(method)) => {
                self.limits.record_method(method, error.fault(), &error.to_string())
            }
            (_, RateLimitClass::Exempt | RateLimitClass::Chat) => {}
        }
        error
    }

    pub(in crate::discord) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.call(Method::GET, path, None).await
    }

    pub(in crate::discord) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<T, Error> {
        self.call(Method::POST, path, Some(body)).await
    }

    /// Server errors may echo the request.
    fn redacted(&self, error: Error) -> Error {
        match error {
            Error::Answered { status, code, message, retry_after, fields } => {
                Error::Answered { status, code, message: self.token.redact(&message), retry_after, fields }
            }
            Error::Intermediary { .. }
            | Error::GlobalLimit { .. }
            | Error::Penalized(_)
            | Error::Link(_)
            | Error::GatewayClosed(_)
            | Error::SessionLimit { .. }
            | Error::NotReady(_)
            | Error::Stale(_)
            | Error::SocketEnded(_)
            | Error::Unreachable(_)
            | Error::QueueFull
            | Error::NoFiles(_)
            | Error::ThreadForbidden(_)
            | Error::InvalidId
            | Error::Closed => error,
        }
    }
}

fn result<T: DeserializeOwned>(answer: &HttpResponse) -> Result<T, Error> {
    let body = String::from_utf8_lossy(&answer.body);
    if (200..300).contains(&answer.status) {
        let body = if body.is_empty() { "null" } else { &body };
        return serde_json::from_str(body)
            .map_err(|error| HttpError::Malformed(error_position(&error)).into());
    }
    match serde_json::from_str::<ApiErrorBody>(&body) {
        Ok(ApiErrorBody { global: true, retry_after: Some(seconds), .. }) if answer.status == 429 => {
            Err(Error::GlobalLimit { after: wait(Some(seconds)).unwrap_or_default().min(MAX_WAIT) })
        }
        Ok(refusal) => Err(Error::Answered {
            status: answer.status,
            code: refusal.code,
            message: refusal.message,
            retry_after: wait(refusal.retry_after).or(answer.retry_after),
            fields: refusal.errors.into_iter().map(|(field, _)| field).collect(),
        }),
        Err(_) if answer.status >= 500 => Err(Error::Intermediary { status: answer.status }),
        Err(_) => Err(Error::Answered {
            status: answer.status,
            code: 0,
            message: "no description".to_owned(),
            retry_after: answer.retry_after,
            fields: Vec::new(),
        }),
    }
}

fn wait(seconds: Option<f64>) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds?).ok()
}

/// The parser's own message may quote user text.
fn error_position(error: &serde_json::Error) -> String {
    format!("{:?} error at line {} column {}", error.classify(), error.line(), error.column())
}

#[cfg(test)]
mod tests {
    use petasos_core::{Fault, Reached};

    use super::*;

    fn read(status: u16, body: &str) -> Result<Value, Error> {
        result(&HttpResponse { status, body: body.as_bytes().to_vec(), retry_after: None })
    }

    #[test]
    fn accepts_an_empty_response() {
        assert_eq!(read(204, ""), Ok(Value::Null));
        assert_eq!(read(200, r#"{"id":"1"}"#), Ok(serde_json::json!({ "id": "1" })));
    }

    #[test]
    fn reads_rate_limit_waits_to_the_millisecond() {
        let error = read(429, r#"{"message":"slow","retry_after":0.5,"global":false}"#).expect_err("limited");
        assert_eq!(error.fault(), Fault::Later { after: Some(Duration::from_millis(500)) });
        let error = read(429, r#"{"message":"slow","retry_after":-3}"#).expect_err("limited");
        assert_eq!(error.fault(), Fault::Later { after: None });
    }

    #[test]
    fn reads_the_wait_of_an_intermediary_from_the_header() {
        let after = Some(Duration::from_secs(9));
        let answer = HttpResponse { status: 429, body: b"<html>".to_vec(), retry_after: after };
        let error = result::<Value>(&answer).expect_err("limited");
        assert_eq!(error.fault(), Fault::Later { after });
    }

    #[test]
    fn reads_the_fields_of_a_form_error() {
        let body = r#"{"code":50035,"message":"Invalid Form Body",
            "errors":{"message_reference":{"_errors":[{"code":"REPLIES_UNKNOWN_MESSAGE"}]}}}"#;
        assert!(read(400, body).expect_err("refused").is_reply_refused());
    }

    #[test]
    fn attributes_foreign_server_errors_to_an_intermediary() {
        for body in ["<html>502</html>", "", "{}"] {
            assert_eq!(read(502, body), Err(Error::Intermediary { status: 502 }), "{body:?}");
        }
        let error = read(500, r#"{"message":"500: Internal Server Error","code":0}"#).expect_err("refused");
        assert_eq!((error.code(), error.reached()), ("discord_server_error", Reached::No));
    }

    #[test]
    fn malformed_success_has_an_unknown_outcome() {
        assert_eq!(read(200, "<html>").expect_err("rubbish").reached(), Reached::Maybe);
    }
}
