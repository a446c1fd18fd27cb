//! Discord adapter, over the gateway (v10, JSON) and REST.
//!
//! Only `twilight-model` is used (ids, opcodes, intents, close codes, payloads). `twilight-gateway`
//! acknowledges every event it has *received*; we may acknowledge only committed ones, or a crash in between
//! loses an event. It also reconnects by itself, unseen by the supervisor. `twilight-http` repeats
//! rate-limited requests by itself and does not say whether a failed request may have had an effect. So the
//! socket is a plain WebSocket, REST uses `crate::http`, and messages are parsed by our own lenient types
//! (`wire.rs`).
//!
//! A link has two futures: `link/session.rs` owns the socket, `link/events.rs` turns its events into
//! committed batches. A bounded queue connects them; the last committed sequence number goes back.

mod backfill;
mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod inbound;
mod link;
mod render;
mod rest;
mod wire;

use std::sync::Mutex;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use petasos_core::access::Bots;
use petasos_core::capability::{Dialect, ReplyTo};
use petasos_core::message::{Attachment, Delivery};
use petasos_core::text::Unit;
use petasos_core::{Capabilities, Platform};
use reqwest::Url;
use tokio::time::Instant;

use crate::AdapterKind;
use crate::backfill::loss::Loss;
use crate::download::{self, Fetched, Fetcher};
pub use crate::inbound::BackfillLimits;
use crate::outgoing::FILES_HINT;
use crate::{RateLimits, Secret, http};

pub use error::Error;
use inbound::filter::MessageFilter;
pub(crate) use inbound::interaction;
use rest::api::RestApi;
use rest::menu::MenuRegistration;
pub use rest::menu::{MenuCommand, MenuPolicy};
use rest::tokens::InteractionTokens;

/// In characters.
const MAX_MESSAGE: usize = 2000;
/// Without a paid plan.
const MAX_FILE: u64 = 10 << 20;
/// Discord remembers a nonce for "a few minutes"; this is the lower bound that we rely on.
const IDEMPOTENCY_WINDOW: Duration = Duration::from_secs(120);
/// A little more than four heartbeats.
const LONGEST_SILENCE: Duration = Duration::from_secs(180);

pub const DEFAULT_API_BASE: &str = "https://discord.com/api/v10";

/// When an open socket counts as dead. Zero switches a check off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Liveness {
    pub interval: Duration,
    /// Failed checks in a row that end the link.
    pub failures: u32,
    /// Maximum age of the last acknowledgement.
    pub ack_age: Duration,
    /// Longest wait for an acknowledgement.
    pub latency: Duration,
}

/// A channel is an id, a name or `#name`, its own or its parent's.
#[derive(Debug, Clone)]
pub struct Config {
    pub token: Secret,
    /// `extra.api_base`: requests go to `<api_base>/channels/…`.
    pub api_base: String,
    /// `extra.gateway_url`: overrides the address that Discord names.
    pub gateway_url: Option<String>,
    /// Defaults to the system's proxy.
    pub proxy: Option<Secret>,
    /// Until the session is ready.
    pub connect_timeout: Duration,
    pub request_timeout: Duration,
    pub reconnect_base: Duration,
    /// Least time between two new sessions.
    pub identify_gap: Duration,
    pub liveness: Liveness,
    /// `messages` bounds one request; requests follow until nothing is missing.
    pub backfill: BackfillLimits,
    /// How long live messages wait for a backfill of their channel that makes no progress.
    pub max_reorder_wait: Duration,
    /// Request member events: needed where names or roles are allowed.
    pub members_intent: bool,
    pub menu: Vec<MenuCommand>,
    pub menu_policy: MenuPolicy,
    pub typing: bool,
    pub reply_to: ReplyTo,
    pub reactions: bool,
    /// Ids of roles whose members may use the bot in servers.
    pub allowed_roles: Vec<String>,
    pub allow_bots: Bots,
    /// Bots must mention the bot in the text; a reply is not enough.
    pub bots_require_inline_mention: bool,
    /// In servers, answer only when mentioned.
    pub require_mention: bool,
    /// Also in threads in which the bot has written.
    pub thread_require_mention: bool,
    /// Ignore messages that mention only others.
    pub ignore_no_mention: bool,
    /// If not empty, only these channels.
    pub allowed_channels: Vec<String>,
    pub ignored_channels: Vec<String>,
    pub free_response_channels: Vec<String>,
    /// Answer a mention in a new thread.
    pub auto_thread: bool,
    pub no_thread_channels: Vec<String>,
}

