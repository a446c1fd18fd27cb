//! The way out: comments on GitHub, over its REST API. Everything else that a webhook leads to is sent by the platform
//! it goes to.
//!
//! One request is one try, and the error says whether it may have had its effect. That is why GitHub's own program is
//! not run for it: its exit code does not say that, and it brings a configuration of its own.

use std::fmt;

use petasos_core::Route;
use reqwest::header::{ACCEPT, AUTHORIZATION};
use serde::Deserialize;
use serde_json::json;

use super::{Error, Webhook};
use crate::http::{self, Answer, Failure};
use crate::{Part, Receipt, Secret, SendOptions};

const PREFIX: &str = "github:";

/// An issue or a pull request: both are commented on in the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Issue {
    owner: String,
    repo: String,
    number: u64,
}

#[derive(Deserialize)]
struct Comment {
    id: u64,
}

impl Issue {
    /// `None`: not certainly an issue. The words come from strangers and become part of an address.
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

/// As the chat of a route.
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
        let issue = Issue::parse(&to.chat_id).ok_or_else(|| Error::NoPlace(to.chat_id.clone()))?;
        let token = self.github_token.as_ref().map(Secret::expose).unwrap_or_default();
        let Issue { owner, repo, number } = issue;
        let request = self
            .github
            .post(format!("{}/repos/{owner}/{repo}/issues/{number}/comments", self.github_api))
            .header(ACCEPT, "application/vnd.github+json")
            .header(AUTHORIZATION, format!("Bearer {token}"))
            .header("X-GitHub-Api-Version", "2022-11-28")
            .json(&json!({ "body": part.text }));
        let answer = http::once(request, self.request_timeout).await?;
        if !(200..300).contains(&answer.status) {
            return Err(refusal(&answer));
        }
        let comment: Comment = serde_json::from_slice(&answer.body)
            .map_err(|error| Failure::Garbage(format!("column {}", error.column())))?;
        Ok(Receipt { message_id: Some(comment.id.to_string()), ..Receipt::default() })
    }

    /// A comment is sent when it is whole, so there is none to replace, and nobody to see us type.
    pub async fn edit(&self, to: &Route, _message_id: &str, _part: &Part) -> Result<Receipt, Error> {
        Err(Error::NoPlace(to.chat_id.clone()))
    }

    pub async fn delete(&self, to: &Route, _message_id: &str) -> Result<(), Error> {
        Err(Error::NoPlace(to.chat_id.clone()))
    }

    pub async fn typing(&self, _to: &Route) -> Result<(), Error> {
        Ok(())
    }

    pub async fn answer_callback(&self, _dedup: &str, _notice: Option<&str>) -> Result<(), Error> {
        Ok(())
    }
}

/// GitHub says "too many" with 429, and with a 403 that names a wait or speaks of a rate limit: the hour's limit comes
/// without one.
fn refusal(answer: &Answer) -> Error {
    let told = || String::from_utf8_lossy(&answer.body).to_lowercase().contains("rate limit");
    let limited = answer.status == 429 || (answer.status == 403 && (answer.retry_after.is_some() || told()));
    Error::GitHub { status: answer.status, retry_after: answer.retry_after, limited }
}
