//! What the gateway says of itself. Content-free: no message text, no secret.

use std::path::Path;
use std::time::Duration;

use petasos_agent::mcp::State;
use petasos_core::Millis;
use petasos_core::dead::DeadChat;
use petasos_core::lifecycle;
use petasos_core::link::Link;
use petasos_core::rate_limit::Penalty;
use serde::Serialize;

use crate::lifecycle::gate::Situation;
use crate::storage::retention::Storage;

#[derive(Debug, Clone, Serialize)]
pub struct Status {
    pub version: &'static str,
    pub pid: u32,
    pub home: String,
    pub started_at: Millis,
    /// As published, except that a link that is down or a disk that refuses counts as `degraded`, too.
    pub state: lifecycle::State,
    #[serde(skip)]
    pub lifecycle: Situation,
    #[serde(skip)]
    pub drain_timeout: Duration,
    pub model: Model,
    pub links: Vec<LinkStatus>,
    /// Sessions awake now.
    pub sessions: usize,
    pub inbox: Counts,
    pub outbox: OutboxCounts,
    /// Events that no adapter could read.
    pub unreadable: u64,
    /// Chats that refused us, the latest first.
    pub dead_chats: Vec<DeadChat>,
    /// Rate limits that platforms impose, by platform.
    pub rate_limits: Vec<Penalty>,
    /// Servers of other people's tools.
    pub mcp: Vec<ServerStatus>,
    /// Ended background work that nobody was told yet, and why, the latest first.
    pub untold: Vec<Untold>,
    /// Database size and disk space.
    pub storage: Storage,
    /// What the disk refuses, if it does.
    pub store_trouble: Option<String>,
    /// The last salvage of a damaged database.
    pub salvage: Option<Salvaged>,
    /// How often the database was recovered because another program removed its files.
    pub store_recoveries: u64,
    /// How full the file system of the home is.
    #[serde(skip)]
    pub disk_used_percent: Option<u64>,
    /// `config.yaml` was written after the start, so this process does not know it.
    #[serde(skip)]
    pub config_changed: bool,
}

/// Used space of the file system at `path`, as an unprivileged process sees it.
pub(crate) fn disk_used_percent(path: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(path).ok()?;
    let used = disk.f_blocks.saturating_sub(disk.f_bfree);
    let total = used.saturating_add(disk.f_bavail);
    used.saturating_mul(100).checked_div(total)
}

/// Whether the configuration of this home was written after `started`.
pub(crate) fn config_changed(home: &Path, started: Millis) -> bool {
    let written = std::fs::metadata(home.join("config.yaml")).and_then(|file| file.modified());
    let age = written.ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    age.is_some_and(|at| at > Duration::from_millis(started.0))
}

/// A damaged database that was salvaged.
#[derive(Debug, Clone, Serialize)]
pub struct Salvaged {
    pub at: Millis,
    pub summary: String,
    pub report: String,
}

#[derive(Debug, Clone, Serialize)]
pub struct Model {
    pub name: String,
    pub provider: &'static str,
    /// The scripted model that needs no key.
    pub demo: bool,
    /// The last question got no answer.
    pub failing: bool,
}

#[derive(Debug, Clone, Serialize)]
pub struct ServerStatus {
    pub name: String,
    /// `connecting`, `up`, `down` or `parked`.
    pub state: &'static str,
    pub tools: usize,
    /// Why it is not there.
    pub why: Option<String>,
}

impl ServerStatus {
    pub(crate) fn of((name, state): (String, State)) -> Self {
        let (state, tools, why) = match state {
            State::Connecting => ("connecting", 0, None),
            State::Up(tools) => ("up", tools, None),
            State::Down(why) => ("down", 0, Some(why)),
            State::Parked(why) => ("parked", 0, Some(why)),
        };
        Self { name, state, tools, why }
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct LinkStatus {
    pub name: &'static str,
    #[serde(flatten)]
    pub link: Link,
}

/// Ended background work.
#[derive(Debug, Clone, Serialize)]
pub struct Untold {
    /// The process.
    pub work: String,
    pub kind: String,
    pub session_key: String,
    /// It will not be told any more.
    pub undeliverable: bool,
    pub reason: String,
    pub since: Millis,
}

/// Accepted messages without an outcome yet.
#[derive(Debug, Clone, Serialize)]
pub struct Counts {
    pub queued: u64,
    pub running: u64,
}

#[derive(Debug, Clone, Serialize)]
pub struct OutboxCounts {
    pub due: u64,
    pub dead: u64,
}
