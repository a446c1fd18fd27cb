//! REST: JSON to `<api_base><path>`, the token in a header, and Discord's own numbers in every refusal.
//!
//! A limit that Discord calls global is for the whole bot: until it is over no other request leaves, whatever chat it
//! is for; each is told how long that is. Answers to interactions are not counted by it and leave.

use std::time::Duration;

use petasos_core::rate_limit::{LONGEST_WAIT, Scope};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use reqwest::{Client, Method, RequestBuilder};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Config, Error};
use crate::http::{self, Answer, Failure};
use crate::upload::Upload;
use crate::{Limits, Secret};

#[derive(Debug)]
pub(super) struct Api {
    client: Client,
    base: String,
    token: Secret,
    within: Duration,
    limits: Limits,
}

/// Which rate limits a request comes under.
#[derive(Debug, PartialEq, Eq)]
enum Limit {
    /// None: Discord does not count it.
    Exempt,
    /// Those of its chat and of the platform.
    Chat,
    /// Its own and those of the platform.
    Method(String),
}

impl Limit {
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

/// What Discord says when it says no. Anything else is not from Discord.
#[derive(Deserialize)]
struct Refusal {
    message: String,
    #[serde(default)]
    code: u64,
    retry_after: Option<f64>,
    #[serde(default)]
    global: bool,
    #[serde(default)]
    errors: Map<String, Value>,
}

impl Api {
    pub(super) fn new(client: Client, config: &Config, limits: Limits) -> Self {
        let base = config.api_base.trim_end_matches('/').to_owned();
        let (token, within) = (config.token.clone(), config.request_timeout);
        Self { client, base, token, within, limits }
    }

    /// One try. `path` begins with `/`; an answer without a body reads as `null`.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, Error> {
        let limit = Limit::of(&method, path);
        let mut request = self.request(method, path);
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.to_string());
        }
        self.exchange(request, self.within, &limit).await
    }

    /// Posts with a file beside the JSON.
    pub(super) async fn upload<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
        upload: Upload<'_>,
    ) -> Result<T, Error> {
        let within = upload.patience(self.within);
        let fields = [("payload_json", body.to_string())];
        let request = upload.form(self.request(Method::POST, path), &fields, "files[0]")?;
        self.exchange(request, within, &Limit::of(&Method::POST, path)).await
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let authorization = format!("Bot {}", self.token.expose());
        self.client.request(method, format!("{}{path}", self.base)).header(AUTHORIZATION, authorization)
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
        within: Duration,
        limit: &Limit,
    ) -> Result<T, Error> {
        match limit {
            Limit::Exempt => {}
            Limit::Chat => self.limits.check(self.limits.platform(), &Scope::Platform)?,
            Limit::Method(method) => self.limits.check_method(method)?,
        }
        let answer = http::once(request, within).await?;
        result(&answer).map_err(|error| self.recorded(self.redacted(error), limit))
    }

    /// `Adapter` records what concerns a chat.
    fn recorded(&self, error: Error, limit: &Limit) -> Error {
        match (&error, limit) {
            (Error::Global { after }, _) => self.limits.record_platform(*after, &error.to_string()),
            (_, Limit::Method(method)) => {
                self.limits.record_method(method, error.fault(), &error.to_string())
            }
            (_, Limit::Exempt | Limit::Chat) => {}
        }
        error
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.call(Method::GET, path, None).await
    }

    pub(super) async fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, Error> {
        self.call(Method::POST, path, Some(body)).await
    }

    /// A message is the server's text, and a server may echo what it got.
    fn redacted(&self, error: Error) -> Error {
        match error {
            Error::Answered { status, code, message, retry_after, fields } => {
                Error::Answered { status, code, message: self.token.redact(&message), retry_after, fields }
            }
            Error::OnTheWay { .. }
            | Error::Global { .. }
            | Error::Held(_)
            | Error::Link(_)
            | Error::Barred(_)
            | Error::Exhausted { .. }
            | Error::NotReady(_)
            | Error::Stale(_)
            | Error::Exited(_)
            | Error::Unreachable(_)
            | Error::Overrun
            | Error::NoFiles(_)
            | Error::ThreadBarred(_)
            | Error::NoId
            | Error::Closed => error,
        }
    }
}

