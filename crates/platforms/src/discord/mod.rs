//! Discord, over the gateway (v10, JSON) and REST.
//!
//! Of twilight we take the vocabulary (`twilight-model`: ids, opcodes, intents, close codes, what we send)
//! and leave the machines. `twilight-gateway` reports every event it has *received* in its heartbeats and
//! resumes behind it; we may tell Discord only what is committed, or a crash between the two loses the event.
//! It also reconnects by itself, with waits that no supervisor sees. `twilight-http` repeats a limited request
//! by itself and does not say whether a failed one may have had its effect. So the socket is a plain WebSocket
//! (`socket.rs`), REST is `crate::http`, and what people wrote is read by our own lenient types (`wire.rs`).
//!
//! Two futures share a link: `session.rs` reads the socket and keeps it alive, `digest.rs` turns what came
//! into committed batches. Between them is a bounded queue; back goes the last committed sequence number.

mod api;
mod backfill;
mod channels;
mod check;
mod cursor;
mod digest;
mod ended;
mod error;
mod gate;
mod history;
pub(crate) mod interaction;
mod menu;
mod parse;
mod pulse;
mod react;
mod receive;
mod render;
mod rooms;
mod send;
mod session;
mod socket;
mod threads;
mod tokens;
mod wire;

use std::sync::Mutex;
use std::time::Duration;

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
pub use crate::intake::CatchUp;
use crate::outgoing::FILES_HINT;
use crate::{Limits, Secret, http};
use api::Api;
pub use error::Error;
use gate::Gate;
use menu::Registration;
pub use menu::{MenuCommand, MenuPolicy};
use tokens::Tokens;

/// Longest message, in characters.
const MAX_MESSAGE: usize = 2000;
/// Largest file where nobody has paid for more.
const MAX_FILE: u64 = 10 << 20;
/// Discord remembers the key of a message for "a few minutes"; we count on less.
const KEY_MEMORY: Duration = Duration::from_secs(120);
/// Four heartbeats and some.
const LONGEST_SILENCE: Duration = Duration::from_secs(180);

pub const DEFAULT_API_BASE: &str = "https://discord.com/api/v10";

/// When a socket that is open counts as dead. A zero switches its check off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Liveness {
    /// How often it is looked at.
    pub interval: Duration,
    /// Bad looks in a row that end the link.
    pub failures: u32,
    /// Oldest acknowledgement of a heartbeat that counts.
    pub ack_age: Duration,
    /// Longest wait for an acknowledgement.
    pub latency: Duration,
}

