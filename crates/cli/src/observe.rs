//! The lifecycle status of a gateway, as other processes of the same home observe it.

use std::time::Duration;

use petasos_config::Home;
use petasos_core::Millis;
use petasos_gateway::home::process::ProcessRecord;
use petasos_gateway::home::state;
use petasos_runtime::clock;
use serde::Deserialize;
use tokio::time::Instant;

use crate::client::Client;
use crate::lock;

/// A gateway that takes longer to answer counts as unresponsive.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// Lifecycle as the gateway reports it: state, drain and active turns.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct LifecycleStatus {
    pub state: String,
    #[serde(default)]
    pub drain: Option<DrainStatus>,
    #[serde(default, rename = "holders")]
    pub turns: Vec<ActiveTurn>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct DrainStatus {
    /// `external`, `shutdown` or `restart`.
    pub kind: String,
    #[serde(default)]
    pub principal: Option<String>,
    #[serde(default)]
    pub reason: Option<String>,
    #[serde(default)]
    pub since: Option<Millis>,
    #[serde(default)]
    pub requested_at: Option<String>,
    #[serde(default)]
    pub deadline: Option<Millis>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ActiveTurn {
    pub key: String,
    #[serde(default, rename = "doing")]
    pub activity: TurnActivity,
    pub since: Millis,
    #[serde(default)]
    pub skipped: bool,
    #[serde(default)]
    pub until: Option<Millis>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct TurnActivity {
    #[serde(default)]
    at: String,
    #[serde(default)]
    tools: Vec<String>,
}

impl TurnActivity {
    pub fn description(&self) -> String {
        match self.tools.as_slice() {
            [] if self.at.is_empty() => "working".into(),
            [] => self.at.clone(),
            tools => format!("running {}", tools.join(", ")),
        }
    }
}

impl DrainStatus {
    pub fn is_external(&self) -> bool {
        self.kind == "external"
    }
}

impl LifecycleStatus {
    pub fn is_draining(&self) -> bool {
        self.state == "draining"
    }

    /// A shutdown or restart has begun; neither can be cancelled.
    pub fn is_shutting_down(&self) -> bool {
        self.drain.as_ref().is_some_and(|drain| !drain.is_external())
    }

    pub fn is_up(&self) -> bool {
        matches!(self.state.as_str(), "running" | "degraded" | "draining")
    }

    pub fn awaited(&self) -> impl Iterator<Item = &ActiveTurn> {
        self.turns.iter().filter(|turn| !turn.skipped)
    }

    pub fn display_state(&self) -> &str {
        let kind = self.drain.as_ref().map(|drain| drain.kind.as_str());
        display_state(&self.state, kind)
    }

    /// When the drain stops waiting for this turn. `None` while there is no limit: only a shutdown or restart
    /// has one.
    pub fn deadline_of(&self, turn: &ActiveTurn) -> Option<Millis> {
        let drain = self.drain.as_ref().filter(|drain| !drain.is_external())?;
        drain.deadline.max(turn.until)
    }

    /// When the drain stops waiting for the last turn.
    pub fn last_deadline(&self) -> Option<Millis> {
        self.awaited().filter_map(|turn| self.deadline_of(turn)).max()
    }
}

/// The state to show to people: a drain with the kind `shutdown` is `stopping`, one with `restart` is
/// `restarting`.
pub fn display_state<'a>(state: &'a str, kind: Option<&str>) -> &'a str {
    match (state, kind) {
        ("draining", Some("shutdown")) => "stopping",
        ("draining", Some("restart")) => "restarting",
        (state, _) => state,
    }
}

/// When the gateway stops waiting for turns, according to its state file.
pub fn published_deadline(home: &Home, of: &ProcessRecord) -> Option<Millis> {
    let mut fields = state::read(home.path())?;
    let record: ProcessRecord = serde_json::from_value(fields.clone().into()).ok()?;
    let state = fields.remove("gateway_state")?;
    let mut drain = fields.remove("drain")?;
    let turns = drain.get_mut("holders").map(serde_json::Value::take);
    let lifecycle = serde_json::json!({ "state": state, "drain": drain, "holders": turns });
    let lifecycle: LifecycleStatus = serde_json::from_value(lifecycle).ok().filter(|_| record.is_same(of))?;
    lifecycle.last_deadline()
}

#[derive(Debug, Clone, PartialEq)]
pub enum Observation {
    NotRunning,
    /// A process holds the home and does not answer: it is starting or about to exit. `None` if its lock file
    /// cannot be read.
    Unresponsive(Option<ProcessRecord>),
    Responding(ProcessRecord, LifecycleStatus),
}

