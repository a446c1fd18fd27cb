//! The relay adapter: platforms whose credentials a connector holds, reached over one outgoing socket. There is one
//! adapter per fronted platform; the first one runs the shared connection. Events are acknowledged after the commit.

mod commit;
mod control;
mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod link;
mod memory;
mod parse;
mod receive;
mod render;
mod send;
mod socket;
mod wire;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use petasos_core::capability::{Dialect, ReplyTo};
use petasos_core::message::Delivery;
use petasos_core::text::Unit;
use petasos_core::{Capabilities, GatewayId, Platform, Secret, Source};
use petasos_relay::{ChannelPolicy, Descriptor, FromGateway, address};

use crate::{RateLimits, websocket};
pub use control::{Credentials, Enroll, Enrolled, Grant, Policy, Provision, Refused, enroll};
pub use error::Error;
use wire::{ConnectionState, RelayConnection};

#[derive(Debug, Clone)]
pub struct Config {
    pub url: String,
    /// In the configured order; empty: any platform of the connector.
    pub identities: Vec<Identity>,
    /// Both or neither.
    pub credentials: Option<Credentials>,
    /// Used if there are no credentials.
    pub provision: Option<Provision>,
    /// Wake address; the connector may have another one, or none.
    pub wake_url: Option<String>,
    pub policies: Vec<Policy>,
    pub terms: ChannelPolicy,
    pub open_timeout: Duration,
    pub answer_timeout: Duration,
    pub ping_every: Duration,
    /// A connection without any frame for this long is lost.
    pub silence: Duration,
    /// Frames waiting for their commit. A frame with a buffer id beyond it is redelivered.
    pub most_waiting: usize,
    /// Replaces the network.
    #[cfg(feature = "simulation")]
    pub dial: Option<Arc<dyn crate::simulated::Dial>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub platform: Platform,
    /// May be empty.
    pub bot_id: String,
}

impl Config {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            identities: Vec::new(),
            credentials: None,
            provision: None,
            wake_url: None,
            policies: Vec::new(),
            terms: ChannelPolicy::default(),
            open_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(30),
            ping_every: Duration::from_secs(30),
            silence: Duration::from_secs(60),
            most_waiting: 256,
            #[cfg(feature = "simulation")]
            dial: None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum RelayConfigError {
    #[error("gateway.relay_url is not an http(s) or ws(s) address")]
    Address,
    #[error("relay TLS setup: {0}")]
    Client(String),
}

/// The adapter of one platform behind the relay.
#[derive(Debug)]
pub struct Relay {
    platform: Platform,
    limits: RateLimits,
    account: String,
    /// Runs the connection; the others follow.
    leads: bool,
    wire: Arc<RelayConnection>,
}

/// Platform hint if the connector sends none.
const HINT: &str = "Your answers are shown in a chat. Keep them short, and use little Markdown.";
/// Minimum message length, whatever a descriptor says.
const LEAST_MESSAGE: usize = 256;

/// One adapter per identity; the first leads.
pub fn adapters(config: Config) -> Result<Vec<Relay>, RelayConfigError> {
    websocket::address(&address::dial(&config.url)).map_err(|_| RelayConfigError::Address)?;
    let mut identities = config.identities.clone();
    if identities.is_empty() {
        identities.push(Identity { platform: Platform::relay(), bot_id: String::new() });
    }
    let wire = Arc::new(RelayConnection::new(config)?);
    let relay = |(at, identity): (usize, Identity)| Relay {
        account: format!("relay:{}", identity.bot_id),
        platform: identity.platform,
        limits: RateLimits::new(identity.platform),
        leads: at == 0,
        wire: wire.clone(),
    };
    Ok(identities.into_iter().enumerate().map(relay).collect())
}

impl Relay {
    pub fn limits(&self) -> &RateLimits {
        &self.limits
    }

    pub fn platform(&self) -> Platform {
        self.platform
    }

    pub fn account(&self) -> &str {
        &self.account
    }

    /// Handles every platform without an adapter of its own.
    pub fn is_for_any(&self) -> bool {
        self.platform == Platform::relay()
    }

    pub fn capabilities(&self) -> Cow<'_, Capabilities> {
        let descriptor = self.wire.descriptor(self.platform);
        Cow::Owned(capabilities(self.platform, descriptor.as_ref(), &self.wire.config))
    }

    /// Once per process; later descriptors replace it.
    pub fn ensure_descriptor(&self) -> Result<(), Error> {
        self.wire.descriptor(self.platform).map(drop).ok_or(Error::NotConnected)
    }

    pub fn learn(&self, source: &Source) {
        self.wire.learn(source);
    }

    /// Requests idling. `true`: granted, and every earlier event is on disk.
    pub async fn go_idle(&self, within: Duration) -> bool {
        self.wire.go_idle(within).await
    }

    /// Closes the connection after a grant and redials after `hold`. `false`: the connection of the grant has ended,
    /// and with it the grant.
    pub async fn sleep(&self, hold: Option<Duration>) -> bool {
        self.wire.sleep(hold).await
    }

    pub async fn wake(&self) {
        self.wire.wake().await;
    }

    /// Forwards a stop to other gateways that may run this session.
    pub fn stopped(&self, session_key: &str) {
        self.wire.notify(FromGateway::Interrupt { session_key: session_key.to_owned(), reason: None });
    }

    pub fn is_up(&self) -> bool {
        *self.wire.connection.borrow() == ConnectionState::Up
    }

    pub fn policies(&self) -> &[Policy] {
        &self.wire.config.policies
    }

    pub fn leads(&self) -> bool {
        self.leads
    }
}

fn capabilities(platform: Platform, descriptor: Option<&Descriptor>, config: &Config) -> Capabilities {
    let unknown = Descriptor::read(&serde_json::Map::new(), platform.as_str(), |_| {});
    let it = descriptor.unwrap_or(&unknown);
    let max = it.max_message_length.max(LEAST_MESSAGE);
    Capabilities {
        label: it.label.clone(),
        delivery: Delivery::Push,
        max_message: max,
        max_edit: max,
        unit: match it.len_unit {
            Unit::Utf16 => Unit::Utf16,
            Unit::Chars => Unit::Chars,
        },
        split_hint: None,
        dialect: match it.markdown_dialect.as_str() {
            "" | "plain" => Dialect::Plain,
            "discord" => Dialect::Discord,
            _markdown => Dialect::Markdown,
        },
        edit: it.supports_edit && it.supports("edit"),
        finalize: false,
        typing: it.supports("typing"),
        reply_to: ReplyTo::First,
        buttons: false,
        // Dropped where reactions are unsupported.
        status_reactions: true,
        threads_are_separate: false,
        files: it.supports("send_media").then_some(send::LARGEST_FILE),
        async_delivery: true,
        pace: Duration::from_secs(1),
        // Health checks detect a dead connection.
        longest_silence: Some(2 * (config.ping_every + config.silence)),
        hint: if it.platform_hint.is_empty() { HINT.to_owned() } else { it.platform_hint.clone() },
    }
}

pub fn credentials(gateway_id: impl Into<GatewayId>, secret: impl Into<String>) -> Credentials {
    Credentials { gateway_id: gateway_id.into(), secret: Secret::new(secret) }
}
