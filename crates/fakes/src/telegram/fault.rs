//! The faults of Telegram requests.
//!
//! Rules apply on arrival: a long poll that is already waiting does not meet a new rule.

use super::error::ServiceError;
use crate::faults::rules::RuleBuilder;

pub type Fault = crate::faults::Fault<ServiceError, UpdateFault>;

/// Faults of `getUpdates`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateFault {
    /// Delivers the last updates again, whatever the offset. Waits for a poll that has something to repeat.
    Duplicate,
    /// Ends the poll empty, though `getWebhookInfo` counts the pending updates.
    Withhold,
}

impl Fault {
    pub fn status(code: u16, description: impl Into<String>) -> Self {
        Self::Refuse(ServiceError { code, description: description.into(), retry_after: None })
    }

    /// Rate limit, in the real service's words.
    #[must_use]
    pub fn too_many(retry_after: u64) -> Self {
        let description = format!("Too Many Requests: retry after {retry_after}");
        Self::Refuse(ServiceError { code: 429, description, retry_after: Some(retry_after) })
    }

    /// The user has blocked the bot.
    #[must_use]
    pub fn blocked() -> Self {
        Self::status(403, "Forbidden: bot was blocked by the user")
    }

    #[must_use]
    pub fn duplicate_updates() -> Self {
        Self::Special(UpdateFault::Duplicate)
    }

    #[must_use]
    pub fn withhold_updates() -> Self {
        Self::Special(UpdateFault::Withhold)
    }
}

impl RuleBuilder<'_, Fault, i64> {
    pub fn chat(self, chat: i64) -> Self {
        self.in_chat(chat)
    }
}
