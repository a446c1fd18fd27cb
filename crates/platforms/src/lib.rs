//! Other people's chat protocols stop here.
//!
//! One folder per platform, the same five files in each: `mod.rs` (configuration, errors, what the
//! platform can do), `receive.rs` (the link), `parse.rs` (wire -> `Inbound`, pure), `render.rs` (text ->
//! parts of the platform's size, pure) and `send.rs`. What they share lies beside them: `http`,
//! `websocket`, `listener`, `called`, `intake`, `markdown`, `outgoing`, `upload`, `download`, `page`.
//!
//! Absent on purpose: the store, reconnecting (the supervisor owns it) and repeating a send (the
//! outbox owns it). One request is one try; the error says what to do next.

mod backfill;
pub mod body_budget;
mod built_in;
mod called;
pub mod discord;
pub mod download;
#[cfg(feature = "simulation")]
pub mod given;
pub mod http;
pub mod intake;
pub mod kind;
pub mod limits;
pub mod listener;
pub mod markdown;
pub mod outgoing;
pub mod page;
pub mod relay;
pub mod seats;
pub mod slack;
pub mod telegram;
mod upload;
pub mod webhook;
mod websocket;

use std::borrow::Cow;
use std::time::Duration;

use petasos_core::directory::Channel;
use petasos_core::link::Lack;
use petasos_core::message::Attachment;
use petasos_core::{Capabilities, Fault, Platform, Reached, Route, Source};

pub use built_in::AdapterKind;
pub use download::Fetched;
pub use intake::{Batch, CatchUp, Health, Intake, NotTaken, Post, Posted, Taken, Unreadable};
pub use kind::Kind;
pub use limits::{Held, Limits};
pub use outgoing::{File, MARK_ROOM, Mark, Opened, Part, Receipt, SendOptions, Show};
pub use petasos_core::Secret;

/// Every platform we speak ourselves, and the relay, over which others join.
#[derive(Debug)]
pub enum Adapter {
    Discord(discord::Discord),
    Telegram(telegram::Telegram),
    Slack(slack::Slack),
    Webhook(webhook::Webhook),
    Relay(relay::Relay),
    #[cfg(feature = "simulation")]
    Given(std::sync::Arc<dyn given::Given>),
}

