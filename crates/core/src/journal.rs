//! The writes of decisions, as data.
//!
//! The store applies the writes of one decision in order and in one transaction. No write depends on the result of another.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::compaction::Compaction;
use crate::ids::{InboxId, OutboxId, SessionId, SessionKey, TurnId};
use crate::message::Platform;
use crate::outbox::{Draft, OldPreview};
use crate::rate_limit::Penalty;
use crate::time::Millis;
use crate::transcript::{Message, UsageRecord};
use crate::turn::Turn;

/// The final outcome of an accepted message and of its turn, always reported to the author.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageOutcome {
    Answered,
    /// Answered with a notice only (queue full, failed turn, unknown command).
    Refused,
    /// Answered in the turn of another message.
    Merged,
    /// Stopped by its author (`/stop`, `/new`, a newer message in interrupt mode).
    Cancelled,
    /// Given up after repeated crashes; a dead letter.
    Dead,
}

impl MessageOutcome {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::Merged => "merged",
            Self::Cancelled => "cancelled",
            Self::Dead => "dead",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        [Self::Answered, Self::Refused, Self::Merged, Self::Cancelled, Self::Dead]
            .into_iter()
            .find(|outcome| outcome.as_str() == name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Insert a turn or replace its state, from which `recover` starts.
    PutTurn(Turn),
    /// Store the outcome of a turn, which ends its recovery.
    EndTurn {
        turn: TurnId,
        outcome: MessageOutcome,
        at: Millis,
    },
    ClaimInbox {
        inbox: Vec<InboxId>,
        turn: TurnId,
    },
    SettleInbox {
        inbox: Vec<InboxId>,
        outcome: MessageOutcome,
        at: Millis,
    },
    /// Append a row to a transcript and its full-text index.
    Append {
        session: SessionId,
        message: Message,
    },
    /// Add the usage of a model call to the counters of a session.
    AddUsage {
        key: SessionKey,
        session: SessionId,
        usage: UsageRecord,
    },
    /// Hide rows of a transcript from the model behind a summary.
    Compact {
        key: SessionKey,
        session: SessionId,
        compaction: Compaction,
        at: Millis,
    },
    /// Enqueue a message. A streaming item of the same `(turn, step)` is completed and becomes due; otherwise a new item
    /// is inserted.
    Enqueue(Draft),
    PreviewShown {
        turn: TurnId,
        step: u32,
        message: String,
    },
    /// The preview is certainly not visible (never sent, or deleted by a person): the answer is sent as a new message.
    DropPreview {
        turn: TurnId,
        step: u32,
    },
    /// The preview cannot be edited: send the item as a new message, marked if the preview may still be visible.
    SendAsNew {
        item: OutboxId,
        old_preview: OldPreview,
    },
    /// The step ends without an answer: complete its preview with this text, or delete it if the text is empty. Without a
    /// streaming item this does nothing.
    ClosePreview {
        turn: TurnId,
        step: u32,
        text: String,
    },
    /// The next part is about to be sent.
    Sending {
        item: OutboxId,
    },
    /// A part was acknowledged under this id; more follow, in `thread` if the part opened one.
    PartSent {
        item: OutboxId,
        message: String,
        thread: Option<String>,
    },
    /// The last part was acknowledged (`None`: no id from the platform, or nothing left to send).
    Delivered {
        item: OutboxId,
        message: Option<String>,
        at: Millis,
    },
    /// Retry later. `doubtful`: the part may be visible already.
    Postpone {
        item: OutboxId,
        not_before: Millis,
        doubtful: bool,
        error: String,
    },
    /// The platform cannot report the outcome under the idempotency key of the part now due: use another key.
    RetireKey {
        item: OutboxId,
    },
    /// Give the item up and list it. `doubtful`: a manual retry is marked as a possible duplicate.
    DeadLetter {
        item: OutboxId,
        doubtful: bool,
        error: String,
        at: Millis,
    },
    /// Mark a chat as dead. A chat that is already marked keeps its date.
    MarkChatDead {
        platform: Platform,
        chat_id: String,
        reason: String,
        at: Millis,
    },
    ClearDeadChat {
        platform: Platform,
        chat_id: String,
    },
    /// Store a rate limit penalty, replacing the one of its scope.
    RateLimited(Penalty),
    /// A topic requested by name exists under this id and was used at `at`.
    TopicCreated {
        platform: Platform,
        chat_id: String,
        name: String,
        thread: String,
        at: Millis,
    },
    TopicRemoved {
        platform: Platform,
        chat_id: String,
        name: String,
    },
    /// A successful turn: clear the session's resume mark and failure count.
    ClearResume {
        key: SessionKey,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_round_trip_through_their_stored_names() {
        for (word, outcome) in [
            ("answered", Some(MessageOutcome::Answered)),
            ("refused", Some(MessageOutcome::Refused)),
            ("merged", Some(MessageOutcome::Merged)),
            ("cancelled", Some(MessageOutcome::Cancelled)),
            ("dead", Some(MessageOutcome::Dead)),
            ("lost", None),
        ] {
            assert_eq!(MessageOutcome::parse(word), outcome, "{word}");
        }
    }
}
