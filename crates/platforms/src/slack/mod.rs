//! Slack, over Socket Mode and the Web API.
//!
//! One app token opens the socket; one bot token per workspace speaks. Which workspace a chat belongs to is
//! learnt from what comes in, or asked. The tokens are in headers only; no error and no log line shows them.

mod api;
mod channels;
mod commit;
mod cursor;
mod error;
mod fetch;
mod gate;
mod history;
mod learn;
mod losses;
mod memory;
mod parse;
mod people;
mod react;
mod receive;
mod render;
mod send;
mod socket;
mod team;
mod text;
mod thread;
mod wire;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use petasos_core::access::Bots;
use petasos_core::capability::{Dialect, ReplyTo};
use petasos_core::link::Lack;
use petasos_core::message::Delivery;
use petasos_core::text::Unit;
use petasos_core::{Capabilities, Platform};
use reqwest::Url;
use tokio::sync::Notify;

use crate::AdapterKind;
use crate::download::Fetcher;
use crate::intake::CatchUp;
use crate::outgoing::FILES_HINT;
use crate::{Limits, Secret, http};
use api::Api;
pub use api::Sort;
pub use error::Error;
use gate::Gate;
use memory::Memory;
pub use parse::is_response_url;

/// Longest message, in characters. Slack cuts at 40,000.
const MAX_MESSAGE: usize = 39_000;
/// Longest text that a message can be changed to.
const MAX_EDIT: usize = 4_000;
const MAX_FILE: u64 = 1 << 30;

pub const DEFAULT_API_BASE: &str = "https://slack.com/api";

/// What the owner set. Channels are ids.
#[derive(Debug, Clone)]
pub struct Config {
    /// `xapp-…`, with the scope connections:write.
    pub app_token: Secret,
    /// `xoxb-…`, one per workspace.
    pub bot_tokens: Vec<Secret>,
    /// Requests go to `<api_base>/<method>`; the address of the socket is an answer to one of them.
    pub api_base: String,
    /// The system's own setting if there is none.
    pub proxy: Option<Secret>,
    /// How long a request may take.
    pub request_timeout: Duration,
    /// How long a new socket may take to say hello.
    pub hello_timeout: Duration,
    /// How often the socket is asked for a sign of life.
    pub ping_interval: Duration,
    /// A socket without any sign of life for this long is rebuilt.
    pub silence: Duration,
    /// First wait after a lost connection; the others are multiples of it.
    pub reconnect_base: Duration,
    /// An envelope that is older is not acknowledged any more; Slack's own limit is three seconds.
    pub ack_within: Duration,
    /// In channels, answer only when called, or in a thread that we take part in.
    pub require_mention: bool,
    /// In such a thread only when called, too.
    pub strict_mention: bool,
    /// Nothing but these channels, unless empty.
    pub allowed_channels: Vec<String>,
    pub free_response_channels: Vec<String>,
    pub allow_bots: Bots,
    /// Show that we are writing.
    pub typing: bool,
    /// Mark messages that are worked on, if they are addressed to us.
    pub reactions: bool,
    /// A message in a channel begins a thread, which is a session of its own.
    pub reply_in_thread: bool,
    /// The same in a conversation of two.
    pub dm_top_level_threads_as_sessions: bool,
    /// The first part of an answer in a thread is shown in the channel, too.
    pub reply_broadcast: bool,
    pub typing_status_text: String,
    pub catch_up: CatchUp,
}

impl Config {
    /// `bot_tokens`: one per workspace, with commas between them.
    pub fn new(app_token: &str, bot_tokens: &str) -> Self {
        let tokens = bot_tokens.split(',').map(str::trim).filter(|token| !token.is_empty());
        Self {
            app_token: Secret::new(app_token.trim()),
            bot_tokens: once_each(tokens).into_iter().map(Secret::new).collect(),
            api_base: DEFAULT_API_BASE.to_owned(),
            proxy: None,
            request_timeout: Duration::from_secs(20),
            hello_timeout: Duration::from_secs(15),
            ping_interval: Duration::from_secs(10),
            silence: Duration::from_secs(30),
            reconnect_base: Duration::from_secs(1),
            ack_within: Duration::from_millis(2500),
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
            catch_up: CatchUp { window: Duration::from_secs(6 * 3600), messages: 100 },
        }
    }
}

/// A workspace that is named twice is still one.
fn once_each<'a>(tokens: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    tokens.for_each(|token| {
        if !seen.contains(&token) {
            seen.push(token);
        }
    });
    seen
}

