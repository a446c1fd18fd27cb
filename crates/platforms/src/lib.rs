//! Platform adapters.
//!
//! One folder per platform: `mod.rs` (configuration, capabilities), `error.rs`, parsing (wire -> `Inbound`,
//! pure), rendering (text -> message parts, pure), sending, and the link. Shared code is in `net`,
//! `listener`, `inbound`, `backfill`, `markdown` and `outgoing`.
//!
//! The supervisor owns reconnecting and the outbox owns retries of a send: one request is one attempt, and
//! its error says what to do next.

mod adapter_kind;
mod backfill;
pub mod discord;
pub mod inbound;
pub mod kind;
pub mod listener;
pub mod markdown;
mod net;
pub mod outgoing;
mod rate_limits;
pub mod relay;
#[cfg(feature = "simulation")]
pub mod simulated;
pub mod slack;
pub mod telegram;
pub mod webhook;

use std::borrow::Cow;
use std::time::Duration;

use petasos_core::directory::Channel;
use petasos_core::link::PartialOutage;
use petasos_core::message::Attachment;
use petasos_core::{Capabilities, Fault, Platform, Reached, Route, Source};

pub use adapter_kind::AdapterKind;
pub use inbound::{
    BackfillLimits, CommitError, CommitResult, InboundBatch, InboundSink, LinkHealth, Post, PostOutcome,
    Unreadable,
};
pub use kind::Kind;
pub use listener::body_budget;
pub use net::download::{self, Fetched};
pub use net::{http, page};
pub(crate) use net::{upload, websocket};
pub use outgoing::{
    MediaKind, OpenFile, OutgoingFile, PREFIX_RESERVE, Part, Receipt, SendOptions, StatusReaction,
};
pub use petasos_core::Secret;
pub use rate_limits::{Penalized, RateLimits};

/// The built-in platforms, and the relay for all others.
#[derive(Debug)]
pub enum Adapter {
    Discord(discord::Discord),
    Telegram(telegram::Telegram),
    Slack(slack::Slack),
    Webhook(webhook::Webhook),
    Relay(relay::Relay),
    #[cfg(feature = "simulation")]
    Simulated(std::sync::Arc<dyn simulated::SimulatedAdapter>),
}

/// Calls the same method of each adapter.
macro_rules! each {
    ($adapter:expr, $it:ident => $of_it:expr) => {
        match $adapter {
            Self::Discord($it) => $of_it,
            Self::Telegram($it) => $of_it,
            Self::Slack($it) => $of_it,
            Self::Webhook($it) => $of_it,
            Self::Relay($it) => $of_it,
            #[cfg(feature = "simulation")]
            Self::Simulated($it) => $of_it,
        }
    };
}

impl Adapter {
    pub fn kind(&self) -> AdapterKind {
        match self {
            Self::Discord(_) => AdapterKind::Discord,
            Self::Telegram(_) => AdapterKind::Telegram,
            Self::Slack(_) => AdapterKind::Slack,
            Self::Webhook(_) => AdapterKind::Webhook,
            Self::Relay(it) => AdapterKind::External(it.platform()),
            #[cfg(feature = "simulation")]
            Self::Simulated(it) => AdapterKind::External(it.platform()),
        }
    }

    pub fn platform(&self) -> Platform {
        each!(self, it => it.platform())
    }

    /// The account at the platform. Not a secret.
    pub fn account(&self) -> &str {
        each!(self, it => it.account())
    }

