//! The shipped connector in a simulated world, and the connections between it and the gateway.
//!
//! The connector is a process of its own (`process.rs`), with its own home, clock, disk and crashes. Its platform is the
//! simulated adapter of `gateway/adapter.rs`. The gateway dials it with its relay adapter; both ends speak WebSocket over
//! the bytes of `wire.rs`, which arrive late, are cut off, or stop to arrive without a close. `observe.rs` hands the
//! connector's queue to the checker.

mod observe;
mod process;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use petasos_core::Millis;
use petasos_gateway::shell::LinkHandle;
use petasos_platforms::relay::Credentials;
use petasos_runtime::simulation::Process;

use crate::home::Home;
pub(crate) use process::gateway_adapters;
use wire::Wire;

/// The owner of the queue.
const INSTANCE: &str = "i1";
/// Numbers of the connector's processes begin here; those of the gateway's are below.
const FIRST_PROCESS: u32 = 1 << 20;

/// The connector's side of the world.
#[derive(Debug)]
pub(crate) struct Relay {
    stage: Stage,
    life: u32,
    pub(crate) home: Home,
    /// How far its wall clock is ahead of time, in milliseconds.
    pub(crate) ahead: i64,
    /// Its disk takes nothing.
    pub(crate) full: bool,
    /// When this process last received anything from its platform.
    pub(crate) heard: Option<Millis>,
    /// The gateway's credentials.
    credentials: Credentials,
    wires: BTreeMap<u64, Wire>,
    /// Entries of its queue.
    queue: BTreeSet<String>,
    /// Which message each entry is that was ever in its queue.
    entries: BTreeMap<String, usize>,
    /// How often a connection was slow.
    stalls: u64,
    /// Doors of killed processes: dropping them would run destructors of theirs.
    left_behind: Vec<Stage>,
}

/// Whether the process runs.
#[derive(Debug)]
enum Stage {
    Down,
    Starting,
    Up { door: petasos_connector::simulation::Door, links: Vec<LinkHandle> },
}

impl Relay {
    /// A connector that has enrolled the gateway, in a home beside the gateway's.
    pub(crate) fn new(folder: &Path) -> Self {
        let home = Home::new(folder.join("connector"));
        Self {
            stage: Stage::Down,
            life: 0,
            credentials: process::enroll(home.path()),
            home,
            ahead: 0,
            full: false,
            heard: None,
            wires: BTreeMap::new(),
            queue: BTreeSet::new(),
            entries: BTreeMap::new(),
            stalls: 0,
            left_behind: Vec::new(),
        }
    }

    pub(crate) fn process(&self) -> Process {
        Process(FIRST_PROCESS + self.life)
    }

    pub(crate) fn is_down(&self) -> bool {
        matches!(self.stage, Stage::Down)
    }

    /// It runs, and its queue is empty.
    pub(crate) fn is_at_rest(&self) -> bool {
        matches!(self.stage, Stage::Up { .. }) && self.queue.is_empty()
    }

    /// The handles, which hold references to the world, so that dropping them breaks the cycle.
    pub(crate) fn take_handles(&mut self) -> impl Sized + use<> {
        (std::mem::replace(&mut self.stage, Stage::Down), std::mem::take(&mut self.left_behind))
    }
}

/// Whether a process is one of the connector's.
pub(crate) fn is_connector(process: Process) -> bool {
    process.0 >= FIRST_PROCESS
}