fn result<T: DeserializeOwned>(answer: &Answer) -> Result<T, Error> {
    let body = String::from_utf8_lossy(&answer.body);
    if (200..300).contains(&answer.status) {
        let body = if body.is_empty() { "null" } else { &body };
        return serde_json::from_str(body).map_err(|error| Failure::Garbage(place(&error)).into());
    }
    match serde_json::from_str::<Refusal>(&body) {
        Ok(Refusal { global: true, retry_after: Some(seconds), .. }) if answer.status == 429 => {
            Err(Error::Global { after: wait(Some(seconds)).unwrap_or_default().min(LONGEST_WAIT) })
        }
        Ok(refusal) => Err(Error::Answered {
            status: answer.status,
            code: refusal.code,
            message: refusal.message,
            retry_after: wait(refusal.retry_after).or(answer.retry_after),
            fields: refusal.errors.into_iter().map(|(field, _)| field).collect(),
        }),
        Err(_) if answer.status >= 500 => Err(Error::OnTheWay { status: answer.status }),
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

/// Where JSON went wrong. Its own message may quote what a user wrote.
fn place(error: &serde_json::Error) -> String {
    format!("{:?} error at line {} column {}", error.classify(), error.line(), error.column())
}

#[cfg(test)]
mod tests {
    use petasos_core::{Fault, Reached};

    use super::*;

    fn read(status: u16, body: &str) -> Result<Value, Error> {
        result(&Answer { status, body: body.as_bytes().to_vec(), retry_after: None })
    }

    #[test]
    fn an_empty_answer_is_a_good_one() {
        assert_eq!(read(204, ""), Ok(Value::Null));
        assert_eq!(read(200, r#"{"id":"1"}"#), Ok(serde_json::json!({ "id": "1" })));
    }

    #[test]
    fn a_rate_limit_names_its_wait_to_the_millisecond() {
        let error = read(429, r#"{"message":"slow","retry_after":0.5,"global":false}"#).expect_err("limited");
        assert_eq!(error.fault(), Fault::Later { after: Some(Duration::from_millis(500)) });
        let error = read(429, r#"{"message":"slow","retry_after":-3}"#).expect_err("limited");
        assert_eq!(error.fault(), Fault::Later { after: None });
    }

    #[test]
    fn a_limit_set_in_front_of_discord_names_its_wait_in_the_header() {
        let after = Some(Duration::from_secs(9));
        let answer = Answer { status: 429, body: b"<html>".to_vec(), retry_after: after };
        let error = result::<Value>(&answer).expect_err("limited");
        assert_eq!(error.fault(), Fault::Later { after });
    }

    #[test]
    fn a_form_error_names_its_fields() {
        let body = r#"{"code":50035,"message":"Invalid Form Body",
            "errors":{"message_reference":{"_errors":[{"code":"REPLIES_UNKNOWN_MESSAGE"}]}}}"#;
        assert!(read(400, body).expect_err("refused").is_reply_refused());
    }

    #[test]
    fn a_server_error_in_other_words_is_not_discords() {
        for body in ["<html>502</html>", "", "{}"] {
            assert_eq!(read(502, body), Err(Error::OnTheWay { status: 502 }), "{body:?}");
        }
        let error = read(500, r#"{"message":"500: Internal Server Error","code":0}"#).expect_err("refused");
        assert_eq!((error.code(), error.reached()), ("discord_server_error", Reached::No));
    }

    #[test]
    fn a_good_status_with_a_senseless_body_may_have_had_its_effect() {
        assert_eq!(read(200, "<html>").expect_err("rubbish").reached(), Reached::Maybe);
    }
}
