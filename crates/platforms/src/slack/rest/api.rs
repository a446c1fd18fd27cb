//! Web API client: `<api_base>/<method>` with a token in the header, and `ok` in every response.
//!
//! Methods that write take JSON; methods that read take only a query. One call is one attempt.

use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, RequestBuilder, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::http::{self, HttpError, HttpResponse};
use crate::slack::Error;
use crate::upload::Upload;
use crate::{RateLimits, Secret};

const RESPONSE_HOSTS: [&str; 2] = ["hooks.slack.com", "hooks.slack-gov.com"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    App,
    Bot,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::slack) struct Token {
    pub(in crate::slack) secret: Secret,
    pub(in crate::slack) kind: TokenKind,
}

#[derive(Debug)]
pub(in crate::slack) struct WebApi {
    client: Client,
    base: String,
    timeout: Duration,
    limits: RateLimits,
}

#[derive(Deserialize)]
struct ResponseStatus {
    ok: bool,
    error: Option<String>,
    needed: Option<String>,
}

impl WebApi {
    pub(in crate::slack) fn new(client: Client, base: &str, timeout: Duration, limits: RateLimits) -> Self {
        Self { client, base: base.trim_end_matches('/').to_owned(), timeout, limits }
    }

    pub(in crate::slack) async fn post<T: DeserializeOwned>(
        &self,
        token: &Token,
        method: &'static str,
        parameters: &Value,
    ) -> Result<T, Error> {
        let request =
            self.client.post(self.url(method)).header(CONTENT_TYPE, "application/json; charset=utf-8");
        let request = request.body(parameters.to_string());
        // `Adapter` checks the rate limits of chats.
        if parameters.get("channel").or(parameters.get("channel_id")).is_some() {
            return self.call(request, token).await;
        }
        self.call_limited(request, token, method).await
    }

    pub(in crate::slack) async fn get<T: DeserializeOwned>(
        &self,
        token: &Token,
        method: &'static str,
        query: &[(&str, &str)],
    ) -> Result<T, Error> {
        self.call_limited(self.client.get(self.url(method)).query(query), token, method).await
    }

    /// A response URL is its own credential. It is stored with a message, so its host is checked.
    pub(in crate::slack) async fn post_response(&self, url: &str, body: &Value) -> Result<(), Error> {
        if !self.is_slack_url(url) {
            return Err(Error::ResponseExpired);
        }
        let request = self.client.post(url).header(CONTENT_TYPE, "application/json; charset=utf-8");
        let response = http::send(request.body(body.to_string()), self.timeout).await?;
        match response.status {
            200..300 => Ok(()),
            429 => Err(Error::RateLimited { after: response.retry_after }),
            500.. => Err(Error::Intermediary { status: response.status }),
            _gone => Err(Error::ResponseExpired),
        }
    }

    /// The URL is its own credential.
    pub(in crate::slack) async fn upload(&self, url: &str, upload: Upload<'_>) -> Result<(), Error> {
        let timeout = upload.timeout(self.timeout);
        let response = http::send(upload.raw_body(self.client.post(url)), timeout).await?;
        match response.status {
            200..300 => Ok(()),
            429 => Err(Error::RateLimited { after: response.retry_after }),
            // A refusal of this file; a retry would be refused, too, and block later messages.
            status @ 400..500 if status != 408 => Err(status_error(status, TokenKind::Bot)),
            status => Err(Error::Intermediary { status }),
        }
    }

    fn is_slack_url(&self, url: &str) -> bool {
        let (Ok(url), Ok(base)) = (Url::parse(url), Url::parse(&self.base)) else { return false };
        let hooks =
            url.scheme() == "https" && url.host_str().is_some_and(|host| RESPONSE_HOSTS.contains(&host));
        hooks || url.origin() == base.origin()
    }

    async fn call<T: DeserializeOwned>(&self, request: RequestBuilder, token: &Token) -> Result<T, Error> {
        let response = http::send(request.bearer_auth(token.secret.expose()), self.timeout).await?;
        parse_response(&response, token.kind)
    }

