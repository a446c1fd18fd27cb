//! Slack adapter, over Socket Mode and the Web API.
//!
//! One app token opens the socket; one bot token per workspace sends. The workspace of a chat is recorded
//! from incoming events, or looked up. Tokens are sent in headers only; no error and no log line shows them.

mod backfill;
mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod inbound;
mod link;
mod render;
mod rest;
mod state;
mod wire;
mod workspaces;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use petasos_core::access::Bots;
use petasos_core::capability::{Dialect, ReplyTo};
use petasos_core::link::PartialOutage;
use petasos_core::message::Delivery;
use petasos_core::text::Unit;
use petasos_core::{Capabilities, Platform};
use reqwest::Url;
use tokio::sync::Notify;

use crate::AdapterKind;
use crate::download::Fetcher;
use crate::inbound::BackfillLimits;
use crate::outgoing::FILES_HINT;
use crate::{RateLimits, Secret, http};
pub use error::Error;
use inbound::filter::MessageFilter;
pub use inbound::parse::is_response_url;
pub use rest::api::TokenKind;
use rest::api::WebApi;
use state::SlackState;

/// In characters. Slack truncates at 40,000.
const MAX_MESSAGE: usize = 39_000;
const MAX_EDIT: usize = 4_000;
const MAX_FILE: u64 = 1 << 30;

pub const DEFAULT_API_BASE: &str = "https://slack.com/api";

/// Channels are ids.
#[derive(Debug, Clone)]
pub struct Config {
    /// `xapp-…`, with the scope `connections:write`.
    pub app_token: Secret,
    /// `xoxb-…`, one per workspace.
    pub bot_tokens: Vec<Secret>,
    /// Requests go to `<api_base>/<method>`; one of them returns the address of the socket.
    pub api_base: String,
    /// Defaults to the system's proxy.
    pub proxy: Option<Secret>,
    pub request_timeout: Duration,
    /// Until Slack sends its hello over a new socket.
    pub hello_timeout: Duration,
    pub ping_interval: Duration,
    /// A socket that receives nothing for this long is replaced.
    pub silence: Duration,
    pub reconnect_base: Duration,
    /// Older envelopes are not acknowledged. Slack's own limit is three seconds.
    pub ack_timeout: Duration,
    /// In channels, answer only when mentioned, or in the bot's own threads.
    pub require_mention: bool,
    /// Also in its own threads, answer only when mentioned.
    pub strict_mention: bool,
    /// If not empty, only these channels.
    pub allowed_channels: Vec<String>,
    pub free_response_channels: Vec<String>,
    pub allow_bots: Bots,
    pub typing: bool,
    /// Status reactions on messages that address the bot.
    pub reactions: bool,
    /// A message in a channel begins a thread with its own session.
    pub reply_in_thread: bool,
    /// The same in direct messages.
    pub dm_top_level_threads_as_sessions: bool,
    /// Show the first part of an answer in a thread in the channel, too.
    pub reply_broadcast: bool,
    pub typing_status_text: String,
    pub backfill: BackfillLimits,
}

impl Config {
    /// `bot_tokens`: one per workspace, separated by commas.
    pub fn new(app_token: &str, bot_tokens: &str) -> Self {
        let tokens = bot_tokens.split(',').map(str::trim).filter(|token| !token.is_empty());
        Self {
            app_token: Secret::new(app_token.trim()),
            bot_tokens: deduplicate(tokens).into_iter().map(Secret::new).collect(),
            api_base: DEFAULT_API_BASE.to_owned(),
            proxy: None,
            request_timeout: Duration::from_secs(20),
            hello_timeout: Duration::from_secs(15),
            ping_interval: Duration::from_secs(10),
            silence: Duration::from_secs(30),
            reconnect_base: Duration::from_secs(1),
            ack_timeout: Duration::from_millis(2500),
            require_mention: true,
            strict_mention: false,
            allowed_channels: Vec::new(),
            free_response_channels: Vec::new(),
            allow_bots: Bots::None,
            typing: true,
            reactions: true,
            reply_in_thread: true,
            dm_top_level_threads_as_sessions: true,
            reply_broadcast: false,
            typing_status_text: "is thinking...".to_owned(),
            backfill: BackfillLimits { window: Duration::from_secs(6 * 3600), messages: 100 },
        }
    }
}

fn deduplicate<'a>(tokens: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    tokens.for_each(|token| {
        if !seen.contains(&token) {
            seen.push(token);
        }
    });
    seen
}

/// Missing tokens are reported by the link instead.
#[derive(Debug, thiserror::Error)]
pub enum SlackConfigError {
    #[error("slack api_base {0:?} is not an http(s) address")]
    ApiBase(String),
    #[error("slack proxy or TLS setup: {0}")]
    Client(String),
}