impl Config {
    pub fn new(token: Secret) -> Self {
        Self {
            token,
            api_base: DEFAULT_API_BASE.to_owned(),
            gateway_url: None,
            proxy: None,
            connect_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(20),
            reconnect_base: Duration::from_secs(1),
            identify_gap: Duration::from_secs(5),
            liveness: Liveness {
                interval: Duration::from_secs(15),
                failures: 2,
                ack_age: Duration::from_secs(60),
                latency: Duration::from_secs(30),
            },
            backfill: BackfillLimits { window: Duration::from_secs(6 * 3600), messages: 100 },
            max_reorder_wait: Duration::from_secs(30),
            members_intent: false,
            menu: Vec::new(),
            menu_policy: MenuPolicy::default(),
            typing: true,
            reply_to: ReplyTo::First,
            reactions: true,
            allowed_roles: Vec::new(),
            allow_bots: Bots::default(),
            bots_require_inline_mention: false,
            require_mention: true,
            thread_require_mention: false,
            ignore_no_mention: true,
            allowed_channels: Vec::new(),
            ignored_channels: Vec::new(),
            free_response_channels: Vec::new(),
            auto_thread: true,
            no_thread_channels: Vec::new(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DiscordConfigError {
    #[error("discord api_base {0:?} is not an http(s) address")]
    ApiBase(String),
    #[error("discord gateway_url {0:?} is not a ws(s) address")]
    GatewayUrl(String),
    #[error("discord token contains an invalid character")]
    Token,
    #[error("discord proxy or TLS setup: {0}")]
    Client(String),
}

#[derive(Debug)]
pub struct Discord {
    platform: Platform,
    capabilities: Capabilities,
    account: String,
    config: Config,
    filter: MessageFilter,
    api: RestApi,
    limits: RateLimits,
    files: Fetcher,
    /// Not stored: interactions expire within seconds.
    tokens: InteractionTokens,
    /// When the last session was started: Discord's limit spans all links.
    identified: Mutex<Option<Instant>>,
    registration: MenuRegistration,
    loss: Mutex<Loss>,
}

impl Discord {
    pub fn new(config: Config) -> Result<Self, DiscordConfigError> {
        let base = address(&config.api_base, ["http", "https"]).map_err(DiscordConfigError::ApiBase)?;
        if let Some(url) = &config.gateway_url {
            address(url, ["ws", "wss"]).map_err(DiscordConfigError::GatewayUrl)?;
        }
        if config.token.expose().chars().any(|c| !c.is_ascii_graphic()) {
            return Err(DiscordConfigError::Token);
        }
        let proxy = config.proxy.as_ref().map(Secret::expose);
        let failed = |error: reqwest::Error| DiscordConfigError::Client(error.without_url().to_string());
        let client = http::client(&base, proxy).map_err(failed)?;
        let platform = AdapterKind::Discord.platform();
        let limits = RateLimits::new(platform);
        Ok(Self {
            platform,
            capabilities: capabilities(&config),
            account: account(config.token.expose()),
            filter: MessageFilter::new(&config),
            files: Fetcher::new(base, client.clone(), config.proxy.clone()),
            api: RestApi::new(client, &config, limits.clone()),
            limits,
            tokens: InteractionTokens::default(),
            identified: Mutex::default(),
            registration: MenuRegistration::default(),
            loss: Mutex::default(),
            config,
        })
    }

    pub fn limits(&self) -> &RateLimits {
        &self.limits
    }

    pub fn platform(&self) -> Platform {
        self.platform
    }

    /// The bot's user id, which every token starts with. Empty if it does not: the whole token may be secret.
    pub fn account(&self) -> &str {
        &self.account
    }

    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// The reference is the address, which needs no token.
    pub async fn fetch(
        &self,
        attachment: &Attachment,
        max_size: u64,
        to: &mut tokio::fs::File,
    ) -> Result<Fetched, download::Error> {
        if attachment.size.is_some_and(|size| size > max_size) {
            return Err(download::Error::TooLarge { max_size });
        }
        self.files.fetch(&attachment.reference, &|_| None, max_size, to).await
    }
}

fn address(text: &str, schemes: [&str; 2]) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|_| text.to_owned())?;
    if schemes.contains(&url.scheme()) && url.has_host() { Ok(url) } else { Err(text.to_owned()) }
}

/// The first third of a token is the bot's id in base 64.
fn account(token: &str) -> String {
    let first = token.split_once('.').map_or("", |(first, _secret)| first);
    let bytes = STANDARD_NO_PAD.decode(first.trim_end_matches('=')).unwrap_or_default();
    let digits = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
    if digits { String::from_utf8_lossy(&bytes).into_owned() } else { String::new() }
}

fn capabilities(config: &Config) -> Capabilities {
    Capabilities {
        label: AdapterKind::Discord.label().to_owned(),
        delivery: Delivery::Push,
        max_message: MAX_MESSAGE,
        max_edit: MAX_MESSAGE,
        unit: Unit::Chars,
        split_hint: Some(1900),
        dialect: Dialect::Discord,
        edit: true,
        finalize: false,
        typing: config.typing,
        reply_to: config.reply_to,
        buttons: true,
        status_reactions: config.reactions,
        threads_are_separate: true,
        files: Some(MAX_FILE),
        async_delivery: true,
        pace: Duration::from_secs(1),
        // Discord asks for a heartbeat every 41 s and acknowledges each.
        longest_silence: Some(LONGEST_SILENCE),
        hint: format!(
            "You are writing on Discord. Markdown is shown; tables become lists, so prefer short lists. \
             {FILES_HINT}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut Config)) -> Result<Discord, DiscordConfigError> {
        let mut config = Config::new(Secret::new("OTAw.x.secret"));
        change(&mut config);
        Discord::new(config)
    }

    #[test]
    fn refuses_invalid_settings_by_name() {
        let refused = |change: fn(&mut Config)| with(change).expect_err("refused").to_string();
        assert!(refused(|c| c.api_base = "discord.com".into()).contains("api_base"));
        assert!(refused(|c| c.gateway_url = Some("http://e.org".into())).contains("gateway_url"));
        assert!(refused(|c| c.token = Secret::new("a\nb")).contains("token"));
    }

    #[test]
    fn account_is_the_public_part_of_the_token() {
        for (token, want) in [
            ("OTAw.x.secret", "900"),
            ("MTc1OTI4ODQ3Mjk5MTE3MDYz.GhIjKl.rest", "175928847299117063"),
            ("abc.x.y", ""),
            ("OTAw", ""),
            ("", ""),
        ] {
            assert_eq!(account(token), want, "{token}");
        }
    }

    #[test]
    fn debug_output_hides_the_token() {
        assert!(!format!("{:?}", with(|_| {}).expect("valid")).contains("secret"));
    }
}
