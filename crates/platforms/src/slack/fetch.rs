//! Files that people send: a private address, which asks for the workspace's token.

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
        let chat = source.chat_id.as_deref().unwrap_or_default();
        let (token, _place) = self.place(chat).await.map_err(crate::Error::from)?;
        let fetched =
            self.files.fetch(&attachment.reference, Some(&token.secret), is_slack, most, to).await?;
        // Slack does not refuse a token that is not good enough: it asks to sign in.
        let page = fetched.head.trim_ascii_start().to_ascii_lowercase();
        let is_page = page.starts_with(b"<!doctype html") || page.starts_with(b"<html");
        let wanted = attachment.mime.as_deref().is_some_and(|mime| mime.starts_with("text/html"));
        if is_page && !wanted { Err(Error::SignIn) } else { Ok(fetched) }
    }
}

/// Nobody else gets the token.
fn is_slack(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    url.scheme() == "https" && (host == "slack.com" || host.ends_with(".slack.com"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_goes_to_slack_alone() {
        for (url, want) in [
            ("https://files.slack.com/files-pri/T1-F1/a.png", true),
            ("https://slack.com/x", true),
            ("http://files.slack.com/x", false),
            ("https://evilslack.com/x", false),
            ("https://slack.com.evil.org/x", false),
        ] {
            assert_eq!(is_slack(&Url::parse(url).expect("an address")), want, "{url}");
        }
    }
}