#[derive(Debug)]
pub struct Slack {
    platform: Platform,
    capabilities: Capabilities,
    config: Config,
    filter: MessageFilter,
    api: WebApi,
    limits: RateLimits,
    state: Mutex<Box<SlackState>>,
    /// A workspace was lost or accepts the app again.
    outages_changed: Notify,
    files: Fetcher,
}

impl Slack {
    pub fn new(config: Config) -> Result<Self, SlackConfigError> {
        let base = Url::parse(&config.api_base).ok();
        let base = base.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let base = base.ok_or_else(|| SlackConfigError::ApiBase(config.api_base.clone()))?;
        let client = http::client(&base, config.proxy.as_ref().map(Secret::expose))
            .map_err(|error| SlackConfigError::Client(error.without_url().to_string()))?;
        let platform = AdapterKind::Slack.platform();
        let limits = RateLimits::new(platform);
        Ok(Self {
            platform,
            capabilities: capabilities(&config),
            filter: MessageFilter::new(&config),
            files: Fetcher::new(base, client.clone(), config.proxy.clone()),
            api: WebApi::new(client, &config.api_base, config.request_timeout, limits.clone()),
            limits,
            state: Mutex::default(),
            outages_changed: Notify::new(),
            config,
        })
    }

    /// Number of bot tokens.
    pub fn workspace_count(&self) -> usize {
        self.config.bot_tokens.len()
    }

    pub fn limits(&self) -> &RateLimits {
        &self.limits
    }

    pub fn platform(&self) -> Platform {
        self.platform
    }

    /// The app's id, which is part of every app token: `xapp-1-A0123-…`. Empty if the token has no such part.
    pub fn account(&self) -> &str {
        let id = self.config.app_token.expose().split('-').nth(2).unwrap_or_default();
        if id.starts_with('A') && id.len() < 20 { id } else { "" }
    }

    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Lost workspaces, and missed messages that could not be fetched.
    pub fn partial_outages(&self) -> Vec<PartialOutage> {
        let state = self.state();
        let missed = state.loss.partial_outage("slack_backfill_incomplete");
        state.outages.partial_outages().into_iter().chain(missed).collect()
    }

    /// The acknowledgement of the envelope was the answer.
    pub async fn answer_callback(&self, _dedup: &str, _notice: Option<&str>) -> Result<(), Error> {
        Ok(())
    }

    /// Never held across an await. A panic while it is held leaves whole entries, so poisoning is ignored.
    fn state(&self) -> MutexGuard<'_, Box<SlackState>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn capabilities(config: &Config) -> Capabilities {
    Capabilities {
        label: AdapterKind::Slack.label().to_owned(),
        delivery: Delivery::Push,
        max_message: MAX_MESSAGE,
        max_edit: MAX_EDIT,
        unit: Unit::Chars,
        split_hint: None,
        dialect: Dialect::Mrkdwn,
        edit: true,
        finalize: false,
        typing: config.typing,
        reply_to: ReplyTo::First,
        buttons: true,
        status_reactions: config.reactions,
        threads_are_separate: false,
        files: Some(MAX_FILE),
        async_delivery: true,
        pace: Duration::from_secs(1),
        // Slack answers every ping.
        longest_silence: Some(2 * (config.silence + config.ping_interval)),
        hint: format!(
            "You are writing on Slack. Markdown is shown; tables become lists. <@U…> mentions a person. \
             Commands are typed with ! in front, such as !stop. {FILES_HINT}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut Config)) -> Result<Slack, SlackConfigError> {
        let mut config = Config::new("xapp-1-A0123-456-secret", "xoxb-1-secret, xoxb-2-secret,");
        change(&mut config);
        Slack::new(config)
    }

    #[test]
    fn parses_one_workspace_per_bot_token() {
        let slack = with(|_| {}).expect("valid");
        let tokens: Vec<&str> = slack.config.bot_tokens.iter().map(Secret::expose).collect();
        assert_eq!(tokens, ["xoxb-1-secret", "xoxb-2-secret"]);
        assert!(!format!("{slack:?}").contains("secret"));
    }

    #[test]
    fn account_is_the_public_part_of_the_app_token() {
        for (token, want) in [("xapp-1-A0123-456-s", "A0123"), ("xapp-x", ""), ("a-b-c-d", ""), ("", "")] {
            let slack = with(|config| config.app_token = Secret::new(token)).expect("valid");
            assert_eq!(slack.account(), want, "{token}");
        }
    }

    #[test]
    fn refuses_an_invalid_api_base_by_name() {
        for base in ["slack.com/api", "ftp://e.org", ""] {
            let refused = with(|config| config.api_base = base.into()).expect_err("refused");
            assert!(refused.to_string().contains("api_base"), "{refused}");
        }
    }
}
