//! One turn: from the first claimed message to its one visible outcome.
//!
//! Owns nothing but its own fields. `step` takes the turn by value and gives back the turn as it must be
//! stored, together with the writes of one transaction and the effects to start after the commit. An
//! effect carries the attempt it belongs to; an answer to an older attempt is ignored.
//!
//! What a crash leaves: the last stored state. `recover` turns it into the effects it was waiting for:
//! a model call is asked again (under a new attempt), a tool whose outcome we lost is reported to the
//! model as unknown and never repeated, what was to run after it is not started, and a turn that took the
//! process down too often is given up with a notice.

mod acting;
mod end;
mod guard;
mod notes;
mod step;

pub use guard::{Circles, Guard, Patience, Progress};
pub use notes::{Moment, resume_note};
pub use step::{Answer, Closing, Decision, Effect, Event, Limits, ToolEnd, step};

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::ids::{InboxId, SessionId, SessionKey, TurnId};
use crate::message::Route;
use crate::time::Millis;
use crate::transcript::{ToolCall, Usage};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    pub id: TurnId,
    pub key: SessionKey,
    pub session: SessionId,
    /// Fixed at the start: the answer goes here and nowhere else.
    pub route: Route,
    /// The accepted messages this turn answers, the first one being its namesake.
    pub inbox: Vec<InboxId>,
    pub phase: Phase,
    /// Number of the question now asked of the outside.
    pub attempt: u32,
    /// How many times the model has answered so far.
    pub step: u32,
    /// How many times room was made for it in the transcript.
    #[serde(default)]
    pub relieved: u32,
    /// How many times the process died under this turn.
    pub crashes: u32,
    /// Answers in a row that asked only for tools that do not exist.
    #[serde(default)]
    pub astray: u32,
    #[serde(default)]
    pub guard: Guard,
    /// What its model calls have cost so far.
    #[serde(default)]
    pub usage: Usage,
    /// Its answer is not all there.
    #[serde(default)]
    pub partial: bool,
    pub started_at: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// A model call is under way.
    Thinking,
    /// The assistant row that asks for these calls is stored; those in `open` have no result yet. They run in groups,
    /// one after the other; of a later group nothing has been started.
    Acting {
        calls: Vec<ToolCall>,
        open: Vec<String>,
        /// The sizes of the groups. Empty: all at once.
        #[serde(default)]
        groups: Vec<u32>,
    },
    /// Nothing more happens.
    Over,
}

impl Turn {
    /// A turn about to ask the model for the first time.
    pub fn new(
        key: SessionKey,
        session: SessionId,
        route: Route,
        inbox: Vec<InboxId>,
        now: Millis,
    ) -> Option<Self> {
        let id = TurnId::from(*inbox.first()?);
        let phase = Phase::Thinking;
        Some(Self {
            id,
            key,
            session,
            route,
            inbox,
            phase,
            attempt: 0,
            step: 0,
            relieved: 0,
            crashes: 0,
            astray: 0,
            guard: Guard::default(),
            usage: Usage::default(),
            partial: false,
            started_at: now,
        })
    }
}
