//! The turn state machine: from the first claimed message to its one visible outcome.
//!
//! `step` takes the turn by value and returns the turn to store, the writes of one transaction and the effects to start
//! after the commit. An effect carries the number of its attempt; results of older attempts are ignored.
//!
//! After a crash, the last stored state is resumed: a model call is repeated under a new attempt; a tool call with an
//! unknown outcome is reported to the model, and only a read-only one is repeated; later calls are not started; a turn that was executing
//! in too many crashes is given up with a notice.
mod acting;
mod end;
mod guard;
mod notes;
mod step;

pub use guard::{CallProgress, LoopGuard, LoopLimits, LoopThresholds};
pub use notes::{TurnStart, resume_note};
pub use step::{Cutoff, Decision, Event, ModelAnswer, ToolReport, TurnEffect, TurnLimits, step};

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
    /// Where the answer goes. Fixed at the start.
    pub route: Route,
    /// The accepted messages of this turn. The first one has the number of the turn.
    pub inbox: Vec<InboxId>,
    pub phase: Phase,
    /// Number of the current attempt, a model call or a group of tool calls.
    pub attempt: u32,
    /// Number of completed model calls.
    pub step: u32,
    #[serde(rename = "relieved", default)]
    pub compactions: u32,
    /// Number of crashes that count against this turn.
    pub crashes: u32,
    /// Consecutive model answers that requested only unknown tools.
    #[serde(rename = "astray", default)]
    pub unknown_tool_answers: u32,
    #[serde(default)]
    pub guard: LoopGuard,
    #[serde(default)]
    pub usage: Usage,
    #[serde(default)]
    pub partial: bool,
    pub started_at: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Thinking,
    /// The assistant row with these calls is stored. The calls in `open` have no result yet. The calls run in groups, one
    /// after the other; no call of a later group has started.
    Acting {
        calls: Vec<ToolCall>,
        open: Vec<String>,
        /// Sizes of the groups. Empty: one group.
        #[serde(default)]
        groups: Vec<u32>,
    },
    Over,
}

impl Turn {
    /// A turn before its first model call.
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
            compactions: 0,
            crashes: 0,
            unknown_tool_answers: 0,
            guard: LoopGuard::default(),
            usage: Usage::default(),
            partial: false,
            started_at: now,
        })
    }
}
