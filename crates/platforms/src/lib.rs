//! Other people's chat protocols stop here.
//!
//! One folder per platform, the same five files in each: `mod.rs` (configuration, errors, what the
//! platform can do), `receive.rs` (the link), `parse.rs` (wire -> `Inbound`, pure), `render.rs` (text ->
//! parts of the platform's size, pure) and `send.rs`. What they share lies beside them: `http`,
//! `intake`, `markdown`, `outgoing`.
//!
//! Absent on purpose: the store, reconnecting (the supervisor owns it) and repeating a send (the
//! outbox owns it). One request is one try; the error says what to do next.

pub mod http;
pub mod intake;
pub mod kind;
pub mod markdown;
pub mod outgoing;
pub mod telegram;

use petasos_core::{Capabilities, Fault, Platform, Reached, Route};

pub use intake::{Batch, Health, Intake, NotTaken, Taken};
pub use kind::Kind;
pub use outgoing::{MARK_ROOM, Part, Receipt, SendOptions};
pub use petasos_core::Secret;

/// Every platform we speak ourselves; others join over the relay wire.
#[derive(Debug)]
pub enum Adapter {
    Telegram(telegram::Telegram),
}

impl Adapter {
    pub fn platform(&self) -> Platform {
        match self {
            Self::Telegram(it) => it.platform(),
        }
    }

    /// Which account of the platform we are: one of many that the owner may have had. Not a secret.
    pub fn account(&self) -> &str {
        match self {
            Self::Telegram(it) => it.account(),
        }
    }

    pub fn capabilities(&self) -> &Capabilities {
        match self {
            Self::Telegram(it) => it.capabilities(),
        }
    }

    /// Listens until the link breaks or the future is dropped. `cursor` is where to go on, as handed
    /// over with the last committed batch; `None` on the very first start.
    pub async fn receive(
        &self,
        cursor: Option<String>,
        intake: &Intake,
        health: &mut (dyn FnMut(Health) + Send),
    ) -> Error {
        match self {
            Self::Telegram(it) => it.receive(cursor, intake, health).await.into(),
        }
    }

    /// The text in parts of the platform's size, marked up its way and numbered.
    pub fn render(&self, text: &str) -> Vec<Part> {
        match self {
            Self::Telegram(it) => it.render(text),
        }
    }

    /// What to show of an answer that is still growing: plain, cut to one message, `cursor` at its end.
    pub fn preview(&self, text: &str, cursor: &str) -> String {
        match self {
            Self::Telegram(it) => it.preview(text, cursor),
        }
    }

    pub async fn send(&self, to: &Route, part: &Part, options: &SendOptions<'_>) -> Result<Receipt, Error> {
        match self {
            Self::Telegram(it) => Ok(it.send(to, part, options).await?),
        }
    }

    /// Replaces a message of ours. One that already reads so is a success.
    pub async fn edit(&self, to: &Route, message_id: &str, part: &Part) -> Result<Receipt, Error> {
        match self {
            Self::Telegram(it) => Ok(it.edit(to, message_id, part).await?),
        }
    }

    /// Removes a message of ours. One that is gone already is a success.
    pub async fn delete(&self, to: &Route, message_id: &str) -> Result<(), Error> {
        match self {
            Self::Telegram(it) => Ok(it.delete(to, message_id).await?),
        }
    }

    pub async fn typing(&self, to: &Route) -> Result<(), Error> {
        match self {
            Self::Telegram(it) => Ok(it.typing(to).await?),
        }
    }

    /// Tells the client of whoever pressed a button that we have it. `dedup` is that of the inbound event;
    /// anything but a pressed button is left alone.
    pub async fn answer_callback(&self, dedup: &str, notice: Option<&str>) -> Result<(), Error> {
        match self {
            Self::Telegram(it) => Ok(it.answer_callback(dedup, notice).await?),
        }
    }
}

/// What went wrong on a platform, and what that means for us. Never shows a secret or message text.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub enum Error {
    Telegram(#[from] telegram::Error),
}

impl Error {
    pub fn fault(&self) -> Fault {
        match self {
            Self::Telegram(it) => it.fault(),
        }
    }

    pub fn reached(&self) -> Reached {
        match self {
            Self::Telegram(it) => it.reached(),
        }
    }

    /// A stable name for status files and alerts: `telegram_invalid_token`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Telegram(it) => it.code(),
        }
    }

    pub fn kind(&self) -> Kind {
        match self {
            Self::Telegram(it) => it.kind(),
        }
    }
}