/// The same of whichever adapter it is.
macro_rules! each {
    ($adapter:expr, $it:ident => $of_it:expr) => {
        match $adapter {
            Self::Discord($it) => $of_it,
            Self::Telegram($it) => $of_it,
            Self::Slack($it) => $of_it,
            Self::Webhook($it) => $of_it,
            Self::Relay($it) => $of_it,
            #[cfg(feature = "simulation")]
            Self::Given($it) => $of_it,
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
            Self::Given(it) => AdapterKind::External(it.platform()),
        }
    }

    pub fn platform(&self) -> Platform {
        each!(self, it => it.platform())
    }

    /// Which account of the platform we are: one of many that the owner may have had. Not a secret.
    pub fn account(&self) -> &str {
        each!(self, it => it.account())
    }

    /// As of now: what is behind the relay may change with every connection.
    pub fn capabilities(&self) -> Cow<'_, Capabilities> {
        match self {
            Self::Discord(it) => Cow::Borrowed(it.capabilities()),
            Self::Telegram(it) => Cow::Borrowed(it.capabilities()),
            Self::Slack(it) => Cow::Borrowed(it.capabilities()),
            Self::Webhook(it) => Cow::Borrowed(it.capabilities()),
            Self::Relay(it) => it.capabilities(),
            #[cfg(feature = "simulation")]
            Self::Given(it) => Cow::Borrowed(it.capabilities()),
        }
    }

    /// Requests that the platform wants later.
    pub fn limits(&self) -> &Limits {
        each!(self, it => it.limits())
    }

    /// The relay, for what only it can do.
    pub fn relay(&self) -> Option<&relay::Relay> {
        match self {
            Self::Relay(it) => Some(it),
            Self::Discord(_) | Self::Telegram(_) | Self::Slack(_) | Self::Webhook(_) => None,
            #[cfg(feature = "simulation")]
            Self::Given(_) => None,
        }
    }

    /// What is lost of the platform until a person sees to it, while the rest goes on. As of now.
    pub fn lacks(&self) -> Vec<Lack> {
        match self {
            Self::Slack(it) => it.lacks(),
            Self::Discord(it) => it.lacks(),
            // They have one account each: it is theirs or lost.
            Self::Telegram(_) | Self::Webhook(_) | Self::Relay(_) => Vec::new(),
            #[cfg(feature = "simulation")]
            Self::Given(_) => Vec::new(),
        }
    }

    /// The name of the permission that stands where the id of a message usually does: whoever holds it may answer.
    /// `None`: it is an id.
    pub fn permission(&self, message: &str) -> Option<&'static str> {
        match self {
            Self::Slack(_) => slack::is_response_url(message).then_some("slack.response_url"),
            Self::Discord(_) | Self::Telegram(_) | Self::Webhook(_) | Self::Relay(_) => None,
            #[cfg(feature = "simulation")]
            Self::Given(_) => None,
        }
    }

    /// Listens until the link breaks or the future is dropped. `cursor` is where to go on, as handed
    /// over with the last committed batch; `None` on the very first start. A connection that cannot be made is the
    /// end at once; one that has stood tries again by itself for a while, and says so (`Health::Degraded`).
    pub async fn receive(
        &self,
        cursor: Option<String>,
        intake: &Intake,
        health: &mut (dyn FnMut(Health) + Send),
    ) -> Error {
        each!(self, it => it.receive(cursor, intake, health).await.into())
    }

    /// Asks the platform who we are; the error says what to do. One try.
    pub async fn check(&self) -> Result<String, Error> {
        each!(self, it => Ok(it.check().await?))
    }

    /// Brings a file that somebody sent; `most` is the largest that is wanted. One try.
    pub async fn fetch(
        &self,
        source: &Source,
        attachment: &Attachment,
        most: u64,
        to: &mut tokio::fs::File,
    ) -> Result<Fetched, download::Error> {
        match self {
            Self::Discord(it) => it.fetch(attachment, most, to).await,
            Self::Telegram(it) => it.fetch(attachment, most, to).await,
            Self::Slack(it) => it.fetch(source, attachment, most, to).await,
            Self::Relay(it) => it.fetch(source, attachment, most, to).await,
            // Deliveries have no attachments.
            Self::Webhook(_) => Err(download::Error::Barred("a webhook".into())),
            #[cfg(feature = "simulation")]
            Self::Given(it) => it.fetch(attachment, most, to).await,
        }
    }

    /// The text in parts of the platform's size, marked up its way and numbered.
    pub fn render(&self, text: &str) -> Vec<Part> {
        each!(self, it => it.render(text))
    }

    /// What to show of an answer that is still growing: plain, cut to one message, `cursor` at its end.
    pub fn preview(&self, text: &str, cursor: &str) -> String {
        each!(self, it => it.preview(text, cursor))
    }

    /// Fails while the platform has not said yet what it takes: a text that was sent in part would be split otherwise.
    pub fn described(&self) -> Result<(), Error> {
        match self {
            Self::Relay(it) => Ok(it.described()?),
            Self::Discord(_) | Self::Telegram(_) | Self::Slack(_) | Self::Webhook(_) => Ok(()),
            #[cfg(feature = "simulation")]
            Self::Given(_) => Ok(()),
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
                Self::Given(it) => Ok(it.send(to, part, options, None).await?),
            }
        };
        self.limited(to, request).await
    }

    /// The same, under a key of the message's own: where the platform knows keys, sending twice with one key
    /// makes one message. `key_memory` says for how long.
    pub async fn send_once(
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
                Self::Given(it) => Ok(it.send(to, part, options, Some(key)).await?),
            }
        };
        self.limited(to, request).await
    }

    /// How long the platform remembers the keys of `send_once` there; `None`: it knows none. May ask the platform.
    pub async fn key_memory(&self, to: &Route) -> Result<Option<Duration>, Error> {
        let request = async {
            match self {
                Self::Discord(it) => Ok(it.key_memory(to).await?),
                Self::Relay(it) => Ok(it.key_memory()),
                Self::Telegram(_) | Self::Slack(_) | Self::Webhook(_) => Ok(None),
                #[cfg(feature = "simulation")]
                Self::Given(it) => Ok(it.key_memory()),
            }
        };
        self.limited(to, request).await
    }

    /// Replaces a message of ours. One that already reads so is a success.
    pub async fn edit(&self, to: &Route, message_id: &str, part: &Part) -> Result<Receipt, Error> {
        let request = async { each!(self, it => Ok(it.edit(to, message_id, part).await?)) };
        self.limited(to, request).await
    }

    /// Whether a growing answer can be shown there without being a message.
    pub fn drafts(&self, to: &Route) -> bool {
        match self {
            Self::Telegram(it) => it.drafts(to),
            Self::Discord(_) | Self::Slack(_) | Self::Webhook(_) | Self::Relay(_) => false,
            #[cfg(feature = "simulation")]
            Self::Given(_) => false,
        }
    }

    /// Shows a growing answer that is no message yet; the next one with the same number takes its place, and so
    /// does the message that follows. Nothing but that message is kept.
    pub async fn draft(&self, to: &Route, number: u32, text: &str) -> Result<(), Error> {
        let request = async {
            match self {
                Self::Telegram(it) => Ok(it.draft(to, number, text).await?),
                Self::Discord(_) | Self::Slack(_) | Self::Webhook(_) | Self::Relay(_) => Ok(()),
                #[cfg(feature = "simulation")]
                Self::Given(_) => Ok(()),
            }
        };
        self.limited(to, request).await
    }

    /// The name of the topic that a way leads to, where topics can be asked for by name and this is one.
    pub fn topic_name(&self, to: &Route) -> Option<String> {
        match self {
            Self::Telegram(it) => it.topic_name(to),
            Self::Discord(_) | Self::Slack(_) | Self::Webhook(_) | Self::Relay(_) => None,
            #[cfg(feature = "simulation")]
            Self::Given(_) => None,
        }
    }

    /// Makes a topic; its id. `None`: the platform has no topics. Whoever wants the same one again keeps its id.
    pub async fn make_topic(&self, to: &Route, name: &str) -> Result<Option<String>, Error> {
        let request = async {
            match self {
                Self::Telegram(it) => Ok(Some(it.make_topic(&to.chat_id, name).await?)),
                Self::Discord(_) | Self::Slack(_) | Self::Webhook(_) | Self::Relay(_) => Ok(None),
                #[cfg(feature = "simulation")]
                Self::Given(_) => Ok(None),
            }
        };
        self.limited(to, request).await
    }

    /// Removes a message of ours. One that is gone already is a success.
    pub async fn delete(&self, to: &Route, message_id: &str) -> Result<(), Error> {
        let request = async { each!(self, it => Ok(it.delete(to, message_id).await?)) };
        self.limited(to, request).await
    }

    pub async fn typing(&self, to: &Route) -> Result<(), Error> {
        let request = async { each!(self, it => Ok(it.typing(to).await?)) };
        self.limited_mark(to, "typing", request).await
    }

    /// Marks the message that the route answers. What is not (or no longer) to be marked is a success.
    pub async fn react(&self, to: &Route, mark: Mark) -> Result<(), Error> {
        let request = async {
            match self {
                Self::Discord(it) => Ok(it.react(to, mark).await?),
                Self::Telegram(it) => Ok(it.react(to, mark).await?),
                Self::Slack(it) => Ok(it.react(to, mark).await?),
                // No message was received there.
                Self::Webhook(_) => Ok(()),
                Self::Relay(it) => Ok(it.react(to, mark).await?),
                #[cfg(feature = "simulation")]
                Self::Given(_) => Ok(()),
            }
        };
        self.limited_mark(to, limits::REACT, request).await
    }

    /// The channels we could write to, where the platform lists them; `None`: it does not.
    pub async fn channels(&self) -> Result<Option<Vec<Channel>>, Error> {
        match self {
            Self::Discord(it) => Ok(Some(it.channels().await?)),
            Self::Telegram(_) | Self::Webhook(_) | Self::Relay(_) => Ok(None),
            Self::Slack(it) => Ok(Some(it.channels().await?)),
            #[cfg(feature = "simulation")]
            Self::Given(_) => Ok(None),
        }
    }

    /// Tells the client of whoever pressed a button that we have it. `dedup` is that of the inbound event;
    /// anything but a pressed button is left alone.
    pub async fn answer_callback(&self, dedup: &str, notice: Option<&str>) -> Result<(), Error> {
        match self {
            Self::Discord(it) => Ok(it.answer_callback(dedup, notice).await?),
            Self::Telegram(it) => Ok(it.answer_callback(dedup, notice).await?),
            Self::Slack(it) => Ok(it.answer_callback(dedup, notice).await?),
            Self::Webhook(it) => Ok(it.answer_callback(dedup, notice).await?),
            // A press that comes over the relay was answered at its edge.
            Self::Relay(_) => Ok(()),
            #[cfg(feature = "simulation")]
            Self::Given(_) => Ok(()),
        }
    }
}

