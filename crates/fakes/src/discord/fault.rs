//! What can be made to go wrong with a request, and the rules that say when.
//!
//! Rules are asked when a request arrives: one that is already being served is not touched by a new rule.

use std::time::Duration;

use super::refusal::Refusal;
use crate::road::{Effect, Trouble};
use crate::rules::Side;

/// "Processed" means: the message is visible before the trouble starts.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// Waits, then carries on as usual.
    Delay(Duration),
    /// Refuses, unprocessed. `retry_after` (seconds) makes it a rate limit.
    Status { status: u16, code: u64, message: String, retry_after: Option<f64> },
    /// Refuses, unprocessed: the limit of all routes together is used up for so many seconds.
    Limited(f64),
    /// Resets the connection, unprocessed.
    ResetBefore,
    /// Processed, then the connection is reset without an answer: a lost acknowledgement.
    ResetAfter,
    /// Unprocessed and unanswered until `release_hangs`; then carries on as usual.
    Hang,
    /// Processed, then unanswered until `release_hangs`.
    HangAfter,
    /// Status 502 and a page of HTML, unprocessed: somebody in between has answered.
    Page,
    /// Status 200 and rubbish, unprocessed.
    Garbage,
    /// Processed, but only half of the answer arrives before the connection ends.
    HalfBody,
}

impl Fault {
    pub fn status(status: u16, code: u64, message: impl Into<String>) -> Self {
        Self::Status { status, code, message: message.into(), retry_after: None }
    }

    /// The rate limit, in the real service's words.
    #[must_use]
    pub fn too_many(retry_after: f64) -> Self {
        let message = "You are being rate limited.".to_owned();
        Self::Status { status: 429, code: 0, message, retry_after: Some(retry_after) }
    }

    /// The bot may not write there.
    #[must_use]
    pub fn missing_access() -> Self {
        Self::status(403, 50001, "Missing Access")
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
            Self::Page => Effect::Page(502),
            Self::Garbage => Effect::Garbage,
            Self::HalfBody => Effect::Half,
            Self::Limited(retry_after) => {
                let refusal = Refusal::new(429, 0, "You are being rate limited.");
                Effect::Refuse(Refusal { retry_after: Some(*retry_after), global: true, ..refusal })
            }
            Self::Status { status, code, message, retry_after } => {
                let refusal = Refusal::new(*status, *code, message.clone());
                Effect::Refuse(Refusal { retry_after: *retry_after, ..refusal })
            }
        }
    }
}

pub type When<'a> = crate::rules::When<'a, Fault, u64>;

impl When<'_> {
    /// Only requests for this channel.
    pub fn channel(self, channel: u64) -> Self {
        self.place(channel)
    }
}
