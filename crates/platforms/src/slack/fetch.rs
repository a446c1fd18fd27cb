//! Files that people send: a private address, which asks for the workspace's token.
//!
//! Whoever shares a file that is kept elsewhere chooses its address. The token is good for all that the bot may do, so it
//! is shown only where Slack keeps files.

use petasos_core::Source;
use petasos_core::message::Attachment;
use reqwest::Url;

use super::Slack;
use crate::download::{Error, Fetched};

impl Slack {
    pub async fn fetch(
        &self,
        source: &Source,
        attachment: &Attachment,
        most: u64,
        to: &mut tokio::fs::File,
    ) -> Result<Fetched, Error> {
        if attachment.size.is_some_and(|size| size > most) {
            return Err(Error::TooLarge { most });
        }
        let Ok(url) = Url::parse(&attachment.reference) else { return Err(Error::Elsewhere) };
        let chat = source.chat_id.as_deref().unwrap_or_default();
        let (token, _place) = self.place(chat).await.map_err(crate::Error::from)?;
        let shown = |at: &Url| keeps_files(at, self.files.base()).then(|| token.secret.clone());
        let fetched = self.files.fetch(url.as_str(), &shown, most, to).await?;
        // Slack does not refuse a token that is not good enough: it asks to sign in.
        let page = fetched.head.trim_ascii_start().to_ascii_lowercase();
        let is_page = page.starts_with(b"<!doctype html") || page.starts_with(b"<html");
        let wanted = attachment.mime.as_deref().is_some_and(|mime| mime.starts_with("text/html"));
        if is_page && !wanted { Err(Error::SignIn) } else { Ok(fetched) }
    }
}

/// Slack's own files have a host of their own; a server that stands in for Slack has them beside its API.
fn keeps_files(url: &Url, base: &Url) -> bool {
    let slack = url.scheme() == "https" && url.host_str() == Some("files.slack.com") && url.port().is_none();
    let stand_in = url.origin() == base.origin() && !is_slack(base);
    (slack || stand_in) && url.path().starts_with("/files-")
}

fn is_slack(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    host == "slack.com" || host.ends_with(".slack.com")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_goes_to_files_alone() {
        let (slack, near) = ("https://slack.com/api", "http://127.0.0.1:9/api");
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
            assert_eq!(keeps_files(&parsed(url), &parsed(base)), want, "{url}");
        }
    }
}
