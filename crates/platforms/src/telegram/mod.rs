//! Telegram, over the Bot API.
//!
//! Two connection pools: one for the long poll, one for everything else, so that a chat we write to never
//! waits for the poll. The token is part of every address; no error and no log line shows an address.

mod api;
mod error;
mod fetch;
mod gate;
mod parse;
mod react;
mod receive;
mod render;
mod send;
mod topic;
mod webhook;
mod wire;
mod withheld;

use std::sync::Arc;
use std::time::Duration;

use petasos_core::capability::{Dialect, ReplyTo};
use petasos_core::message::Delivery;
use petasos_core::text::Unit;
use petasos_core::{Capabilities, Platform};
use reqwest::Url;

use crate::AdapterKind;
use crate::download::Fetcher;
use crate::outgoing::FILES_HINT;
use crate::{Limits, Secret, http};
use api::Api;
pub use error::Error;
use gate::Gate;
use webhook::Door;
pub use webhook::WebhookConfig;

/// Longest message, in UTF-16 units.
const MAX_MESSAGE: usize = 4096;
/// Largest file, at Telegram's own server and at one of the owner's.
const MAX_FILE: u64 = 50 << 20;
const MAX_FILE_OWN: u64 = 2000 << 20;

pub const DEFAULT_BASE_URL: &str = "https://api.telegram.org/bot";

/// When a message may make a sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Notifications {
    /// Only what is not marked silent: final answers.
    #[default]
    Important,
    All,
}

/// One entry of the menu that clients show at `/`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct MenuCommand {
    pub command: String,
    pub description: String,
}

/// What the owner set. Chats and topics are ids as text; a topic is `thread` or `chat:thread`.
#[derive(Debug, Clone)]
pub struct Config {
    pub token: Secret,
    /// Requests go to `<base_url><token>/<method>`.
    pub base_url: String,
    /// Files are fetched from `<base_file_url><token>/<path>`; beside `base_url` if there is none.
    pub base_file_url: Option<String>,
    /// The system's own setting if there is none.
    pub proxy: Option<Secret>,
    /// Telegram calls us, instead of being polled.
    pub webhook: Option<WebhookConfig>,
    /// How long the server may hold a poll that has nothing to say; whole seconds, at least one.
    pub poll_timeout: Duration,
    /// How much longer a poll may take before it is abandoned.
    pub poll_grace: Duration,
    /// First wait after a failed poll; the others are multiples of it.
    pub poll_backoff_base: Duration,
    /// How often we ask whether updates wait that no poll brings.
    pub probe_every: Duration,
    /// How long any other request may take.
    pub request_timeout: Duration,
    pub notifications: Notifications,
    pub menu: Vec<MenuCommand>,
    /// Show that we are writing.
    pub typing: bool,
    pub reply_to: ReplyTo,
    /// Mark messages that are worked on.
    pub reactions: bool,
    /// In groups, answer only when addressed.
    pub require_mention: bool,
    /// Regular expressions that count as being addressed; case does not matter.
    pub mention_patterns: Vec<String>,
    /// Nothing but these groups, unless empty.
    pub allowed_chats: Vec<String>,
    /// An explicit mention is heard in groups that are not allowed, too.
    pub guest_mode: bool,
    pub free_response_chats: Vec<String>,
    pub free_response_topics: Vec<String>,
    /// A message that names only other bots is not for us.
    pub exclusive_bot_mentions: bool,
    pub ignored_threads: Vec<String>,
    /// Nothing but these topics, unless empty.
    pub allowed_topics: Vec<String>,
}

impl Config {
    pub fn new(token: Secret) -> Self {
        Self {
            token,
            base_url: DEFAULT_BASE_URL.to_owned(),
            base_file_url: None,
            proxy: None,
            webhook: None,
            poll_timeout: Duration::from_secs(50),
            poll_grace: Duration::from_secs(15),
            poll_backoff_base: Duration::from_secs(5),
            probe_every: Duration::from_secs(90),
            request_timeout: Duration::from_secs(20),
            notifications: Notifications::default(),
            menu: Vec::new(),
            typing: true,
            reply_to: ReplyTo::First,
            reactions: false,
            require_mention: false,
            mention_patterns: Vec::new(),
            allowed_chats: Vec::new(),
            guest_mode: false,
            free_response_chats: Vec::new(),
            free_response_topics: Vec::new(),
            exclusive_bot_mentions: true,
            ignored_threads: Vec::new(),
            allowed_topics: Vec::new(),
        }
    }
}

/// The configuration cannot mean anything.
#[derive(Debug, thiserror::Error)]
pub enum Invalid {
    #[error("telegram base_url {0:?} is not an http(s) address")]
    BaseUrl(String),
    #[error("telegram base_file_url {0:?} is not an http(s) address")]
    BaseFileUrl(String),
    #[error("telegram mention pattern {pattern:?}: {error}")]
    Pattern { pattern: String, error: Box<regex::Error> },
    #[error("telegram webhook_url is set without webhook_secret, so anybody could speak as Telegram")]
    NoWebhookSecret,
    #[error("telegram webhook_secret is not one that Telegram takes: up to 256 of A-Z a-z 0-9 _ -")]
    WebhookSecret,
    #[error("telegram webhook_url {0:?} is not an https address")]
    WebhookUrl(String),
    #[error("telegram proxy or TLS set-up: {0}")]
    Client(String),
}

