//! The status report. Contains no message text and no secret.

use std::path::Path;
use std::time::Duration;

use petasos_agent::mcp::McpServerState;
use petasos_core::Millis;
use petasos_core::dead_chat::DeadChat;
use petasos_core::lifecycle;
use petasos_core::link::Link;
use petasos_core::rate_limit::Penalty;
use serde::Serialize;

use crate::lifecycle::gate::LifecycleSnapshot;
use crate::storage::retention::StorageStatus;

#[derive(Debug, Clone, Serialize)]
pub struct GatewayStatus {
    pub version: &'static str,
    pub pid: u32,
    pub home: String,
    pub started_at: Millis,
    /// Like the published state, but also `degraded` while a link is down or the store refuses writes.
    pub state: lifecycle::State,
    #[serde(skip)]
    pub lifecycle: LifecycleSnapshot,
    #[serde(skip)]
    pub drain_timeout: Duration,
    pub model: ModelStatus,
    pub links: Vec<LinkStatus>,
    pub sessions: usize,
    pub inbox: InboxCounts,
    pub outbox: OutboxCounts,
    pub unreadable: u64,
    /// Dead chats, latest first.
    pub dead_chats: Vec<DeadChat>,
    /// Rate limits that platforms impose, by platform.
    pub rate_limits: Vec<Penalty>,
    pub mcp: Vec<McpServerStatus>,
    /// Completions that were not delivered, and why; latest first.
    #[serde(rename = "untold")]
    pub undelivered: Vec<UndeliveredCompletion>,
    pub storage: StorageStatus,
    /// The current error of the store.
    pub store_trouble: Option<String>,
    pub salvage: Option<Salvaged>,
    /// How often the database was recovered after another program removed its files.
    pub store_recoveries: u64,
    #[serde(skip)]
    pub disk_used_percent: Option<u64>,
    /// `config.yaml` was changed after the start.
    #[serde(skip)]
    pub config_changed: bool,
}

/// Used disk space in percent, as an unprivileged process sees it.
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

#[derive(Debug, Clone, Serialize)]
pub struct Salvaged {
    pub at: Millis,
    pub summary: String,
    pub report: String,
}

#[derive(Debug, Clone, Serialize)]
pub struct ModelStatus {
    pub name: String,
    pub provider: &'static str,
    /// The built-in demo model.
    pub demo: bool,
    pub failing: bool,
}

#[derive(Debug, Clone, Serialize)]
pub struct McpServerStatus {
    pub name: String,
    /// `connecting`, `up`, `down` or `parked`.
    pub state: &'static str,
    pub tools: usize,
    /// Why it is down.
    pub why: Option<String>,
}

impl McpServerStatus {
    pub(crate) fn of((name, state): (String, McpServerState)) -> Self {
        let (state, tools, why) = match state {
            McpServerState::Connecting => ("connecting", 0, None),
            McpServerState::Up(tools) => ("up", tools, None),
            McpServerState::Down(why) => ("down", 0, Some(why)),
            McpServerState::Parked(why) => ("parked", 0, Some(why)),
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

/// A completion that was not delivered.
#[derive(Debug, Clone, Serialize)]
pub struct UndeliveredCompletion {
    pub work: String,
    pub kind: String,
    pub session_key: String,
    /// It will not be delivered any more.
    pub undeliverable: bool,
    pub reason: String,
    pub since: Millis,
}

/// Accepted messages without an outcome.
#[derive(Debug, Clone, Serialize)]
pub struct InboxCounts {
    pub queued: u64,
    pub running: u64,
}

#[derive(Debug, Clone, Serialize)]
pub struct OutboxCounts {
    pub due: u64,
    pub dead: u64,
}
