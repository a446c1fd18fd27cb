//! The wire of the Web API: `<api_base>/<method>` with a token in the header, and `ok` in every answer.
//!
//! Methods that change something take JSON; those that read take only a query.

use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, RequestBuilder, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Error;
use crate::http::{self, Answer, Failure};
use crate::upload::Upload;
use crate::{Limits, Secret};

/// Where answers go that only the author of a command sees.
const HOOKS: [&str; 2] = ["hooks.slack.com", "hooks.slack-gov.com"];

/// Which of the two kinds of token it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    App,
    Bot,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) secret: Secret,
    pub(super) sort: Sort,
}

#[derive(Debug)]
pub(super) struct Api {
    client: Client,
    base: String,
    within: Duration,
    limits: Limits,
}

#[derive(Deserialize)]
struct Verdict {
    ok: bool,
    error: Option<String>,
    needed: Option<String>,
}

impl Api {
    pub(super) fn new(client: Client, base: &str, within: Duration, limits: Limits) -> Self {
        Self { client, base: base.trim_end_matches('/').to_owned(), within, limits }
    }

    /// One try of a method that changes something.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        token: &Token,
        method: &'static str,
        parameters: &Value,
    ) -> Result<T, Error> {
        let request =
            self.client.post(self.url(method)).header(CONTENT_TYPE, "application/json; charset=utf-8");
        let request = request.body(parameters.to_string());
        // `Adapter` sees to the rate limits of chats.
        if parameters.get("channel").or(parameters.get("channel_id")).is_some() {
            return self.call(request, token).await;
        }
        self.limited(request, token, method).await
    }

    /// One try of a method that reads.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        token: &Token,
        method: &'static str,
        query: &[(&str, &str)],
    ) -> Result<T, Error> {
        self.limited(self.client.get(self.url(method)).query(query), token, method).await
    }

    /// Posts to an address that is itself the permission.
    /// Only to Slack itself: the address comes from what was stored with a message.
    pub(super) async fn respond(&self, url: &str, body: &Value) -> Result<(), Error> {
        if !self.is_slacks(url) {
            return Err(Error::ResponseGone);
        }
        let request = self.client.post(url).header(CONTENT_TYPE, "application/json; charset=utf-8");
        let answer = http::once(request.body(body.to_string()), self.within).await?;
        match answer.status {
            200..300 => Ok(()),
            429 => Err(Error::Limited { after: answer.retry_after }),
            500.. => Err(Error::OnTheWay { status: answer.status }),
            _gone => Err(Error::ResponseGone),
        }
    }

    /// Brings a file to an address that is itself the permission.
    pub(super) async fn bring(&self, url: &str, upload: Upload<'_>) -> Result<(), Error> {
        let within = upload.patience(self.within);
        let answer = http::once(upload.bare(self.client.post(url)), within).await?;
        match answer.status {
            200..300 => Ok(()),
            429 => Err(Error::Limited { after: answer.retry_after }),
            // Said of this file: the same again would be refused again, and hold up what follows it.
            status @ 400..500 if status != 408 => Err(unnamed(status, Sort::Bot)),
            status => Err(Error::OnTheWay { status }),
        }
    }

    fn is_slacks(&self, url: &str) -> bool {
        let (Ok(url), Ok(base)) = (Url::parse(url), Url::parse(&self.base)) else { return false };
        let hooks = url.scheme() == "https" && url.host_str().is_some_and(|host| HOOKS.contains(&host));
        hooks || url.origin() == base.origin()
    }

    async fn call<T: DeserializeOwned>(&self, request: RequestBuilder, token: &Token) -> Result<T, Error> {
        let answer = http::once(request.bearer_auth(token.secret.expose()), self.within).await?;
        read(&answer, token.sort)
    }

    /// Slack limits most methods each on their own.
    async fn limited<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
        token: &Token,
        method: &str,
    ) -> Result<T, Error> {
        self.limits.check_method(method)?;
        let answered = self.call(request, token).await;
        answered
            .inspect_err(|error: &Error| self.limits.record_method(method, error.fault(), &error.to_string()))
    }

    fn url(&self, method: &str) -> String {
        format!("{}/{method}", self.base)
    }
}

fn read<T: DeserializeOwned>(answer: &Answer, token: Sort) -> Result<T, Error> {
    if answer.status == 429 {
        return Err(Error::Limited { after: answer.retry_after });
    }
    let good = (200..300).contains(&answer.status);
    let verdict: Verdict = match serde_json::from_slice(&answer.body) {
        Ok(verdict) => verdict,
        Err(error) if good => return Err(Failure::Garbage(place(&error)).into()),
        Err(_) if answer.status >= 500 => return Err(Error::OnTheWay { status: answer.status }),
        Err(_) => return Err(unnamed(answer.status, token)),
    };
    if !verdict.ok {
        let error = verdict.error.as_deref().map_or_else(|| "no_reason".to_owned(), name);
        return Err(Error::Answered { error, needed: verdict.needed.as_deref().map(name), token });
    }
    if !good {
        return Err(Error::OnTheWay { status: answer.status });
    }
    serde_json::from_slice(&answer.body).map_err(|error| Failure::Garbage(place(&error)).into())
}

/// A refusal that says no more than its number.
fn unnamed(status: u16, token: Sort) -> Error {
    Error::Answered { error: format!("status_{status}"), needed: None, token }
}

/// Slack's names are short words; whatever else is in such a field is not repeated.
fn name(text: &str) -> String {
    let known = |c: char| c.is_ascii_alphanumeric() || "_:.,-".contains(c);
    text.chars().take(80).map(|c| if known(c) { c } else { '?' }).collect()
}

/// Where JSON went wrong. Its own message may quote what a user wrote.
fn place(error: &serde_json::Error) -> String {
    format!("{:?} error at line {} column {}", error.classify(), error.line(), error.column())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_one(status: u16, body: &str) -> Result<Value, Error> {
        let retry_after = (status == 429).then_some(Duration::from_secs(3));
        read(&Answer { status, body: body.as_bytes().to_vec(), retry_after }, Sort::Bot)
    }

    fn refused(error: &str) -> Result<Value, Error> {
        Err(Error::Answered { error: error.into(), needed: None, token: Sort::Bot })
    }

    #[test]
    fn the_verdict_decides_before_the_status() {
        assert_eq!(read_one(200, r#"{"ok":true,"ts":"1.2"}"#), Ok(json!({ "ok": true, "ts": "1.2" })));
        assert_eq!(read_one(200, r#"{"ok":false,"error":"is_archived"}"#), refused("is_archived"));
        assert_eq!(read_one(503, r#"{"ok":false,"error":"internal_error"}"#), refused("internal_error"));
        assert_eq!(read_one(200, r#"{"ok":false}"#), refused("no_reason"));
        assert_eq!(read_one(404, "<html>"), refused("status_404"));
        assert_eq!(read_one(502, "<html>"), Err(Error::OnTheWay { status: 502 }));
        assert_eq!(read_one(429, ""), Err(Error::Limited { after: Some(Duration::from_secs(3)) }));
        assert!(matches!(read_one(200, "<html>"), Err(Error::Link(Failure::Garbage(_)))));
    }

    #[test]
    fn a_name_that_is_none_is_not_repeated() {
        assert_eq!(name("missing_scope"), "missing_scope");
        assert_eq!(name("Hi there <b>"), "Hi?there??b?");
        assert_eq!(name(&"x".repeat(500)).len(), 80);
    }
}