    /// Slack limits most methods separately.
    async fn call_limited<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
        token: &Token,
        method: &str,
    ) -> Result<T, Error> {
        self.limits.check_method(method)?;
        let result = self.call(request, token).await;
        result
            .inspect_err(|error: &Error| self.limits.record_method(method, error.fault(), &error.to_string()))
    }

    fn url(&self, method: &str) -> String {
        format!("{}/{method}", self.base)
    }
}

fn parse_response<T: DeserializeOwned>(response: &HttpResponse, token: TokenKind) -> Result<T, Error> {
    if response.status == 429 {
        return Err(Error::RateLimited { after: response.retry_after });
    }
    let success = (200..300).contains(&response.status);
    let status: ResponseStatus = match serde_json::from_slice(&response.body) {
        Ok(status) => status,
        Err(error) if success => return Err(HttpError::Malformed(json_error_position(&error)).into()),
        Err(_) if response.status >= 500 => return Err(Error::Intermediary { status: response.status }),
        Err(_) => return Err(status_error(response.status, token)),
    };
    if !status.ok {
        let error = status.error.as_deref().map_or_else(|| "no_reason".to_owned(), sanitized);
        return Err(Error::Answered { error, needed: status.needed.as_deref().map(sanitized), token });
    }
    if !success {
        return Err(Error::Intermediary { status: response.status });
    }
    serde_json::from_slice(&response.body)
        .map_err(|error| HttpError::Malformed(json_error_position(&error)).into())
}

/// A refusal without an error name.
fn status_error(status: u16, token: TokenKind) -> Error {
    Error::Answered { error: format!("status_{status}"), needed: None, token }
}

/// Error names are short words. Other characters are replaced, since the field could quote a message.
fn sanitized(text: &str) -> String {
    let known = |c: char| c.is_ascii_alphanumeric() || "_:.,-".contains(c);
    text.chars().take(80).map(|c| if known(c) { c } else { '?' }).collect()
}

/// The position only: the parser's own message may quote a message.
fn json_error_position(error: &serde_json::Error) -> String {
    format!("{:?} error at line {} column {}", error.classify(), error.line(), error.column())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(status: u16, body: &str) -> Result<Value, Error> {
        let retry_after = (status == 429).then_some(Duration::from_secs(3));
        parse_response::<Value>(
            &HttpResponse { status, body: body.as_bytes().to_vec(), retry_after },
            TokenKind::Bot,
        )
    }

    fn refused(error: &str) -> Result<Value, Error> {
        Err(Error::Answered { error: error.into(), needed: None, token: TokenKind::Bot })
    }

    #[test]
    fn response_error_takes_precedence_over_the_status() {
        assert_eq!(parse(200, r#"{"ok":true,"ts":"1.2"}"#), Ok(json!({ "ok": true, "ts": "1.2" })));
        assert_eq!(parse(200, r#"{"ok":false,"error":"is_archived"}"#), refused("is_archived"));
        assert_eq!(parse(503, r#"{"ok":false,"error":"internal_error"}"#), refused("internal_error"));
        assert_eq!(parse(200, r#"{"ok":false}"#), refused("no_reason"));
        assert_eq!(parse(404, "<html>"), refused("status_404"));
        assert_eq!(parse(502, "<html>"), Err(Error::Intermediary { status: 502 }));
        assert_eq!(parse(429, ""), Err(Error::RateLimited { after: Some(Duration::from_secs(3)) }));
        assert!(matches!(parse(200, "<html>"), Err(Error::Link(HttpError::Malformed(_)))));
    }

    #[test]
    fn replaces_unexpected_characters_in_error_names() {
        assert_eq!(sanitized("missing_scope"), "missing_scope");
        assert_eq!(sanitized("Hi there <b>"), "Hi?there??b?");
        assert_eq!(sanitized(&"x".repeat(500)).len(), 80);
    }
}
