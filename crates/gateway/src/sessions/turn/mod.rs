//! A running turn: how it starts, works, shrinks its conversation, stalls, and is recovered after a crash.
//!
//! [`Running`] owns everything that lives as long as the open turn; dropping it ends the work and gives the slot back. On
//! disk a turn is its journal: a crash leaves it open, and `recover` builds a parked `Running` from it.

pub(super) mod begin;
pub(super) mod compaction;
pub(super) mod feed;
pub(super) mod notices;
pub(super) mod prepare;
pub(super) mod recover;
pub(super) mod show;
pub(super) mod stall;
pub(super) mod work;

use std::sync::Arc;

use petasos_agent::outcome::Room;
use petasos_agent::{Alive, ToolSpec};
use petasos_core::Source;
use petasos_core::turn::Turn;
use petasos_store::Pending;
use tokio::time::Instant;

use crate::lifecycle::gate::Slot;
use crate::sessions::Past;
use work::Work;

/// The open turn of a session.
pub(super) struct Running {
    pub(super) turn: Turn,
    /// Who asked for it, and where.
    pub(super) author: Option<Source>,
    /// What was asked, and answered so far, as much as hooks are told.
    pub(super) asked: String,
    pub(super) answered: String,
    pub(super) standing: Standing,
    /// It takes up what was interrupted.
    pub(super) resumed: bool,
    /// The call or the tools under way. Dropping it ends them.
    pub(super) work: Option<Work>,
    /// What the results of the model's last answer may still put before it.
    pub(super) room: Option<Arc<Room>>,
    /// The tools that it is offered, from its first question to its last.
    pub(super) offered: Option<Arc<[ToolSpec]>>,
    /// Signs of life, and whether its author was told that there are none.
    pub(super) alive: Alive,
    pub(super) warned: bool,
    /// Messages that go to the model with the next tool result.
    pub(super) steering: Vec<Pending>,
    /// When the chat begins to follow it; most turns are over by then.
    pub(super) follow_at: Option<Instant>,
}

/// Whether a turn has its place among all that run.
pub(super) enum Standing {
    /// Found open, and nobody has taken it up yet. How the task before this one ended.
    Parked(Past),
    AtWork(Slot),
}

impl Running {
    pub(super) fn new(turn: Turn, author: Option<Source>, asked: String, standing: Standing) -> Self {
        Self {
            turn,
            author,
            asked,
            answered: String::new(),
            standing,
            resumed: false,
            work: None,
            room: None,
            offered: None,
            alive: Alive::default(),
            warned: false,
            steering: vec![],
            follow_at: None,
        }
    }

    pub(super) fn parked(&self) -> Option<Past> {
        match self.standing {
            Standing::Parked(past) => Some(past),
            Standing::AtWork(_) => None,
        }
    }

    pub(super) fn sign_of_life(&mut self) {
        self.alive.sign();
        self.warned = false;
    }
}
