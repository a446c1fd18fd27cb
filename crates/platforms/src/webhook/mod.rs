//! Webhooks: other programs call us when something happens.
//!
//! Every route has a secret, a text made from the payload, and a place where the answer goes: a turn of its own runs
//! for each delivery, or the text is passed on as it is. The caller hears that a delivery is taken when it is on disk;
//! whoever hears anything else says it again, and the same delivery is taken once.
//!
//! `hook` and `routes` (what can be called), `signature`, `filter`, `template`, `rate` (pure), `answer` (the checks in
//! their order), `send` (comments on GitHub).

mod answer;
mod error;
mod filter;
mod hook;
mod parse;
mod rate;
mod receive;
mod render;
mod routes;
mod send;
mod signature;
mod template;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use petasos_core::capability::{Dialect, ReplyTo};
use petasos_core::message::Delivery;
use petasos_core::text::Unit;
use petasos_core::{Capabilities, Platform};
use reqwest::{Client, Url};
use serde_json::{Map, Value};

use crate::AdapterKind;
use crate::called::Bell;
use crate::intake::Intake;
use crate::listener::{self, Place};
use crate::{Limits, Secret, http};
pub use error::Error;
use hook::{Key, Terms};
pub use hook::{Targets, idle, wants_home};
use rate::Rates;
use routes::Routes;
pub(crate) use signature::same;
pub use signature::sign;

/// Longest comment on GitHub, in characters.
const MAX_COMMENT: usize = 65_536;

pub const DEFAULT_PORT: u16 = 8644;
pub const DEFAULT_GITHUB_API: &str = "https://api.github.com";

/// What the owner set.
#[derive(Debug, Clone)]
pub struct Config {
    pub host: String,
    pub port: u16,
    /// For routes that have none of their own.
    pub secret: Option<Secret>,
    /// As written: name -> route.
    pub routes: Map<String, Value>,
    /// Further routes, in a file that is read again when it changes.
    pub subscriptions: Option<PathBuf>,
    /// Deliveries that one route takes in a minute.
    pub rate_limit: u32,
    pub max_body: usize,
    /// How long a caller waits for a message that is passed on.
    pub delivery_wait: Duration,
    pub targets: Targets,
    pub github_token: Option<Secret>,
    pub github_api: String,
    pub request_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: DEFAULT_PORT,
            secret: None,
            routes: Map::new(),
            subscriptions: None,
            rate_limit: 30,
            max_body: 1 << 20,
            delivery_wait: Duration::from_secs(10),
            targets: Targets::default(),
            github_token: None,
            github_api: DEFAULT_GITHUB_API.to_owned(),
            request_timeout: Duration::from_secs(20),
        }
    }
}

/// The configuration cannot mean anything.
#[derive(Debug, thiserror::Error)]
pub enum Invalid {
    #[error("webhook route {name}: {why}")]
    Route { name: String, why: String },
    #[error("webhook route {0} has no secret, and there is no common one")]
    NoSecret(String),
    #[error("webhook github_api {0:?} is not an http(s) address")]
    GitHubApi(String),
    #[error("webhook TLS set-up: {0}")]
    Client(String),
}

#[derive(Debug)]
pub struct Webhook {
    platform: Platform,
    limits: Limits,
    capabilities: Capabilities,
    place: Place,
    routes: Arc<Routes>,
    rates: Arc<Mutex<Rates>>,
    rate_limit: u32,
    max_body: usize,
    delivery_wait: Duration,
    github: Client,
    github_api: String,
    github_token: Option<Secret>,
    request_timeout: Duration,
    /// The clock of `rates`.
    started: Instant,
}

impl Webhook {
    pub fn new(config: Config) -> Result<Self, Invalid> {
        let terms = Terms {
            secret: config.secret,
            loopback: listener::is_loopback(&config.host),
            targets: config.targets,
            github: config.github_token.is_some(),
        };
        let fixed =
            routes::parse(&config.routes, &terms).map_err(|(name, why)| Invalid::Route { name, why })?;
        if let Some((name, _)) = fixed.iter().find(|(_, hook)| matches!(hook.key, Key::Missing)) {
            return Err(Invalid::NoSecret(name.clone()));
        }
        let api = Url::parse(&config.github_api).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let api = api.ok_or_else(|| Invalid::GitHubApi(config.github_api.clone()))?;
        let github = http::client(&api, None);
        let platform = AdapterKind::Webhook.platform();
        Ok(Self {
            platform,
            limits: Limits::new(platform),
            capabilities: capabilities(),
            place: Place { host: config.host, port: config.port, port_key: "WEBHOOK_PORT" },
            routes: Arc::new(Routes::new(fixed, terms, config.subscriptions)),
            rates: Arc::default(),
            rate_limit: config.rate_limit.max(1),
            max_body: config.max_body,
            delivery_wait: config.delivery_wait,
            github: github.map_err(|error| Invalid::Client(error.without_url().to_string()))?,
            github_api: config.github_api.trim_end_matches('/').to_owned(),
            github_token: config.github_token,
            request_timeout: config.request_timeout,
            started: Instant::now(),
        })
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    pub fn platform(&self) -> Platform {
        self.platform
    }

    /// There is one listener in a home, whatever its port: what was delivered once is known when it moves.
    pub fn account(&self) -> &str {
        "local"
    }

    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }
}

/// What a caller's request is dealt with by. One for each connection of the link.
#[derive(Debug)]
struct Desk {
    platform: Platform,
    routes: Arc<Routes>,
    rates: Arc<Mutex<Rates>>,
    rate_limit: u32,
    max_body: usize,
    delivery_wait: Duration,
    intake: Intake,
    bell: Bell,
    /// Routes whose old signatures were complained about; there are no more than routes.
    warned: Mutex<BTreeSet<String>>,
    started: Instant,
}

impl Desk {
    fn new(webhook: &Webhook, intake: Intake, bell: Bell) -> Self {
        Self {
            platform: webhook.platform,
            routes: webhook.routes.clone(),
            rates: webhook.rates.clone(),
            rate_limit: webhook.rate_limit,
            max_body: webhook.max_body,
            delivery_wait: webhook.delivery_wait,
            intake,
            bell,
            warned: Mutex::default(),
            started: webhook.started,
        }
    }

    /// The error is the seconds until the next delivery is taken.
    fn count(&self, route: &str) -> Result<(), u64> {
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        rates.take(route, self.rate_limit, self.started.elapsed())
    }

    fn is_first_v1(&self, route: &str) -> bool {
        self.warned.lock().unwrap_or_else(PoisonError::into_inner).insert(route.to_owned())
    }
}

fn capabilities() -> Capabilities {
    Capabilities {
        label: AdapterKind::Webhook.label().to_owned(),
        // Unless a route says otherwise, the transcript is the answer.
        delivery: Delivery::Pull,
        max_message: MAX_COMMENT,
        max_edit: MAX_COMMENT,
        unit: Unit::Chars,
        split_hint: None,
        dialect: Dialect::Markdown,
        edit: false,
        finalize: false,
        typing: false,
        reply_to: ReplyTo::Off,
        buttons: false,
        marks: false,
        threads_stand_alone: false,
        files: None,
        async_delivery: false,
        pace: Duration::from_secs(1),
        longest_silence: Some(4 * receive::BEAT),
        hint: "A program sent this event, and its text may come from strangers. Nobody can answer your questions; \
               what you write is passed on as it is."
            .to_owned(),
    }
}
