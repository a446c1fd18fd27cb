//! Outbox items: messages to deliver and their progress.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::ids::{OutboxId, SessionKey, TurnId};
use crate::message::Route;
use crate::time::Millis;

/// The kind of a message. The order is the priority within a lane's rate budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Text of a turn: the final answer, or text before tool calls.
    Answer,
    /// From the gateway: an acknowledgement, the reply to a command, a failure.
    Notice,
    /// Valid only while this process lives ("shutting down"); dropped if unsent at its end.
    Banner,
}

/// The delivery state of an item. Each survives a crash; the recovery is stated beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The turn is still streaming; only a preview may be visible. Recovery: wait for the turn.
    Streaming,
    /// Complete, waiting to be sent. Recovery: send.
    Due,
    /// Part `sent.len()` is being sent. Recovery: the outcome is unknown, so the part is sent again with a mark, unless it
    /// edits a message with a known id.
    Sending,
    Done,
    /// A dead letter, listed until a person retries or drops it.
    Dead,
}

impl State {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Streaming => "streaming",
            Self::Due => "due",
            Self::Sending => "sending",
            Self::Done => "done",
            Self::Dead => "dead",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        [Self::Streaming, Self::Due, Self::Sending, Self::Done, Self::Dead]
            .into_iter()
            .find(|state| state.as_str() == name)
    }
}

/// The preview of a streamed answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preview {
    #[default]
    None,
    /// A first preview was sent, but its id is unknown (yet), or it can be neither edited nor deleted.
    #[serde(rename = "asked")]
    Requested,
    /// Visible under this id; edited to the final text, repeatedly if need be.
    Shown(String),
}

/// Remainder of a preview that could not be edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OldPreview {
    #[serde(rename = "nothing")]
    Gone,
    /// The preview may still be visible, so the new message may be a duplicate.
    #[serde(rename = "perhaps")]
    MaybeVisible,
}

/// A button below a message. `data` is the text of its callback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Button {
    pub label: String,
    pub data: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draft {
    pub route: Route,
    pub session_key: Option<SessionKey>,
    /// The turn and step of the text; at most one item per pair.
    pub turn: Option<(TurnId, u32)>,
    pub kind: Kind,
    pub text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buttons: Vec<Button>,
}

impl Draft {
    pub fn notice(route: Route, text: impl Into<String>) -> Self {
        Self {
            route,
            session_key: None,
            turn: None,
            kind: Kind::Notice,
            text: text.into(),
            buttons: Vec::new(),
        }
    }
}

/// A message in the outbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    pub id: OutboxId,
    pub draft: Draft,
    pub state: State,
    pub preview: Preview,
    /// Ids of acknowledged parts, in order.
    pub sent: Vec<String>,
    /// The part now due may be visible already, so it is marked as a possible duplicate.
    pub doubtful: bool,
    pub attempts: u32,
    /// When the part now due was first sent; `None`: never.
    pub tried_at: Option<Millis>,
    /// Number of idempotency keys of the part now due whose outcome is unknowable.
    #[serde(rename = "spent")]
    pub retired_keys: u32,
    pub not_before: Millis,
    pub created_at: Millis,
    pub last_error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_round_trip_through_their_stored_names() {
        for (word, state) in [
            ("streaming", Some(State::Streaming)),
            ("due", Some(State::Due)),
            ("sending", Some(State::Sending)),
            ("done", Some(State::Done)),
            ("dead", Some(State::Dead)),
            ("lost", None),
        ] {
            assert_eq!(State::parse(word), state, "{word}");
        }
    }
}