#[derive(Debug)]
pub struct Telegram {
    platform: Platform,
    capabilities: Capabilities,
    config: Config,
    gate: Arc<Gate>,
    /// Where Telegram calls us, unless it is polled.
    door: Option<Door>,
    /// For the long poll alone.
    poll: Api,
    /// For everything else.
    talk: Api,
    limits: Limits,
    files: Fetcher,
}

impl Telegram {
    pub fn new(mut config: Config) -> Result<Self, Invalid> {
        config.poll_timeout = config.poll_timeout.max(Duration::from_secs(1));
        let base = address(&config, &config.base_url).map_err(Invalid::BaseUrl)?;
        let files = config.base_file_url.as_ref().map(|url| address(&config, url)).transpose();
        let files = files.map_err(Invalid::BaseFileUrl)?.unwrap_or_else(|| base.clone());
        let proxy = config.proxy.as_ref().map(Secret::expose);
        let invalid = |error: reqwest::Error| Invalid::Client(error.without_url().to_string());
        // Without HTTP/2 a poll that is dropped takes its connection with it: the next one has a new one.
        let poll = http::upgradable(&base, proxy).map_err(invalid)?;
        let talk = http::client(&base, proxy).map_err(invalid)?;
        let fetch = if files.origin() == base.origin() {
            talk.clone()
        } else {
            http::client(&files, proxy).map_err(invalid)?
        };
        let platform = AdapterKind::Telegram.platform();
        let limits = Limits::new(platform);
        Ok(Self {
            platform,
            capabilities: capabilities(&config),
            gate: Arc::new(Gate::new(&config)?),
            door: config.webhook.as_ref().map(|webhook| Door::new(webhook, &config)).transpose()?,
            poll: Api::new(poll, &config, limits.clone()),
            files: Fetcher::new(files, fetch, config.proxy.clone()),
            talk: Api::new(talk, &config, limits.clone()),
            limits,
            config,
        })
    }

    pub fn platform(&self) -> Platform {
        self.platform
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The bot's user id, with which every token begins. Empty if the token has no such beginning: then all
    /// of it may be secret.
    pub fn account(&self) -> &str {
        self.config.token.expose().split_once(':').map_or("", |(id, _secret)| id)
    }

    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }
}

/// The error is the text itself, without the token.
fn address(config: &Config, text: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    url.ok_or_else(|| config.token.redact(text))
}

/// A server of one's own takes and gives larger files.
fn is_own_server(config: &Config) -> bool {
    config.base_url.trim_end_matches('/') != DEFAULT_BASE_URL.trim_end_matches('/')
}

fn capabilities(config: &Config) -> Capabilities {
    Capabilities {
        label: AdapterKind::Telegram.label().to_owned(),
        delivery: Delivery::Push,
        max_message: MAX_MESSAGE,
        max_edit: MAX_MESSAGE,
        unit: Unit::Utf16,
        split_hint: Some(4000),
        dialect: Dialect::MarkdownV2,
        edit: true,
        finalize: true,
        typing: config.typing,
        reply_to: config.reply_to,
        buttons: true,
        marks: config.reactions,
        threads_stand_alone: false,
        files: Some(if is_own_server(config) { MAX_FILE_OWN } else { MAX_FILE }),
        async_delivery: true,
        pace: Duration::from_secs(1),
        // Two whole polls, or some questions about the webhook.
        longest_silence: Some(match &config.webhook {
            Some(webhook) => 4 * webhook.beat,
            None => 2 * (config.poll_timeout + config.poll_grace),
        }),
        hint: format!(
            "You are writing on Telegram. Markdown is shown; tables become lists, so prefer short lists. \
             {FILES_HINT}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut Config)) -> Result<Telegram, Invalid> {
        let mut config = Config::new(Secret::new("123:abc"));
        change(&mut config);
        Telegram::new(config)
    }

    #[test]
    fn a_setting_that_means_nothing_is_refused_and_named() {
        let refused = |change: fn(&mut Config)| with(change).expect_err("refused").to_string();
        assert!(refused(|c| c.base_url = "api.telegram.org".into()).contains("base_url"));
        assert!(refused(|c| c.base_url = "ftp://e.org/bot".into()).contains("base_url"));
        assert!(refused(|c| c.base_file_url = Some("files".into())).contains("base_file_url"));
        assert!(refused(|c| c.mention_patterns = vec!["(".into()]).contains("mention pattern"));
    }

    #[test]
    fn the_account_is_the_part_of_the_token_that_is_no_secret() {
        for (token, want) in [("123:abc", "123"), ("123:a:b", "123"), ("abc", ""), ("", "")] {
            let telegram = with(|config| config.token = Secret::new(token)).expect("valid");
            assert_eq!(telegram.account(), want, "{token}");
        }
    }

    #[test]
    fn the_token_is_not_in_the_debug_output() {
        let telegram = with(|config| config.base_url = "http://127.0.0.1:9/bot".into()).expect("valid");
        assert!(!format!("{telegram:?}").contains("123:abc"));
    }
}