/// The configuration cannot mean anything. Missing tokens are not among it: the link says so and stops.
#[derive(Debug, thiserror::Error)]
pub enum Invalid {
    #[error("slack api_base {0:?} is not an http(s) address")]
    ApiBase(String),
    #[error("slack proxy or TLS set-up: {0}")]
    Client(String),
}

#[derive(Debug)]
pub struct Slack {
    platform: Platform,
    capabilities: Capabilities,
    config: Config,
    gate: Gate,
    api: Api,
    limits: Limits,
    memory: Mutex<Box<Memory>>,
    /// A workspace was lost, or is back: the link is to look.
    workspaces: Notify,
    files: Fetcher,
}

impl Slack {
    pub fn new(config: Config) -> Result<Self, Invalid> {
        let base = Url::parse(&config.api_base).ok();
        let base = base.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let base = base.ok_or_else(|| Invalid::ApiBase(config.api_base.clone()))?;
        let client = http::client(&base, config.proxy.as_ref().map(Secret::expose))
            .map_err(|error| Invalid::Client(error.without_url().to_string()))?;
        let platform = AdapterKind::Slack.platform();
        let limits = Limits::new(platform);
        Ok(Self {
            platform,
            capabilities: capabilities(&config),
            gate: Gate::new(&config),
            files: Fetcher::new(base, client.clone(), config.proxy.clone()),
            api: Api::new(client, &config.api_base, config.request_timeout, limits.clone()),
            limits,
            memory: Mutex::default(),
            workspaces: Notify::new(),
            config,
        })
    }

    /// How many there are tokens for.
    pub fn workspaces(&self) -> usize {
        self.config.bot_tokens.len()
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    pub fn platform(&self) -> Platform {
        self.platform
    }

    /// The app's id, which every app token names: `xapp-1-A0123-…`. Empty if the token has no such part.
    pub fn account(&self) -> &str {
        let id = self.config.app_token.expose().split('-').nth(2).unwrap_or_default();
        if id.starts_with('A') && id.len() < 20 { id } else { "" }
    }

    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Workspaces that take us no more, while others do, and missed messages that could not be fetched.
    pub fn lacks(&self) -> Vec<Lack> {
        let memory = self.memory();
        let missed = memory.loss.lack("slack_backfill_incomplete");
        memory.losses.told().into_iter().chain(missed).collect()
    }

    /// Nothing to tell: whoever pressed a button was answered by the acknowledgement of its envelope.
    pub async fn answer_callback(&self, _dedup: &str, _notice: Option<&str>) -> Result<(), Error> {
        Ok(())
    }

    /// Never held across a wait. One who panicked while holding it has not broken it: entries go in whole.
    fn memory(&self) -> MutexGuard<'_, Box<Memory>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
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
        marks: config.reactions,
        threads_stand_alone: false,
        files: Some(MAX_FILE),
        async_delivery: true,
        pace: Duration::from_secs(1),
        // Every ping is answered.
        longest_silence: Some(2 * (config.silence + config.ping_interval)),
        hint: format!(
            "You are writing on Slack. Markdown is shown; tables become lists. <@U…> calls a person. \
             Commands are typed with ! in front, such as !stop. {FILES_HINT}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut Config)) -> Result<Slack, Invalid> {
        let mut config = Config::new("xapp-1-A0123-456-secret", "xoxb-1-secret, xoxb-2-secret,");
        change(&mut config);
        Slack::new(config)
    }

    #[test]
    fn a_list_of_tokens_is_one_workspace_each() {
        let slack = with(|_| {}).expect("valid");
        let tokens: Vec<&str> = slack.config.bot_tokens.iter().map(Secret::expose).collect();
        assert_eq!(tokens, ["xoxb-1-secret", "xoxb-2-secret"]);
        assert!(!format!("{slack:?}").contains("secret"));
    }

    #[test]
    fn the_account_is_the_part_of_the_token_that_is_no_secret() {
        for (token, want) in [("xapp-1-A0123-456-s", "A0123"), ("xapp-x", ""), ("a-b-c-d", ""), ("", "")] {
            let slack = with(|config| config.app_token = Secret::new(token)).expect("valid");
            assert_eq!(slack.account(), want, "{token}");
        }
    }

    #[test]
    fn an_address_that_means_nothing_is_refused_and_named() {
        for base in ["slack.com/api", "ftp://e.org", ""] {
            let refused = with(|config| config.api_base = base.into()).expect_err("refused");
            assert!(refused.to_string().contains("api_base"), "{refused}");
        }
    }
}