impl Observation {
    pub fn status(&self) -> Option<&LifecycleStatus> {
        match self {
            Self::Responding(_, lifecycle) => Some(lifecycle),
            Self::NotRunning | Self::Unresponsive(_) => None,
        }
    }
}

/// Polls the gateway of a home and reuses the connection.
#[derive(Debug)]
pub struct GatewayWatcher<'a> {
    home: &'a Home,
    client: Option<(ProcessRecord, Client)>,
}

impl<'a> GatewayWatcher<'a> {
    pub const fn new(home: &'a Home) -> Self {
        Self { home, client: None }
    }

    pub async fn poll(&mut self) -> Observation {
        let path = self.home.lock_file();
        let Some(record) = lock::holder(&path).map(|lock| lock.process) else {
            return if lock::is_held(&path) {
                Observation::Unresponsive(None)
            } else {
                Observation::NotRunning
            };
        };
        match self.fetch(&record).await {
            Some(lifecycle) => Observation::Responding(record, lifecycle),
            None => {
                self.client = None;
                Observation::Unresponsive(Some(record))
            }
        }
    }

    async fn fetch(&mut self, record: &ProcessRecord) -> Option<LifecycleStatus> {
        let client = match &self.client {
            Some((owner, client)) if owner.is_same(record) => client,
            Some(_) | None => {
                let client = Client::connect(self.home).ok().flatten()?;
                &self.client.insert((record.clone(), client)).1
            }
        };
        tokio::time::timeout(REQUEST_TIMEOUT, client.get("/api/gateway/drain")).await.ok()?.ok()
    }
}

/// The drain timeout that the gateway's state file states. `None` if it states none, or if the file belongs
/// to another process.
pub fn drain_timeout(home: &Home, record: Option<&ProcessRecord>) -> Option<Duration> {
    let fields = state::read(home.path())?;
    let published = ProcessRecord::parse(&serde_json::to_vec(&fields).ok()?);
    let same = match (published, record) {
        (Some(published), Some(record)) => published.is_same(record),
        (Some(_) | None, None) => true,
        (None, Some(_)) => false,
    };
    let seconds = fields.get("restart_drain_timeout").filter(|_| same)?.as_f64()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// The same moment on the monotonic clock.
pub fn to_instant(at: Millis) -> Option<Instant> {
    clock::monotonic().checked_add(at.since(crate::print::now()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn lifecycle(value: Value) -> LifecycleStatus {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn last_deadline_ignores_skipped_turns() {
        let turn = |key: &str, skipped: bool, until: Option<u64>| json!({"key": key, "since": 1, "skipped": skipped, "until": until});
        let value = |turns: Vec<Value>| {
            lifecycle(json!({
                "state": "draining", "drain": {"kind": "shutdown", "deadline": 50}, "holders": turns,
            }))
        };
        assert_eq!(value(vec![]).last_deadline(), None);
        assert_eq!(value(vec![turn("a", false, None)]).last_deadline(), Some(Millis(50)));
        let extended = value(vec![turn("a", false, Some(70)), turn("b", true, Some(90))]);
        assert_eq!((extended.last_deadline(), extended.awaited().count()), (Some(Millis(70)), 1));
        assert!(extended.is_shutting_down());
        let quiet = lifecycle(
            json!({"state": "draining", "drain": {"kind": "external"}, "holders": [turn("a", false, None)]}),
        );
        assert_eq!(
            (quiet.last_deadline(), quiet.is_shutting_down(), quiet.is_draining()),
            (None, false, true)
        );
    }

    #[test]
    fn maps_drain_kind_to_state_and_deadline() {
        let value = |kind: &str| {
            lifecycle(json!({
                "state": "draining", "drain": {"kind": kind}, "holders": [{"key": "a", "since": 1, "until": 70}],
            }))
        };
        for (kind, display_state, end) in [
            ("external", "draining", None),
            ("shutdown", "stopping", Some(Millis(70))),
            ("restart", "restarting", Some(Millis(70))),
        ] {
            assert_eq!(
                (value(kind).display_state(), value(kind).last_deadline()),
                (display_state, end),
                "{kind}"
            );
        }
        assert_eq!(display_state("running", Some("shutdown")), "running");
    }

    #[test]
    fn describes_activity() {
        for (value, want) in [
            (json!({"at": "thinking"}), "thinking"),
            (json!({"at": "acting", "tools": ["shell", "fetch"]}), "running shell, fetch"),
            (json!({"at": "acting", "tools": []}), "acting"),
            (json!({}), "working"),
        ] {
            assert_eq!(
                serde_json::from_value::<TurnActivity>(value.clone()).unwrap().description(),
                want,
                "{value}"
            );
        }
    }
}
