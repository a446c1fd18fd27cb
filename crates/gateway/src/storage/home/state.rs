//! `gateway_state.json`: the published state of the gateway, for dashboards, the command line and container boot scripts.
//!
//! One task writes it. Other programs add fields (`desired_state`, `served_profiles`), so a write merges its own fields
//! into the file; an unreadable file is replaced. The file may be missing or outdated, so liveness is checked on the
//! process itself.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use petasos_core::Millis;
use petasos_core::lifecycle::{State, stamp};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::process::ProcessRecord;
use crate::home::files::read;
use crate::home::files::write::{self, Durable};

/// The gateway's own fields.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StateFile {
    #[serde(flatten)]
    pub record: ProcessRecord,
    #[serde(rename = "gateway_state", serialize_with = "name")]
    pub state: State,
    pub exit_reason: Option<String>,
    pub restart_requested: bool,
    pub active_agents: u64,
    pub platforms: BTreeMap<String, PlatformState>,
    /// Principal and time of the drain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<Value>,
    /// How long a shutdown waits for turns, in seconds; a successor waits as long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_drain_timeout: Option<f64>,
    #[serde(serialize_with = "iso")]
    pub updated_at: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlatformState {
    /// `connecting`, `connected`, `retrying`, `fatal`, `disabled` or `paused`.
    pub state: &'static str,
    pub error_code: Option<String>,
    pub error_message: Option<String>,
    /// `passing`, `refused` or `fatal`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_class: Option<&'static str>,
    /// Failed attempts in a row.
    pub attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "iso_if_any")]
    pub next_retry_at: Option<Millis>,
    #[serde(serialize_with = "iso")]
    pub updated_at: Millis,
}

/// Own fields that may be omitted.
const OPTIONAL: [&str; 2] = ["drain", "restart_drain_timeout"];

pub fn path(home: &Path) -> PathBuf {
    home.join("gateway_state.json")
}

pub fn write(home: &Path, published: &StateFile, durable: Durable) -> io::Result<()> {
    let mut fields = read(home).unwrap_or_default();
    for name in OPTIONAL {
        fields.remove(name);
    }
    let ours = serde_json::to_value(published)?;
    fields.extend(ours.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())));
    write::replace(&path(home), &serde_json::to_vec(&fields)?, durable)
}

/// All fields of the file. `None`: missing or unreadable.
pub fn read(home: &Path) -> Option<Map<String, Value>> {
    let bytes = read::bytes_if_readable(&path(home))?;
    serde_json::from_slice(&bytes).inspect_err(|error| tracing::warn!(%error, "unreadable state file")).ok()
}

/// Whether the process that a state file describes was found alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessState {
    Live,
    Dead,
}

/// Values that all readers derive from the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GatewayLoad {
    pub active_agents: u64,
    /// A shutdown would interrupt turns.
    pub busy: bool,
    /// A drain is possible.
    pub drainable: bool,
}

impl GatewayLoad {
    pub fn of(fields: &Map<String, Value>, process: ProcessState) -> Self {
        let active_agents = fields.get("active_agents").map(count).unwrap_or_default();
        let state = fields.get("gateway_state").and_then(Value::as_str);
        let drainable = process == ProcessState::Live && state == Some(State::Running.as_str());
        Self { active_agents, busy: drainable && active_agents > 0, drainable }
    }
}

/// Accepts numbers and numeric strings; anything else is zero.
fn count(value: &Value) -> u64 {
    let text = || value.as_str().and_then(|text| text.trim().parse().ok());
    value.as_u64().or_else(text).unwrap_or_default()
}

fn name<S: Serializer>(state: &State, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(state.as_str())
}

fn iso<S: Serializer>(at: &Millis, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&stamp::format(*at))
}

