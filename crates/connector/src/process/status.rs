//! `connector_state.json`: status for processes that cannot query the connector. Nothing depends on it; after a crash
//! it holds the last status.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use petasos_core::link::State as LinkState;
use petasos_gateway::shell::LinkHandle;
use petasos_gateway::{Error, clock};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::context::ConnectorContext;
use crate::instances::task::{InstanceCommand, InstanceStatus};

pub const STATE_FILE: &str = "connector_state.json";
const WRITE_INTERVAL: Duration = Duration::from_millis(500);

/// The last written status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectorStatus(pub Value);

impl ConnectorStatus {
    /// `None`: missing or unreadable.
    pub fn read(home: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(home.join(STATE_FILE)).ok()?).ok().map(Self)
    }
}

pub(crate) async fn run(connector: Arc<ConnectorContext>, links: Vec<LinkHandle>, listen: String) {
    let mut last = Value::Null;
    let started_at = clock::now();
    loop {
        let mut now = collect(&connector, &links).await;
        now["listen"] = json!(listen);
        now["url"] = json!(connector.url);
        now["pid"] = json!(std::process::id());
        now["started_at"] = json!(started_at.0);
        if now != last {
            match write(&connector.home, &now) {
                Ok(()) => last = now,
                Err(error) => tracing::warn!(%error, "cannot write connector_state.json"),
            }
        }
        petasos_runtime::select! {
            () = connector.shutdown.stopped() => return,
            () = tokio::time::sleep(WRITE_INTERVAL) => {}
        }
    }
}

async fn collect(connector: &Arc<ConnectorContext>, links: &[LinkHandle]) -> Value {
    let mut instances = vec![];
    for (id, mailbox) in connector.instances.running() {
        let (reply, status) = oneshot::channel();
        if mailbox.send(InstanceCommand::Inspect(reply)).await.is_err() {
            continue;
        }
        if let Ok(InstanceStatus { mode, backlog, gateways, counters }) = status.await {
            instances.push(json!({
                "id": id, "mode": mode, "backlog": backlog, "gateways": gateways,
                "superseded": counters.superseded, "put_aside": counters.dead_lettered,
            }));
        }
    }
    instances.sort_by_key(|it| it["id"].to_string());
    let links: Vec<_> = links.iter().map(|link| json!({ "name": link.name, "state": state(link) })).collect();
    let recoveries = connector.db.file_status().borrow().recoveries;
    let limits: Vec<_> = connector.adapters.iter().flat_map(|adapter| adapter.limits().all()).collect();
    json!({
        "links": links, "instances": instances, "rate_limits": limits,
        "store_trouble": connector.db.problem(), "store_recoveries": recoveries,
    })
}

fn state(link: &LinkHandle) -> &'static str {
    match link.link.borrow().state {
        LinkState::Connecting { .. } => "connecting",
        LinkState::Up { .. } => "up",
        LinkState::Waiting { .. } => "waiting",
        LinkState::Fatal { .. } => "fatal",
        LinkState::Paused => "paused",
    }
}

/// Atomic.
fn write(home: &Path, state: &Value) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::Io(error.to_string());
    let fresh = home.join(format!("{STATE_FILE}~"));
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&fresh);
    file.and_then(|mut file| file.write_all(state.to_string().as_bytes())).map_err(failed)?;
    std::fs::rename(&fresh, home.join(STATE_FILE)).map_err(failed)
}