/// What the owner set. A channel is an id, a name, `#name`, or the same of the channel it belongs to.
#[derive(Debug, Clone)]
pub struct Config {
    pub token: Secret,
    /// `extra.api_base`: requests go to `<api_base>/channels/…`.
    pub api_base: String,
    /// `extra.gateway_url`: where every socket is opened; what Discord names if there is none.
    pub gateway_url: Option<String>,
    /// The system's own setting if there is none.
    pub proxy: Option<Secret>,
    /// How long a socket may take until it is ready.
    pub connect_timeout: Duration,
    pub request_timeout: Duration,
    /// First wait after a socket that did not hold; the others are multiples of it.
    pub reconnect_base: Duration,
    /// Least time between two new sessions.
    pub identify_gap: Duration,
    pub liveness: Liveness,
    /// `messages`: what one request brings at most; requests follow until nothing is missing.
    pub catch_up: CatchUp,
    /// How long what is said now waits for what was missed in its channel, while nothing of that can be had.
    pub hold: Duration,
    /// Also hear of the members of servers: needed where names or roles are allowed.
    pub members_intent: bool,
    pub menu: Vec<MenuCommand>,
    pub menu_policy: MenuPolicy,
    /// Show that we are writing.
    pub typing: bool,
    pub reply_to: ReplyTo,
    /// Mark messages that are worked on.
    pub reactions: bool,
    /// Ids of roles whose members may talk to us in servers.
    pub allowed_roles: Vec<String>,
    pub allow_bots: Bots,
    /// A bot must name us in its text; answering us is not enough.
    pub bots_require_inline_mention: bool,
    /// In servers, answer only when named.
    pub require_mention: bool,
    /// Also in threads in which we have spoken.
    pub thread_require_mention: bool,
    /// What names only others is not for us.
    pub ignore_no_mention: bool,
    /// Nothing but these channels, unless empty.
    pub allowed_channels: Vec<String>,
    pub ignored_channels: Vec<String>,
    pub free_response_channels: Vec<String>,
    /// Answer a mention in a thread of its own.
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
            catch_up: CatchUp { window: Duration::from_secs(6 * 3600), messages: 100 },
            hold: Duration::from_secs(30),
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

/// The configuration cannot mean anything.
#[derive(Debug, thiserror::Error)]
pub enum Invalid {
    #[error("discord api_base {0:?} is not an http(s) address")]
    ApiBase(String),
    #[error("discord gateway_url {0:?} is not a ws(s) address")]
    GatewayUrl(String),
    #[error("discord token cannot be sent: it has a character that no token has")]
    Token,
    #[error("discord proxy or TLS set-up: {0}")]
    Client(String),
}

#[derive(Debug)]
pub struct Discord {
    platform: Platform,
    capabilities: Capabilities,
    account: String,
    config: Config,
    gate: Gate,
    api: Api,
    limits: Limits,
    files: Fetcher,
    /// What answers to interactions are signed with; an answer is due within seconds, so they are not kept.
    tokens: Tokens,
    /// When the last session was begun: Discord counts across links.
    identified: Mutex<Option<Instant>>,
    registration: Registration,
    /// Missed messages that could not be fetched.
    loss: Mutex<Loss>,
}

impl Discord {
    pub fn new(config: Config) -> Result<Self, Invalid> {
        let base = address(&config.api_base, ["http", "https"]).map_err(Invalid::ApiBase)?;
        if let Some(url) = &config.gateway_url {
            address(url, ["ws", "wss"]).map_err(Invalid::GatewayUrl)?;
        }
        if config.token.expose().chars().any(|c| !c.is_ascii_graphic()) {
            return Err(Invalid::Token);
        }
        let proxy = config.proxy.as_ref().map(Secret::expose);
        let failed = |error: reqwest::Error| Invalid::Client(error.without_url().to_string());
        let client = http::client(&base, proxy).map_err(failed)?;
        let platform = AdapterKind::Discord.platform();
        let limits = Limits::new(platform);
        Ok(Self {
            platform,
            capabilities: capabilities(&config),
            account: account(config.token.expose()),
            gate: Gate::new(&config),
            files: Fetcher::new(base, client.clone(), config.proxy.clone()),
            api: Api::new(client, &config, limits.clone()),
            limits,
            tokens: Tokens::default(),
            identified: Mutex::default(),
            registration: Registration::default(),
            loss: Mutex::default(),
            config,
        })
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    pub fn platform(&self) -> Platform {
        self.platform
    }

    /// The bot's user id, with which every token begins. Empty if the token has no such beginning: then all
    /// of it may be secret.
    pub fn account(&self) -> &str {
        &self.account
    }

    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// An attachment's reference is its address, which is permission enough.
    pub async fn fetch(
        &self,
        attachment: &Attachment,
        most: u64,
        to: &mut tokio::fs::File,
    ) -> Result<Fetched, download::Error> {
        if attachment.size.is_some_and(|size| size > most) {
            return Err(download::Error::TooLarge { most });
        }
        self.files.fetch(&attachment.reference, &|_| None, most, to).await
    }
}

fn address(text: &str, schemes: [&str; 2]) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|_| text.to_owned())?;
    if schemes.contains(&url.scheme()) && url.has_host() { Ok(url) } else { Err(text.to_owned()) }
}

/// The first third of a token is the bot's id in base 64.
fn account(token: &str) -> String {
    let first = token.split_once('.').map_or("", |(first, _secret)| first);
    let bytes = base64(first).unwrap_or_default();
    let digits = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
    if digits { String::from_utf8_lossy(&bytes).into_owned() } else { String::new() }
}

/// `None`: not base 64.
fn base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let (mut bits, mut held) = (0_u32, 0_u32);
    for c in text.bytes().take_while(|c| *c != b'=') {
        let value = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _other => return None,
        };
        (bits, held) = ((bits << 6) | u32::from(value), held + 6);
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from((bits >> held) & 0xff).ok()?);
        }
    }
    Some(bytes)
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
        marks: config.reactions,
        threads_stand_alone: true,
        files: Some(MAX_FILE),
        async_delivery: true,
        pace: Duration::from_secs(1),
        // Discord asks for a heartbeat every 41 s, and every one is acknowledged.
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

    fn with(change: impl FnOnce(&mut Config)) -> Result<Discord, Invalid> {
        let mut config = Config::new(Secret::new("OTAw.x.secret"));
        change(&mut config);
        Discord::new(config)
    }

    #[test]
    fn a_setting_that_means_nothing_is_refused_and_named() {
        let refused = |change: fn(&mut Config)| with(change).expect_err("refused").to_string();
        assert!(refused(|c| c.api_base = "discord.com".into()).contains("api_base"));
        assert!(refused(|c| c.gateway_url = Some("http://e.org".into())).contains("gateway_url"));
        assert!(refused(|c| c.token = Secret::new("a\nb")).contains("token"));
    }

    #[test]
    fn the_account_is_the_part_of_the_token_that_is_no_secret() {
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
    fn the_token_is_not_in_the_debug_output() {
        assert!(!format!("{:?}", with(|_| {}).expect("valid")).contains("secret"));
    }
}
