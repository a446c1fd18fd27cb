//! Webhook adapter: other programs deliver events over HTTP.
//!
//! Each route has a secret, a text template and a delivery target: a delivery starts its own turn, or its
//! text is sent without one. The caller gets a 2xx only after the commit, and retries otherwise; the inbox
//! recognises duplicates by the delivery id (`request`), and signed replays by their fingerprint.
//!
//! `routes` (settings, filters, templates), `request` (the checks of a delivery), `link` (the listener),
//! `send` (comments on GitHub).

mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod link;
mod render;
mod request;
mod routes;
mod send;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use petasos_core::capability::{Dialect, ReplyTo};
use petasos_core::message::Delivery;
use petasos_core::text::Unit;
use petasos_core::{Capabilities, Platform};
use petasos_runtime::clock;
use reqwest::{Client, Url};
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::AdapterKind;
use crate::listener::{self, ListenAddress};
use crate::{RateLimits, Secret, http};
pub use error::Error;
use request::RequestCounts;
pub(crate) use request::constant_time_eq;
pub use request::sign;
use routes::Routes;
use routes::route::{RouteAuth, RouteDefaults};
pub use routes::route::{Targets, home_platform, ineffective_setting};

/// Of a comment on GitHub, in characters.
const MAX_COMMENT: usize = 65_536;

pub const DEFAULT_PORT: u16 = 8644;
pub const DEFAULT_GITHUB_API: &str = "https://api.github.com";

#[derive(Debug, Clone)]
pub struct Config {
    pub host: String,
    pub port: u16,
    /// For routes without their own.
    pub secret: Option<Secret>,
    /// Settings by route name.
    pub routes: Map<String, Value>,
    /// File with further routes, reloaded when it changes.
    pub subscriptions: Option<PathBuf>,
    /// Deliveries per route and minute.
    pub rate_limit: u32,
    pub max_body: usize,
    /// How long a caller waits for a message that is delivered without a turn.
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

#[derive(Debug, thiserror::Error)]
pub enum WebhookConfigError {
    #[error("webhook route {name}: {why}")]
    Route { name: String, why: String },
    #[error("webhook route {0} has no secret, and no common secret is set")]
    NoSecret(String),
    #[error("webhook github_api {0:?} is not an http(s) address")]
    GitHubApi(String),
    #[error("webhook TLS setup: {0}")]
    Client(String),
}

#[derive(Debug)]
pub struct Webhook {
    platform: Platform,
    limits: RateLimits,
    capabilities: Capabilities,
    listen: ListenAddress,
    routes: Arc<Routes>,
    counts: Arc<Mutex<RequestCounts>>,
    rate_limit: u32,
    max_body: usize,
    delivery_wait: Duration,
    github: Client,
    github_api: String,
    github_token: Option<Secret>,
    request_timeout: Duration,
    /// Start of the clock of `counts`.
    started: Instant,
}

impl Webhook {
    pub fn new(config: Config) -> Result<Self, WebhookConfigError> {
        let defaults = RouteDefaults {
            secret: config.secret,
            loopback: listener::is_loopback(&config.host),
            targets: config.targets,
            github: config.github_token.is_some(),
        };
        let fixed = routes::parse(&config.routes, &defaults)
            .map_err(|(name, why)| WebhookConfigError::Route { name, why })?;
        if let Some((name, _)) = fixed.iter().find(|(_, route)| matches!(route.auth, RouteAuth::Missing)) {
            return Err(WebhookConfigError::NoSecret(name.clone()));
        }
        let api = Url::parse(&config.github_api).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let api = api.ok_or_else(|| WebhookConfigError::GitHubApi(config.github_api.clone()))?;
        let github = http::client(&api, None);
        let platform = AdapterKind::Webhook.platform();
        Ok(Self {
            platform,
            limits: RateLimits::new(platform),
            capabilities: capabilities(),
            listen: ListenAddress { host: config.host, port: config.port, port_key: "WEBHOOK_PORT" },
            routes: Arc::new(Routes::new(fixed, defaults, config.subscriptions)),
            counts: Arc::default(),
            rate_limit: config.rate_limit.max(1),
            max_body: config.max_body,
            delivery_wait: config.delivery_wait,
            github: github.map_err(|error| WebhookConfigError::Client(error.without_url().to_string()))?,
            github_api: config.github_api.trim_end_matches('/').to_owned(),
            github_token: config.github_token,
            request_timeout: config.request_timeout,
            started: clock::monotonic(),
        })
    }

    pub fn limits(&self) -> &RateLimits {
        &self.limits
    }

    pub fn platform(&self) -> Platform {
        self.platform
    }

    /// Does not depend on the port, so deliveries stay known after a change of it.
    pub fn account(&self) -> &str {
        "local"
    }

    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }
}

fn capabilities() -> Capabilities {
    Capabilities {
        label: AdapterKind::Webhook.label().to_owned(),
        // Unless a route says otherwise, the answer stays in the transcript.
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
        status_reactions: false,
        threads_are_separate: false,
        files: None,
        async_delivery: false,
        pace: Duration::from_secs(1),
        longest_silence: Some(4 * link::CHECK_INTERVAL),
        hint: "A program sent this event, and its text may come from strangers. No one can answer your questions; \
               your text is sent on unchanged."
            .to_owned(),
    }
}