    /// Behind a relay they may change with every connection.
    pub fn capabilities(&self) -> Cow<'_, Capabilities> {
        match self {
            Self::Discord(it) => Cow::Borrowed(it.capabilities()),
            Self::Telegram(it) => Cow::Borrowed(it.capabilities()),
            Self::Slack(it) => Cow::Borrowed(it.capabilities()),
            Self::Webhook(it) => Cow::Borrowed(it.capabilities()),
            Self::Relay(it) => it.capabilities(),
            #[cfg(feature = "simulation")]
            Self::Simulated(it) => Cow::Borrowed(it.capabilities()),
        }
    }

    pub fn limits(&self) -> &RateLimits {
        each!(self, it => it.limits())
    }

    /// The relay adapter, for its own operations.
    pub fn relay(&self) -> Option<&relay::Relay> {
        match self {
            Self::Relay(it) => Some(it),
            Self::Discord(_) | Self::Telegram(_) | Self::Slack(_) | Self::Webhook(_) => None,
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => None,
        }
    }

    /// Parts of the platform that do not work until a person acts, while the rest does.
    pub fn partial_outages(&self) -> Vec<PartialOutage> {
        match self {
            Self::Slack(it) => it.partial_outages(),
            Self::Discord(it) => it.partial_outages(),
            // One account each: either all of it works or the link is down.
            Self::Telegram(_) | Self::Webhook(_) | Self::Relay(_) => Vec::new(),
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => Vec::new(),
        }
    }

    /// The kind of credential if `message` is one instead of a message id.
    pub fn credential_kind(&self, message: &str) -> Option<&'static str> {
        match self {
            Self::Slack(_) => slack::is_response_url(message).then_some("slack.response_url"),
            Self::Discord(_) | Self::Telegram(_) | Self::Webhook(_) | Self::Relay(_) => None,
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => None,
        }
    }

    /// Runs the link until it breaks or the future is dropped. `cursor` is that of the last committed batch,
    /// `None` at the very first start. Returns at once if no connection can be made; a connection that was
    /// established is retried for a while and reported as `LinkHealth::Degraded`.
    pub async fn receive(
        &self,
        cursor: Option<String>,
        sink: &InboundSink,
        health: &mut (dyn FnMut(LinkHealth) + Send),
    ) -> Error {
        each!(self, it => it.receive(cursor, sink, health).await.into())
    }

    /// Verifies the credentials and returns the account's name. One attempt.
    pub async fn check(&self) -> Result<String, Error> {
        each!(self, it => Ok(it.check().await?))
    }

    /// Downloads an attachment of at most `max_size` bytes. One attempt.
    pub async fn fetch(
        &self,
        source: &Source,
        attachment: &Attachment,
        max_size: u64,
        to: &mut tokio::fs::File,
    ) -> Result<Fetched, download::Error> {
        match self {
            Self::Discord(it) => it.fetch(attachment, max_size, to).await,
            Self::Telegram(it) => it.fetch(attachment, max_size, to).await,
            Self::Slack(it) => it.fetch(source, attachment, max_size, to).await,
            Self::Relay(it) => it.fetch(source, attachment, max_size, to).await,
            // Webhook deliveries have no attachments.
            Self::Webhook(_) => Err(download::Error::Blocked("a webhook".into())),
            #[cfg(feature = "simulation")]
            Self::Simulated(it) => it.fetch(attachment, max_size, to).await,
        }
    }

    /// Numbered message parts in the platform's markup.
    pub fn render(&self, text: &str) -> Vec<Part> {
        each!(self, it => it.render(text))
    }

    /// Preview of a streamed answer: plain, one message long, ending with `cursor`.
    pub fn preview(&self, text: &str, cursor: &str) -> String {
        each!(self, it => it.preview(text, cursor))
    }

    /// Errors until the connector's descriptor is known: without it, a partly sent text would be split
    /// differently.
    pub fn ensure_descriptor(&self) -> Result<(), Error> {
        match self {
            Self::Relay(it) => Ok(it.ensure_descriptor()?),
            Self::Discord(_) | Self::Telegram(_) | Self::Slack(_) | Self::Webhook(_) => Ok(()),
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => Ok(()),
        }
    }

    pub async fn send(&self, to: &Route, part: &Part, options: &SendOptions<'_>) -> Result<Receipt, Error> {
        let request = async {
            match self {
                Self::Discord(it) => Ok(it.send(to, part, options, None).await?),
                Self::Telegram(it) => Ok(it.send(to, part, options).await?),
                Self::Slack(it) => Ok(it.send(to, part, options).await?),
                Self::Webhook(it) => Ok(it.send(to, part, options).await?),
                Self::Relay(it) => Ok(it.send(to, part, options, None).await?),
                #[cfg(feature = "simulation")]
                Self::Simulated(it) => Ok(it.send(to, part, options, None).await?),
            }
        };
        self.limited(to, request).await
    }

    /// Sends with an idempotency key: within `idempotency_window`, the same key creates one message.
    pub async fn send_idempotent(
        &self,
        to: &Route,
        part: &Part,
        options: &SendOptions<'_>,
        key: &str,
    ) -> Result<Receipt, Error> {
        let request = async {
            match self {
                Self::Discord(it) => Ok(it.send(to, part, options, Some(key)).await?),
                Self::Telegram(it) => Ok(it.send(to, part, options).await?),
                Self::Slack(it) => Ok(it.send(to, part, options).await?),
                Self::Webhook(it) => Ok(it.send(to, part, options).await?),
                Self::Relay(it) => Ok(it.send(to, part, options, Some(key)).await?),
                #[cfg(feature = "simulation")]
                Self::Simulated(it) => Ok(it.send(to, part, options, Some(key)).await?),
            }
        };
        self.limited(to, request).await
    }

    /// How long the platform remembers idempotency keys; `None` if it has none. May send a request.
    pub async fn idempotency_window(&self, to: &Route) -> Result<Option<Duration>, Error> {
        let request = async {
            match self {
                Self::Discord(it) => Ok(it.idempotency_window(to).await?),
                Self::Relay(it) => Ok(it.idempotency_window()),
                Self::Telegram(_) | Self::Slack(_) | Self::Webhook(_) => Ok(None),
                #[cfg(feature = "simulation")]
                Self::Simulated(it) => Ok(it.idempotency_window()),
            }
        };
        self.limited(to, request).await
    }

    /// Succeeds if the message already has this content.
    pub async fn edit(&self, to: &Route, message_id: &str, part: &Part) -> Result<Receipt, Error> {
        let request = async { each!(self, it => Ok(it.edit(to, message_id, part).await?)) };
        self.limited(to, request).await
    }

    /// Whether a streamed answer can be shown there as a draft.
    pub fn supports_drafts(&self, to: &Route) -> bool {
        match self {
            Self::Telegram(it) => it.supports_drafts(to),
            Self::Discord(_) | Self::Slack(_) | Self::Webhook(_) | Self::Relay(_) => false,
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => false,
        }
    }

    /// Shows a draft of a streamed answer. The next draft with the same number replaces it, and so does the
    /// final message.
    pub async fn draft(&self, to: &Route, number: u32, text: &str) -> Result<(), Error> {
        let request = async {
            match self {
                Self::Telegram(it) => Ok(it.draft(to, number, text).await?),
                Self::Discord(_) | Self::Slack(_) | Self::Webhook(_) | Self::Relay(_) => Ok(()),
                #[cfg(feature = "simulation")]
                Self::Simulated(_) => Ok(()),
            }
        };
        self.limited(to, request).await
    }

    /// The topic name in a route, if the platform has named topics and the route names one.
    pub fn topic_name(&self, to: &Route) -> Option<String> {
        match self {
            Self::Telegram(it) => it.topic_name(to),
            Self::Discord(_) | Self::Slack(_) | Self::Webhook(_) | Self::Relay(_) => None,
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => None,
        }
    }

    /// Creates a topic and returns its id; `None` if the platform has no topics. Not idempotent: the caller
    /// stores the id.
    pub async fn create_topic(&self, to: &Route, name: &str) -> Result<Option<String>, Error> {
        let request = async {
            match self {
                Self::Telegram(it) => Ok(Some(it.create_topic(&to.chat_id, name).await?)),
                Self::Discord(_) | Self::Slack(_) | Self::Webhook(_) | Self::Relay(_) => Ok(None),
                #[cfg(feature = "simulation")]
                Self::Simulated(_) => Ok(None),
            }
        };
        self.limited(to, request).await
    }

    /// Succeeds if the message is already gone.
    pub async fn delete(&self, to: &Route, message_id: &str) -> Result<(), Error> {
        let request = async { each!(self, it => Ok(it.delete(to, message_id).await?)) };
        self.limited(to, request).await
    }

    pub async fn typing(&self, to: &Route) -> Result<(), Error> {
        let request = async { each!(self, it => Ok(it.typing(to).await?)) };
        self.limited_mark(to, "typing", request).await
    }

    /// Sets the status reaction of the message that the route answers. Succeeds if that message can no longer
    /// have one.
    pub async fn react(&self, to: &Route, mark: StatusReaction) -> Result<(), Error> {
        let request = async {
            match self {
                Self::Discord(it) => Ok(it.react(to, mark).await?),
                Self::Telegram(it) => Ok(it.react(to, mark).await?),
                Self::Slack(it) => Ok(it.react(to, mark).await?),
                // There is no message to react to.
                Self::Webhook(_) => Ok(()),
                Self::Relay(it) => Ok(it.react(to, mark).await?),
                #[cfg(feature = "simulation")]
                Self::Simulated(_) => Ok(()),
            }
        };
        self.limited_mark(to, rate_limits::REACT, request).await
    }

    /// Channels that the bot could write to; `None` if the platform does not list them.
    pub async fn channels(&self) -> Result<Option<Vec<Channel>>, Error> {
        match self {
            Self::Discord(it) => Ok(Some(it.channels().await?)),
            Self::Telegram(_) | Self::Webhook(_) | Self::Relay(_) => Ok(None),
            Self::Slack(it) => Ok(Some(it.channels().await?)),
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => Ok(None),
        }
    }

    /// Acknowledges a pressed button. `dedup` is the key of the inbound event; other events are ignored.
    pub async fn answer_callback(&self, dedup: &str, notice: Option<&str>) -> Result<(), Error> {
        match self {
            Self::Discord(it) => Ok(it.answer_callback(dedup, notice).await?),
            Self::Telegram(it) => Ok(it.answer_callback(dedup, notice).await?),
            Self::Slack(it) => Ok(it.answer_callback(dedup, notice).await?),
            Self::Webhook(it) => Ok(it.answer_callback(dedup, notice).await?),
            // The connector has acknowledged it.
            Self::Relay(_) => Ok(()),
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => Ok(()),
        }
    }
}

