//! Everything that can be made durable by a decision, as data.
//!
//! A decision's writes are applied in order inside one transaction, or not at all. The store knows how;
//! the machines know only what. Writes never depend on the answer of another write.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::compaction::Relief;
use crate::ids::{InboxId, OutboxId, SessionId, SessionKey, TurnId};
use crate::message::Platform;
use crate::outbox::{Draft, Left};
use crate::rate_limit::Penalty;
use crate::time::Millis;
use crate::transcript::{Bill, Message};
use crate::turn::Turn;

/// How an accepted message ended: exactly one of these, always visible to its author.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Answered,
    /// Turned away with a notice (queue full, failed turn, unknown command).
    Refused,
    /// Became part of another message's turn.
    Merged,
    /// Stopped by its author (`/stop`, `/new`, a newer message in interrupt mode).
    Cancelled,
    /// Given up after repeated crashes, with a notice, and listed.
    Dead,
}

impl Outcome {
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Write {
    /// Insert a turn or replace its state. The stored state is what `recover` starts from.
    PutTurn(Turn),
    /// The turn is over: its row keeps the outcome and stops being recovered.
    EndTurn { turn: TurnId, outcome: Outcome, at: Millis },
    /// Accepted messages now belong to this turn.
    ClaimInbox { inbox: Vec<InboxId>, turn: TurnId },
    /// Accepted messages have their final outcome.
    SettleInbox { inbox: Vec<InboxId>, outcome: Outcome, at: Millis },
    /// Append a row to a transcript (and to its full-text index).
    Append { session: SessionId, message: Message },
    /// Add what an answer has cost to a session's counters.
    Spend { key: SessionKey, session: SessionId, bill: Bill },
    /// Make room in a transcript: hide rows from the model, with a summary in their place.
    Relieve { key: SessionKey, session: SessionId, relief: Relief, at: Millis },
    /// Owe a message. For a pair `(turn, step)` that is already streaming, the text is completed and
    /// becomes due; otherwise a new item becomes due.
    Owe(Draft),
    /// The preview became visible under this id.
    PreviewShown { turn: TurnId, step: u32, message: String },
    /// The preview is certainly not visible (never sent, or deleted by someone): the answer is sent as new.
    DropPreview { turn: TurnId, step: u32 },
    /// What it was to replace cannot be replaced: it is sent as new, with a mark if the other may still be there.
    SendAnew { item: OutboxId, left: Left },
    /// The step ends without an answer: what is visible of it is completed with this text, or, when the
    /// text is empty, taken back. Without a streaming item nothing happens.
    ClosePreview { turn: TurnId, step: u32, text: String },
    /// The next part is being handed to the platform.
    Sending { item: OutboxId },
    /// A part was acknowledged under this id; more parts follow, in the thread that it opened if it did.
    PartSent { item: OutboxId, message: String, thread: Option<String> },
    /// The last part was acknowledged (`None`: the platform gave no id, or nothing was left to send).
    Delivered { item: OutboxId, message: Option<String>, at: Millis },
    /// Try again later. `doubtful`: the part may be visible already.
    Postpone { item: OutboxId, not_before: Millis, doubtful: bool, error: String },
    /// The key of the part now due is used up: whoever took it under that key cannot tell what became of it.
    KeySpent { item: OutboxId },
    /// Give it up and list it. `doubtful`: should a person retry it, the copy is marked.
    Bury { item: OutboxId, doubtful: bool, error: String, at: Millis },
    /// The chat takes nothing from us (`dead`). One that is known to be dead keeps the day it was marked.
    ChatDead { platform: Platform, chat_id: String, reason: String, at: Millis },
    /// Something arrived there.
    ChatAlive { platform: Platform, chat_id: String },
    /// The platform wants no requests of this scope until then. Replaces what is stored of the scope.
    RateLimited(Penalty),
    /// A topic that was asked for by name is there under this id, and was used then.
    TopicMade { platform: Platform, chat_id: String, name: String, thread: String, at: Millis },
    /// It is there no longer.
    TopicGone { platform: Platform, chat_id: String, name: String },
    /// A successful turn proves the session healthy: clear its resume mark and its failure count.
    ClearResume { key: SessionKey },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_stored_under_these_words() {
        for (word, outcome) in [
            ("answered", Some(Outcome::Answered)),
            ("refused", Some(Outcome::Refused)),
            ("merged", Some(Outcome::Merged)),
            ("cancelled", Some(Outcome::Cancelled)),
            ("dead", Some(Outcome::Dead)),
            ("lost", None),
        ] {
            assert_eq!(Outcome::parse(word), outcome, "{word}");
        }
    }
}
