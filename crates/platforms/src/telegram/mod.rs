//! Telegram adapter, over the Bot API.
//!
//! Long polls have their own connection pool, so sending never waits for a poll. The token is part of every
//! address, so no error or log line shows an address.

mod api;
mod error;
mod fetch;
mod filter;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod link;
mod parse;
mod react;
mod render;
mod send;
mod topic;
mod wire;

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
use crate::{RateLimits, Secret, http};
use api::BotApi;
pub use error::Error;
use filter::MessageFilter;
pub use link::WebhookConfig;
use link::WebhookEndpoint;

/// In UTF-16 units.
const MAX_MESSAGE: usize = 4096;
/// At Telegram's own server, and at a custom one.
const MAX_FILE: u64 = 50 << 20;
const MAX_FILE_OWN: u64 = 2000 << 20;

pub const DEFAULT_BASE_URL: &str = "https://api.telegram.org/bot";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Notifications {
    /// Only final answers, which are not marked silent.
    #[default]
    Important,
    All,
}

#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct MenuCommand {
    pub command: String,
    pub description: String,
}

/// Chats and topics are ids as text; a topic is `thread` or `chat:thread`.
#[derive(Debug, Clone)]
pub struct Config {
    pub token: Secret,
    /// Requests go to `<base_url><token>/<method>`.
    pub base_url: String,
    /// Downloads use `<base_file_url><token>/<path>`; derived from `base_url` if not set.
    pub base_file_url: Option<String>,
    /// Defaults to the system's proxy.
    pub proxy: Option<Secret>,
    /// Receive by webhook instead of polling.
    pub webhook: Option<WebhookConfig>,
    /// How long the server may hold an idle poll; whole seconds, at least one.
    pub poll_timeout: Duration,
    /// Added to `poll_timeout` before a poll is abandoned.
    pub poll_grace: Duration,
    pub poll_backoff_base: Duration,
    pub stall_check_interval: Duration,
    /// Timeout of all other requests.
    pub request_timeout: Duration,
    pub notifications: Notifications,
    pub menu: Vec<MenuCommand>,
    pub typing: bool,
    pub reply_to: ReplyTo,
    pub reactions: bool,
    /// In groups, answer only when addressed.
    pub require_mention: bool,
    /// Case-insensitive regular expressions that count as a mention.
    pub mention_patterns: Vec<String>,
    /// If not empty, only these groups.
    pub allowed_chats: Vec<String>,
    /// Accept explicit mentions in groups outside `allowed_chats`.
    pub guest_mode: bool,
    pub free_response_chats: Vec<String>,
    pub free_response_topics: Vec<String>,
    /// Ignore messages that mention only other bots.
    pub exclusive_bot_mentions: bool,
    pub ignored_threads: Vec<String>,
    /// If not empty, only these topics.
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
            stall_check_interval: Duration::from_secs(90),
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

#[derive(Debug, thiserror::Error)]
pub enum TelegramConfigError {
    #[error("telegram base_url {0:?} is not an http(s) address")]
    BaseUrl(String),
    #[error("telegram base_file_url {0:?} is not an http(s) address")]
    BaseFileUrl(String),
    #[error("telegram mention pattern {pattern:?}: {error}")]
    Pattern { pattern: String, error: Box<regex::Error> },
    #[error("telegram webhook_url is set without webhook_secret, so anyone could send updates; set a secret")]
    NoWebhookSecret,
    #[error("telegram webhook_secret is not valid: use 1 to 256 of the characters A-Z a-z 0-9 _ -")]
    WebhookSecret,
    #[error("telegram webhook_url {0:?} is not an https address")]
    WebhookUrl(String),
    #[error("telegram proxy or TLS setup: {0}")]
    Client(String),
}

#[derive(Debug)]
pub struct Telegram {
    platform: Platform,
    capabilities: Capabilities,
    config: Config,
    filter: Arc<MessageFilter>,
    /// Set in webhook mode.
    endpoint: Option<WebhookEndpoint>,
    poll_api: BotApi,
    api: BotApi,
    limits: RateLimits,
    files: Fetcher,
}

impl Telegram {
    pub fn new(mut config: Config) -> Result<Self, TelegramConfigError> {
        config.poll_timeout = config.poll_timeout.max(Duration::from_secs(1));
        let base = address(&config, &config.base_url).map_err(TelegramConfigError::BaseUrl)?;
        let files = config.base_file_url.as_ref().map(|url| address(&config, url)).transpose();
        let files = files.map_err(TelegramConfigError::BaseFileUrl)?.unwrap_or_else(|| base.clone());
        let proxy = config.proxy.as_ref().map(Secret::expose);
        let invalid = |error: reqwest::Error| TelegramConfigError::Client(error.without_url().to_string());
        // Over HTTP/1.1 a dropped poll closes its connection, so the next poll gets a new one.
        let poll = http::http1_client(&base, proxy).map_err(invalid)?;
        let talk = http::client(&base, proxy).map_err(invalid)?;
        let fetch = if files.origin() == base.origin() {
            talk.clone()
        } else {
            http::client(&files, proxy).map_err(invalid)?
        };
        let platform = AdapterKind::Telegram.platform();
        let limits = RateLimits::new(platform);
        Ok(Self {
            platform,
            capabilities: capabilities(&config),
            filter: Arc::new(MessageFilter::new(&config)?),
            endpoint: config
                .webhook
                .as_ref()
                .map(|webhook| WebhookEndpoint::new(webhook, &config))
                .transpose()?,
            poll_api: BotApi::new(poll, &config, limits.clone()),
            files: Fetcher::new(files, fetch, config.proxy.clone()),
            api: BotApi::new(talk, &config, limits.clone()),
            limits,
            config,
        })
    }

