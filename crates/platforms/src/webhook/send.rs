//! Comments on GitHub, over its REST API. Other targets are sent by their own platform's adapter.
//!
//! The `gh` program is not used: its exit code does not say whether a failed request may have had an effect.

use std::fmt;

use petasos_core::Route;
use reqwest::header::{ACCEPT, AUTHORIZATION};
use serde::Deserialize;
use serde_json::json;

use super::{Error, Webhook};
use crate::http::{self, HttpError, HttpResponse};
use crate::{Part, Receipt, Secret, SendOptions};

const PREFIX: &str = "github:";

/// An issue or a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Issue {
    owner: String,
    repo: String,
    number: u64,
}

#[derive(Deserialize)]
struct CreatedComment {
    id: u64,
}

impl Issue {
    /// `None`: not a valid issue. The values may come from strangers and become part of a URL.
    pub(super) fn new(repo: &str, number: &str) -> Option<Self> {
        let (owner, repo) = repo.split_once('/')?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        let name = |text: &str| {
            !text.is_empty() && text.len() <= 100 && !matches!(text, "." | "..") && text.bytes().all(plain)
        };
        let number = number.parse().ok().filter(|number| *number > 0)?;
        (name(owner) && name(repo)).then(|| Self { owner: owner.to_owned(), repo: repo.to_owned(), number })
    }

    fn parse(chat: &str) -> Option<Self> {
        let (repo, number) = chat.strip_prefix(PREFIX)?.rsplit_once('#')?;
        Self::new(repo, number)
    }
}

/// The chat id of a route.
impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}/{}#{}", self.owner, self.repo, self.number)
    }
}

impl Webhook {
    pub async fn send(&self, to: &Route, part: &Part, _options: &SendOptions<'_>) -> Result<Receipt, Error> {
        if part.text.trim().is_empty() {
            return Ok(Receipt::default());
        }
        let issue = Issue::parse(&to.chat_id).ok_or_else(|| Error::NoRecipient(to.chat_id.clone()))?;
        let token = self.github_token.as_ref().map(Secret::expose).unwrap_or_default();
        let Issue { owner, repo, number } = issue;
        let request = self
            .github
            .post(format!("{}/repos/{owner}/{repo}/issues/{number}/comments", self.github_api))
            .header(ACCEPT, "application/vnd.github+json")
            .header(AUTHORIZATION, format!("Bearer {token}"))
            .header("X-GitHub-Api-Version", "2022-11-28")
            .json(&json!({ "body": part.text }));
        let response = http::send(request, self.request_timeout).await?;
        if !(200..300).contains(&response.status) {
            return Err(github_error(&response));
        }
        let comment: CreatedComment = serde_json::from_slice(&response.body)
            .map_err(|error| HttpError::Malformed(format!("column {}", error.column())))?;
        Ok(Receipt { message_id: Some(comment.id.to_string()), ..Receipt::default() })
    }

    /// There are no previews, so nothing is edited or deleted.
    pub async fn edit(&self, to: &Route, _message_id: &str, _part: &Part) -> Result<Receipt, Error> {
        Err(Error::NoRecipient(to.chat_id.clone()))
    }

    pub async fn delete(&self, to: &Route, _message_id: &str) -> Result<(), Error> {
        Err(Error::NoRecipient(to.chat_id.clone()))
    }

    pub async fn typing(&self, _to: &Route) -> Result<(), Error> {
        Ok(())
    }

    pub async fn answer_callback(&self, _dedup: &str, _notice: Option<&str>) -> Result<(), Error> {
        Ok(())
    }
}

/// GitHub limits with 429, or with a 403 that names a wait or, for the hourly limit, mentions it in the text.
fn github_error(response: &HttpResponse) -> Error {
    let mentions_limit = || String::from_utf8_lossy(&response.body).to_lowercase().contains("rate limit");
    let forbidden_by_limit = || response.retry_after.is_some() || mentions_limit();
    let limited = response.status == 429 || (response.status == 403 && forbidden_by_limit());
    Error::GitHub { status: response.status, retry_after: response.retry_after, limited }
}