fn iso_if_any<S: Serializer>(at: &Option<Millis>, serializer: S) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => iso(at, serializer),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::home::files::testing::{NO_HOMES, for_each_damage};

    const NOW: Millis = Millis(1_794_766_299_613);

    fn published() -> StateFile {
        let telegram = PlatformState {
            state: "connected",
            error_code: None,
            error_message: None,
            error_class: None,
            attempts: 0,
            next_retry_at: None,
            updated_at: NOW,
        };
        StateFile {
            record: ProcessRecord {
                pid: 7,
                kind: "hermes-gateway".into(),
                argv: vec!["x".into()],
                start_time: Some(3),
            },
            state: State::Running,
            exit_reason: None,
            restart_requested: false,
            active_agents: 2,
            platforms: [("telegram".into(), telegram)].into(),
            drain: None,
            restart_drain_timeout: None,
            updated_at: NOW,
        }
    }

    #[test]
    fn writes_documented_fields() {
        let home = tempfile::tempdir().unwrap();
        write(home.path(), &published(), Durable::Synced).unwrap();
        let at = "2026-11-15T18:11:39.613000+00:00";
        let telegram = json!({
            "state": "connected", "error_code": null, "error_message": null, "attempts": 0, "updated_at": at,
        });
        let want = json!({
            "pid": 7, "kind": "hermes-gateway", "argv": ["x"], "start_time": 3,
            "gateway_state": "running", "exit_reason": null, "restart_requested": false,
            "active_agents": 2, "platforms": {"telegram": telegram}, "updated_at": at,
        });
        assert_eq!(read(home.path()).map(Value::Object), Some(want));
        assert!(!std::fs::read_to_string(path(home.path())).unwrap().contains(['\n', ' ']));
    }

    #[test]
    fn keeps_foreign_fields_and_replaces_own() {
        let home = tempfile::tempdir().unwrap();
        let theirs = json!({
            "desired_state": "running", "served_profiles": ["a"], "x": {"y": 1}, "updated_at": 5, "pid": "?",
            "platforms": {"gone": {}}, "drain": {"kind": "external"}, "restart_drain_timeout": 9,
        });
        std::fs::write(path(home.path()), theirs.to_string()).unwrap();
        write(home.path(), &published(), Durable::Loose).unwrap();
        let read = read(home.path()).unwrap();
        for name in ["desired_state", "served_profiles", "x"] {
            assert_eq!(read[name], theirs[name], "{name}");
        }
        assert_eq!((&read["pid"], read["platforms"].get("gone")), (&json!(7), None));
        assert!(OPTIONAL.iter().all(|name| !read.contains_key(*name)));
    }

    #[test]
    fn writes_optional_fields_if_present() {
        let home = tempfile::tempdir().unwrap();
        let drain = Some(json!({"kind": "external", "principal": "nas"}));
        let state = StateFile { drain: drain.clone(), restart_drain_timeout: Some(60.0), ..published() };
        write(home.path(), &state, Durable::Loose).unwrap();
        let read = read(home.path()).unwrap();
        assert_eq!((read.get("drain"), &read["restart_drain_timeout"]), (drain.as_ref(), &json!(60.0)));
    }

    #[test]
    fn replaces_unreadable_file() {
        let home = tempfile::tempdir().unwrap();
        for_each_damage(&path(home.path()), |what| {
            let before = read(home.path());
            assert!(before.is_none_or(|fields| fields.is_empty()), "{what}");
            let written = write(home.path(), &published(), Durable::Loose);
            let impossible = what == "a directory";
            assert_eq!(written.is_err(), impossible, "{what}");
            assert_eq!(read(home.path()).is_none(), impossible, "{what}");
        });
        for home in NO_HOMES {
            assert_eq!(read(Path::new(home)), None, "{home:?}");
        }
    }

    #[test]
    fn only_live_running_gateway_is_busy_or_drainable() {
        let live = ProcessState::Live;
        let dead = ProcessState::Dead;
        for (state, agents, process, want) in [
            (json!("running"), json!(2), live, (2, true, true)),
            (json!("running"), json!(0), live, (0, false, true)),
            (json!("running"), json!(2), dead, (2, false, false)),
            (json!("draining"), json!(2), live, (2, false, false)),
            (json!("degraded"), json!(2), live, (2, false, false)),
            (json!("new word"), json!(2), live, (2, false, false)),
            (json!(null), json!(2), live, (2, false, false)),
            (json!("running"), json!("3"), live, (3, true, true)),
            (json!("running"), json!(-3), live, (0, false, true)),
            (json!("running"), json!("many"), live, (0, false, true)),
            (json!("running"), json!([1]), live, (0, false, true)),
            (json!("running"), json!(null), live, (0, false, true)),
        ] {
            let fields = Map::from_iter([("gateway_state".into(), state), ("active_agents".into(), agents)]);
            let load = GatewayLoad::of(&fields, process);
            assert_eq!((load.active_agents, load.busy, load.drainable), want, "{fields:?} {process:?}");
        }
        assert_eq!(GatewayLoad::of(&Map::new(), live), GatewayLoad::default());
    }
}
