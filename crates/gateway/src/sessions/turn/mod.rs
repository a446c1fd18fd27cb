//! The open turn of a session: start, model calls and tools, compaction, stall detection, recovery.
//!
//! [`RunningTurn`] owns everything that lives as long as the open turn; dropping it aborts the work and returns the slot. On disk a
//! turn is its journal: a crash leaves it open, and `recover` restores it as a parked `RunningTurn`.

pub(super) mod begin;
pub(super) mod compaction;
pub(super) mod feed;
pub(super) mod prepare;
pub(super) mod publish;
pub(super) mod recover;
pub(super) mod stall;
pub(super) mod work;

use std::sync::Arc;

use petasos_agent::tool_output::OutputBudget;
use petasos_agent::{ToolSpec, TurnHeartbeat};
use petasos_core::Source;
use petasos_core::turn::Turn;
use petasos_store::PendingMessage;
use tokio::time::Instant;

use crate::lifecycle::gate::GateSlot;
use crate::sessions::TaskHistory;
use work::TurnWork;

pub(super) struct RunningTurn {
    pub(super) turn: Turn,
    /// The author of the message that started the turn.
    pub(super) author: Option<Source>,
    /// Question and answer so far, shortened for hooks.
    pub(super) question: String,
    pub(super) answer: String,
    pub(super) slot: TurnSlot,
    pub(super) resumed: bool,
    /// The model call or tools in progress; aborted on drop.
    pub(super) work: Option<TurnWork>,
    /// How much context the results of the current tool calls may use.
    pub(super) room: Option<Arc<OutputBudget>>,
    /// The tools offered to the model, fixed for the whole turn.
    pub(super) offered: Option<Arc<[ToolSpec]>>,
    /// Time of the last progress, and whether the author was warned of a stall.
    pub(super) alive: TurnHeartbeat,
    pub(super) warned: bool,
    /// Messages that are appended to the next tool result.
    pub(super) steering: Vec<PendingMessage>,
    /// When previews start; most turns are over by then.
    pub(super) preview_at: Option<Instant>,
}

/// Whether the turn has a slot and runs.
pub(super) enum TurnSlot {
    /// Found open and not resumed yet; with the history of this session's tasks.
    Parked(TaskHistory),
    Active(GateSlot),
}

impl RunningTurn {
    pub(super) fn new(turn: Turn, author: Option<Source>, question: String, slot: TurnSlot) -> Self {
        Self {
            turn,
            author,
            question,
            answer: String::new(),
            slot,
            resumed: false,
            work: None,
            room: None,
            offered: None,
            alive: TurnHeartbeat::default(),
            warned: false,
            steering: vec![],
            preview_at: None,
        }
    }

    pub(super) fn parked_history(&self) -> Option<TaskHistory> {
        match self.slot {
            TurnSlot::Parked(history) => Some(history),
            TurnSlot::Active(_) => None,
        }
    }

    pub(super) fn sign_of_life(&mut self) {
        self.alive.record();
        self.warned = false;
    }
}
