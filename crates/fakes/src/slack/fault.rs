//! What can be made to go wrong, and the rules that say when.
//!
//! Rules are asked when a request arrives. Besides the methods there are two places of the socket that a
//! rule can name: `socket` (the upgrade) and `hello` (before the first word).

use std::time::Duration;

use serde_json::{Value, json};

use super::refusal::Refusal;
use crate::road::{Effect, Trouble};
use crate::rules::Side;

/// "Processed" means: the message is visible before the trouble starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Waits, then carries on as usual.
    Delay(Duration),
    /// Status 200 and `ok: false` with these fields, unprocessed.
    Refuse(Value),
    /// 429 with `Retry-After`, unprocessed.
    TooMany(u64),
    /// A bare status without JSON, unprocessed: somebody in between has answered.
    Status(u16),
    /// Resets the connection, unprocessed.
    ResetBefore,
    /// Processed, then the connection is reset without an answer: a lost acknowledgement.
    ResetAfter,
    /// Unprocessed and unanswered until `release_hangs`; then carries on as usual.
    Hang,
    /// Processed, then unanswered until `release_hangs`.
    HangAfter,
    /// Status 200 and rubbish, unprocessed.
    Garbage,
    /// Processed, but only half of the answer arrives before the connection ends.
    HalfBody,
}

impl Fault {
    pub fn error(error: &str) -> Self {
        Self::Refuse(json!({ "ok": false, "error": error }))
    }

    /// The token was not granted what the method needs.
    #[must_use]
    pub fn missing_scope(needed: &str) -> Self {
        Self::Refuse(json!({
            "ok": false, "error": "missing_scope", "needed": needed, "provided": "app_mentions:read",
        }))
    }
}

impl Trouble for Fault {
    type Refusal = Refusal;

    fn effect(&self) -> Effect<Refusal> {
        match self {
            Self::Delay(wait) => Effect::Delay(*wait),
            Self::ResetBefore => Effect::Reset(Side::Before),
            Self::ResetAfter => Effect::Reset(Side::After),
            Self::Hang => Effect::Hang(Side::Before),
            Self::HangAfter => Effect::Hang(Side::After),
            Self::Garbage => Effect::Garbage,
            Self::HalfBody => Effect::Half,
            Self::Status(code) => Effect::Page(*code),
            Self::TooMany(wait) => Effect::Refuse(Refusal::too_many(*wait)),
            Self::Refuse(body) => Effect::Refuse(Refusal::body(body.clone())),
        }
    }
}

pub type When<'a> = crate::rules::When<'a, Fault, String>;

impl When<'_> {
    /// Only requests that name this channel.
    pub fn channel(self, channel: impl Into<String>) -> Self {
        self.place(channel.into())
    }
}