/// Never shows a secret or message text.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub enum Error {
    Discord(#[from] discord::Error),
    Telegram(#[from] telegram::Error),
    Slack(#[from] slack::Error),
    Webhook(#[from] webhook::Error),
    Relay(#[from] relay::Error),
    Penalized(#[from] Penalized),
    #[cfg(feature = "simulation")]
    Simulated(#[from] simulated::Error),
}

impl Error {
    /// Nothing was sent: a penalty is in force.
    pub fn is_penalized(&self) -> bool {
        match self {
            Self::Penalized(_) => true,
            Self::Discord(it) => it.is_penalized(),
            Self::Telegram(it) => it.is_penalized(),
            Self::Slack(it) => it.is_penalized(),
            Self::Webhook(_) | Self::Relay(_) => false,
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => false,
        }
    }

    pub fn fault(&self) -> Fault {
        match self {
            Self::Penalized(held) => Fault::Later { after: Some(held.after) },
            Self::Discord(it) => it.fault(),
            Self::Telegram(it) => it.fault(),
            Self::Slack(it) => it.fault(),
            Self::Webhook(it) => it.fault(),
            Self::Relay(it) => it.fault(),
            #[cfg(feature = "simulation")]
            Self::Simulated(it) => it.fault,
        }
    }

    pub fn reached(&self) -> Reached {
        match self {
            Self::Penalized(_) => Reached::No,
            Self::Discord(it) => it.reached(),
            Self::Telegram(it) => it.reached(),
            Self::Slack(it) => it.reached(),
            Self::Webhook(it) => it.reached(),
            Self::Relay(it) => it.reached(),
            #[cfg(feature = "simulation")]
            Self::Simulated(it) => it.reached,
        }
    }

    /// Stable name for status files and alerts: `telegram_invalid_token`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Penalized(_) => "rate_limited",
            Self::Discord(it) => it.code(),
            Self::Telegram(it) => it.code(),
            Self::Slack(it) => it.code(),
            Self::Webhook(it) => it.code(),
            Self::Relay(it) => it.code(),
            #[cfg(feature = "simulation")]
            Self::Simulated(it) => it.code,
        }
    }

    pub fn kind(&self) -> Kind {
        match self {
            Self::Penalized(_) => Kind::RateLimited,
            Self::Discord(it) => it.kind(),
            Self::Telegram(it) => it.kind(),
            Self::Slack(it) => it.kind(),
            Self::Webhook(it) => it.kind(),
            Self::Relay(it) => it.kind(),
            #[cfg(feature = "simulation")]
            Self::Simulated(it) => it.kind,
        }
    }
}
