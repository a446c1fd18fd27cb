//! Downloads attachments from private addresses, which need the workspace's token.
//!
//! The address of a file outside Slack is chosen by its author. The token grants all permissions of the bot,
//! so it is sent only to Slack's file host.

use petasos_core::Source;
use petasos_core::message::Attachment;
use reqwest::Url;

use crate::download::{Error, Fetched};
use crate::slack::Slack;

impl Slack {
    pub async fn fetch(
        &self,
        source: &Source,
        attachment: &Attachment,
        max_size: u64,
        to: &mut tokio::fs::File,
    ) -> Result<Fetched, Error> {
        if attachment.size.is_some_and(|size| size > max_size) {
            return Err(Error::TooLarge { max_size });
        }
        let Ok(url) = Url::parse(&attachment.reference) else { return Err(Error::NotStored) };
        let chat = source.chat_id.as_deref().unwrap_or_default();
        let (token, _location) = self.locate(chat).await.map_err(crate::Error::from)?;
        let bearer = |at: &Url| is_file_url(at, self.files.base()).then(|| token.secret.clone());
        let fetched = self.files.fetch(url.as_str(), &bearer, max_size, to).await?;
        // Slack answers an insufficient token with a sign-in page.
        let page = fetched.head.trim_ascii_start().to_ascii_lowercase();
        let is_page = page.starts_with(b"<!doctype html") || page.starts_with(b"<html");
        let is_html = attachment.mime.as_deref().is_some_and(|mime| mime.starts_with("text/html"));
        if is_page && !is_html { Err(Error::SignIn) } else { Ok(fetched) }
    }
}

/// Slack has a separate file host; a test server has its files beside its API.
fn is_file_url(url: &Url, base: &Url) -> bool {
    let slack = url.scheme() == "https" && url.host_str() == Some("files.slack.com") && url.port().is_none();
    let test_server = url.origin() == base.origin() && !is_slack(base);
    (slack || test_server) && url.path().starts_with("/files-")
}

fn is_slack(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    host == "slack.com" || host.ends_with(".slack.com")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sends_the_token_only_to_file_addresses() {
        let slack = "https://slack.com/api";
        let near = "http://127.0.0.1:9/api";
        for (base, url, want) in [
            (slack, "https://files.slack.com/files-pri/T1-F1/a.png", true),
            (slack, "https://files.slack.com/files-tmb/T1-F1/a.png", true),
            (slack, "https://files.slack.com:8443/files-pri/T1-F1/a.png", false),
            (slack, "https://files.slack.com/files-pri/../api/auth.test", false),
            (slack, "https://files.slack.com/files-pri/%2e%2e/api/auth.test", false),
            (slack, "https://files.slack.com/api/files-pri", false),
            (slack, "http://files.slack.com/files-pri/T1-F1/a.png", false),
            (slack, "https://slack.com/files-pri/T1-F1/a.png", false),
            (slack, "https://slack.com/api/auth.revoke", false),
            (slack, "https://acme.slack.com/files-pri/T1-F1/a.png", false),
            (slack, "https://files.slack.com.evil.org/files-pri/T1-F1/a.png", false),
            (slack, "https://evil.org/files-pri/T1-F1/a.png", false),
            (near, "http://127.0.0.1:9/files-pri/T1-F1/a.png", true),
            (near, "http://127.0.0.1:9/api/auth.revoke", false),
            (near, "http://127.0.0.1:10/files-pri/T1-F1/a.png", false),
        ] {
            let parsed = |at: &str| Url::parse(at).expect("an address");
            assert_eq!(is_file_url(&parsed(url), &parsed(base)), want, "{url}");
        }
    }
}
