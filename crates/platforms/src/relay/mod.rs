//! The relay: platforms whose credentials are a connector's, reached over one socket that we dial.
//!
//! One adapter for each platform that is fronted. They share a `Wire`; the first one keeps it up (`link`), the others
//! follow it. What comes in is acknowledged after the commit; what goes out is answered, or its fate is unknown.
//! Decisions are in `petasos_relay`: `channel` says when to dial, to idle and to sleep.
//!
//! `control` (credentials and policy over HTTP), `memory` (what a connector has to be told with a message),
//! `socket` and `wire` (the connection), `commit` (what waits for the disk).

mod commit;
mod control;
mod error;
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
use petasos_core::{Capabilities, Platform, Secret, Source};
use petasos_relay::{Descriptor, FromGateway, Terms, address};

use crate::{Limits, websocket};
pub use control::{Credentials, Enroll, Enrolled, Grant, Policy, Provision, Refused, enroll};
pub use error::Error;
use wire::{Standing, Wire};

/// What the owner set.
#[derive(Debug, Clone)]
pub struct Config {
    pub url: String,
    /// In the configured order; empty: whatever the connector has for us.
    pub identities: Vec<Identity>,
    /// Both, or neither.
    pub credentials: Option<Credentials>,
    /// Where credentials come from if there are none.
    pub provision: Option<Provision>,
    /// What the connector calls when something waits for us; it may have heard of another one, or of none.
    pub wake_url: Option<String>,
    /// What the connector is to pass on, for each platform.
    pub policies: Vec<Policy>,
    pub terms: Terms,
    /// How long a connection may take to open.
    pub open_timeout: Duration,
    /// How long the answer to a message may take.
    pub answer_timeout: Duration,
    pub ping_every: Duration,
    /// Without a sign of life for so long, a connection is lost.
    pub silence: Duration,
    /// Frames that may wait for their commit. A numbered one that does not fit is sent again by the connector.
    pub most_waiting: usize,
    /// How a simulation dials.
    #[cfg(feature = "simulation")]
    pub dial: Option<Arc<dyn crate::given::Dial>>,
}

/// A platform and who we are there.
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
            terms: Terms::default(),
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

/// The configuration cannot mean anything.
#[derive(Debug, thiserror::Error)]
pub enum Invalid {
    #[error("the relay's address is not an http(s) or ws(s) one")]
    Address,
    #[error("relay TLS set-up: {0}")]
    Client(String),
}

/// One platform behind the relay.
#[derive(Debug)]
pub struct Relay {
    platform: Platform,
    limits: Limits,
    account: String,
    /// It keeps the connection; the others follow.
    leads: bool,
    wire: Arc<Wire>,
}

/// Said to a model where the connector says nothing.
const HINT: &str = "Your answers are shown in a chat. Keep them short, and use little Markdown.";
/// No message is cut into pieces smaller than this, whatever a descriptor says.
const LEAST_MESSAGE: usize = 256;

/// One for each identity; the first leads.
pub fn adapters(config: Config) -> Result<Vec<Relay>, Invalid> {
    websocket::address(&address::dial(&config.url)).map_err(|_| Invalid::Address)?;
    let mut identities = config.identities.clone();
    if identities.is_empty() {
        identities.push(Identity { platform: Platform::relay(), bot_id: String::new() });
    }
    let wire = Arc::new(Wire::new(config)?);
    let relay = |(at, identity): (usize, Identity)| Relay {
        account: format!("relay:{}", identity.bot_id),
        platform: identity.platform,
        limits: Limits::new(identity.platform),
        leads: at == 0,
        wire: wire.clone(),
    };
    Ok(identities.into_iter().enumerate().map(relay).collect())
}

impl Relay {
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    pub fn platform(&self) -> Platform {
        self.platform
    }

    pub fn account(&self) -> &str {
        &self.account
    }

    /// Whatever has no adapter of its own comes and goes here.
    pub fn is_for_any(&self) -> bool {
        self.platform == Platform::relay()
    }

    /// As the connector described it last.
    pub fn capabilities(&self) -> Cow<'_, Capabilities> {
        let descriptor = self.wire.descriptor(self.platform);
        Cow::Owned(capabilities(self.platform, descriptor.as_ref(), &self.wire.config))
    }

    /// Once per process: what was said last counts until something else is said.
    pub fn described(&self) -> Result<(), Error> {
        self.wire.descriptor(self.platform).map(drop).ok_or(Error::NotConnected)
    }

    /// Senders are the connector's to know.
    pub fn learn(&self, source: &Source) {
        self.wire.learn(source);
    }

    /// Asks to be left alone: whatever comes from now on is kept for the next connection. `true`: granted, and all that
    /// came before is on disk.
    pub async fn go_idle(&self, within: Duration) -> bool {
        self.wire.go_idle(within).await
    }

    /// Lets the connection go after a grant, and dials again after `hold`. `false`: the connection that the grant was
    /// given on is gone, and with it the grant; the next one may bring anything.
    pub async fn sleep(&self, hold: Option<Duration>) -> bool {
        self.wire.sleep(hold).await
    }

    pub async fn wake(&self) {
        self.wire.wake().await;
    }

    /// Somebody wants this conversation to stop: whoever else runs it has to hear of it.
    pub fn stopped(&self, session_key: &str) {
        self.wire.tell(FromGateway::Interrupt { session_key: session_key.to_owned(), reason: None });
    }

    /// The handshake is done, and the connection stands.
    pub fn is_up(&self) -> bool {
        *self.wire.standing.borrow() == Standing::Up
    }

    /// What the connector is asked to pass on.
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
        // Where there are no reactions, they are left out.
        marks: true,
        threads_stand_alone: false,
        files: it.supports("send_media").then_some(send::LARGEST_FILE),
        async_delivery: true,
        pace: Duration::from_secs(1),
        // A connection that stands is asked for a sign of life, and is given up without one.
        longest_silence: Some(2 * (config.ping_every + config.silence)),
        hint: if it.platform_hint.is_empty() { HINT.to_owned() } else { it.platform_hint.clone() },
    }
}

/// A secret that is known, and whose it is.
pub fn credentials(gateway_id: impl Into<String>, secret: impl Into<String>) -> Credentials {
    Credentials { gateway_id: gateway_id.into(), secret: Secret::new(secret) }
}