    pub fn platform(&self) -> Platform {
        self.platform
    }

    pub fn limits(&self) -> &RateLimits {
        &self.limits
    }

    /// The bot's user id, which every token starts with. Empty if it does not: the whole token may be secret.
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

/// A custom Bot API server accepts larger files.
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
        status_reactions: config.reactions,
        threads_are_separate: false,
        files: Some(if is_own_server(config) { MAX_FILE_OWN } else { MAX_FILE }),
        async_delivery: true,
        pace: Duration::from_secs(1),
        // Two whole polls, or a few webhook status requests.
        longest_silence: Some(match &config.webhook {
            Some(webhook) => 4 * webhook.check_interval,
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

    fn with(change: impl FnOnce(&mut Config)) -> Result<Telegram, TelegramConfigError> {
        let mut config = Config::new(Secret::new("123:abc"));
        change(&mut config);
        Telegram::new(config)
    }

    #[test]
    fn refuses_invalid_settings_by_name() {
        let refused = |change: fn(&mut Config)| with(change).expect_err("refused").to_string();
        assert!(refused(|c| c.base_url = "api.telegram.org".into()).contains("base_url"));
        assert!(refused(|c| c.base_url = "ftp://e.org/bot".into()).contains("base_url"));
        assert!(refused(|c| c.base_file_url = Some("files".into())).contains("base_file_url"));
        assert!(refused(|c| c.mention_patterns = vec!["(".into()]).contains("mention pattern"));
    }

    #[test]
    fn account_is_the_public_part_of_the_token() {
        for (token, want) in [("123:abc", "123"), ("123:a:b", "123"), ("abc", ""), ("", "")] {
            let telegram = with(|config| config.token = Secret::new(token)).expect("valid");
            assert_eq!(telegram.account(), want, "{token}");
        }
    }

    #[test]
    fn debug_output_hides_the_token() {
        let telegram = with(|config| config.base_url = "http://127.0.0.1:9/bot".into()).expect("valid");
        assert!(!format!("{telegram:?}").contains("123:abc"));
    }
}
