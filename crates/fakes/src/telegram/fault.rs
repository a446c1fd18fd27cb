//! What can be made to go wrong, and the rules that say when.
//!
//! Rules are asked when a request arrives: one that is already being served, such as a long poll that
//! waits, is not touched by a new rule.

use std::time::Duration;

use super::refusal::Refusal;
use crate::road::{Effect, Trouble};
use crate::rules::Side;

/// "Processed" means: the message is visible, the update confirmed, before the trouble starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Waits, then carries on as usual.
    Delay(Duration),
    /// Refuses, unprocessed.
    Status { code: u16, description: String, retry_after: Option<u64> },
    /// Resets the connection, unprocessed.
    ResetBefore,
    /// Processed, then the connection is reset without an answer: a lost acknowledgement.
    ResetAfter,
    /// Unprocessed and unanswered until `release_hangs`; then carries on as usual.
    Hang,
    /// Processed, then unanswered until `release_hangs`.
    HangAfter,
    /// A bare 502, unprocessed: somebody in between has answered.
    Page,
    /// Status 200 and rubbish, unprocessed: somebody in between has answered.
    Garbage,
    /// Processed, but only half of the answer arrives before the connection ends.
    HalfBody,
    /// `getUpdates` only: the last delivered updates come again, whatever the offset says. Waits for a
    /// poll that has something to repeat.
    DuplicateUpdates,
    /// `getUpdates` only: the poll hears of nothing new and ends empty, though `getWebhookInfo` counts what waits.
    WithholdUpdates,
}

impl Fault {
    pub fn status(code: u16, description: impl Into<String>) -> Self {
        Self::Status { code, description: description.into(), retry_after: None }
    }

    /// Flood control, in the real service's words.
    #[must_use]
    pub fn too_many(retry_after: u64) -> Self {
        let description = format!("Too Many Requests: retry after {retry_after}");
        Self::Status { code: 429, description, retry_after: Some(retry_after) }
    }

    /// The user has blocked the bot.
    #[must_use]
    pub fn blocked() -> Self {
        Self::status(403, "Forbidden: bot was blocked by the user")
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
            Self::DuplicateUpdates | Self::WithholdUpdates => Effect::Inside,
            Self::Status { code, description, retry_after } => Effect::Refuse(Refusal {
                code: *code,
                description: description.clone(),
                retry_after: *retry_after,
            }),
        }
    }
}

pub type When<'a> = crate::rules::When<'a, Fault, i64>;

impl When<'_> {
    /// Only requests for this chat.
    pub fn chat(self, chat: i64) -> Self {
        self.place(chat)
    }
}
