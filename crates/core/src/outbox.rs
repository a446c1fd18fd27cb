//! What we owe to a chat, and how far it has got.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::ids::{OutboxId, SessionKey, TurnId};
use crate::message::Route;
use crate::time::Millis;

/// Why a message is owed. The order is the priority in a lane's rate budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Text of a turn: the final answer, or what was said before tools ran.
    Answer,
    /// From the gateway: an acknowledgement, a command's answer, a failure.
    Notice,
    /// True only while this process lives ("shutting down"): what is not sent by its end is dropped.
    Banner,
}

/// Where an item stands. A crash leaves each of them as it is; what recovery does is written beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The turn is still speaking; only a preview may be visible. Recovery: wait for the turn.
    Streaming,
    /// Complete and waiting to be sent. Recovery: send.
    Due,
    /// Part `sent.len()` has been handed to the platform. Recovery: its outcome is unknown, so the
    /// part is sent again with a mark, unless it replaces a message whose id we know.
    Sending,
    Done,
    /// Given up, with a reason; listed until a person retries or drops it.
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

/// What is visible of an answer that is still growing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preview {
    #[default]
    None,
    /// A first preview was handed to the platform; we do not know its id (yet), or it can neither be changed nor taken
    /// back.
    Asked,
    /// It is visible under this id: the final text replaces it, as often as need be.
    Shown(String),
}

/// What is visible of a message that could not be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Left {
    Nothing,
    /// Nobody could take it away: what is said in its place may be a copy.
    Perhaps,
}

/// A button below a message. `data` comes back as the text of a callback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Button {
    pub label: String,
    pub data: String,
}

/// A message to be put into the outbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draft {
    pub route: Route,
    pub session_key: Option<SessionKey>,
    /// The turn and the step of it that said this; at most one item for each pair.
    pub turn: Option<(TurnId, u32)>,
    pub kind: Kind,
    pub text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buttons: Vec<Button>,
}

impl Draft {
    /// From the gateway itself, in answer to nothing.
    pub fn notice(route: Route, text: impl Into<String>) -> Self {
        let (session_key, turn, buttons) = (None, None, Vec::new());
        Self { route, session_key, turn, kind: Kind::Notice, text: text.into(), buttons }
    }
}

/// A message in the outbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    pub id: OutboxId,
    pub draft: Draft,
    pub state: State,
    pub preview: Preview,
    /// Ids of the parts the platform has acknowledged, in order.
    pub sent: Vec<String>,
    /// The part now due may already be visible: it carries the recovered-reply mark.
    pub doubtful: bool,
    pub attempts: u32,
    /// When the part now due was first handed to the platform; `None`: never.
    pub tried_at: Option<Millis>,
    /// Keys of the part now due under which nobody can tell any more what became of it.
    pub spent: u32,
    pub not_before: Millis,
    pub created_at: Millis,
    pub last_error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_stored_under_these_words() {
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