/// What went wrong on a platform, and what that means for us. Never shows a secret or message text.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub enum Error {
    Discord(#[from] discord::Error),
    Telegram(#[from] telegram::Error),
    Slack(#[from] slack::Error),
    Webhook(#[from] webhook::Error),
    Relay(#[from] relay::Error),
    Held(#[from] Held),
    #[cfg(feature = "simulation")]
    Given(#[from] given::Error),
}

impl Error {
    /// Nothing was sent: an earlier answer of the platform forbids it.
    pub fn is_held(&self) -> bool {
        match self {
            Self::Held(_) => true,
            Self::Discord(it) => it.is_held(),
            Self::Telegram(it) => it.is_held(),
            Self::Slack(it) => it.is_held(),
            Self::Webhook(_) | Self::Relay(_) => false,
            #[cfg(feature = "simulation")]
            Self::Given(_) => false,
        }
    }

    pub fn fault(&self) -> Fault {
        match self {
            Self::Held(held) => Fault::Later { after: Some(held.after) },
            Self::Discord(it) => it.fault(),
            Self::Telegram(it) => it.fault(),
            Self::Slack(it) => it.fault(),
            Self::Webhook(it) => it.fault(),
            Self::Relay(it) => it.fault(),
            #[cfg(feature = "simulation")]
            Self::Given(it) => it.fault,
        }
    }

    pub fn reached(&self) -> Reached {
        match self {
            Self::Held(_) => Reached::No,
            Self::Discord(it) => it.reached(),
            Self::Telegram(it) => it.reached(),
            Self::Slack(it) => it.reached(),
            Self::Webhook(it) => it.reached(),
            Self::Relay(it) => it.reached(),
            #[cfg(feature = "simulation")]
            Self::Given(it) => it.reached,
        }
    }

    /// A stable name for status files and alerts: `telegram_invalid_token`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Held(_) => "rate_limited",
            Self::Discord(it) => it.code(),
            Self::Telegram(it) => it.code(),
            Self::Slack(it) => it.code(),
            Self::Webhook(it) => it.code(),
            Self::Relay(it) => it.code(),
            #[cfg(feature = "simulation")]
            Self::Given(it) => it.code,
        }
    }

    pub fn kind(&self) -> Kind {
        match self {
            Self::Held(_) => Kind::RateLimited,
            Self::Discord(it) => it.kind(),
            Self::Telegram(it) => it.kind(),
            Self::Slack(it) => it.kind(),
            Self::Webhook(it) => it.kind(),
            Self::Relay(it) => it.kind(),
            #[cfg(feature = "simulation")]
            Self::Given(it) => it.kind,
        }
    }
}
