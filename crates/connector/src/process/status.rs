//! `connector_state.json`: status for processes that cannot query the connector. Nothing depends on it; after a crash
//! it holds the last status.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use petasos_core::link::State as LinkState;
use petasos_gateway::shell::{Db, LinkHandle, ShutdownHandle};
use petasos_gateway::{Error, clock};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::adapters::Adapters;
use crate::instances::task::{InstanceCommand, InstanceStatus, Instances};

const STATE_FILE: &str = "connector_state.json";
const WRITE_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectorStatus(pub Value);

impl ConnectorStatus {
    /// `None`: missing or unreadable.
    pub fn read(home: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(home.join(STATE_FILE)).ok()?).ok().map(Self)
    }
}

#[derive(Debug)]
pub(crate) struct StatusWriter {
    pub(crate) db: Db,
    pub(crate) adapters: Arc<Adapters>,
    pub(crate) instances: Arc<Instances>,
    pub(crate) links: Vec<LinkHandle>,
    pub(crate) home: PathBuf,
    pub(crate) listen: String,
    /// Public address for gateways.
    pub(crate) url: String,
    pub(crate) shutdown: ShutdownHandle,
}

impl StatusWriter {
    pub(crate) async fn run(self) {
        let mut last = Value::Null;
        let started_at = clock::now();
        loop {
            let mut now = self.collect().await;
            now["started_at"] = json!(started_at.0);
            if now != last {
                match write(&self.home, &now) {
                    Ok(()) => last = now,
                    Err(error) => tracing::warn!(%error, "cannot write connector_state.json"),
                }
            }
            petasos_runtime::select! {
                () = self.shutdown.stopped() => return,
                () = clock::sleep(WRITE_INTERVAL) => {}
            }
        }
    }

    async fn collect(&self) -> Value {
        let mut instances = vec![];
        for (id, mailbox) in self.instances.running() {
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
        let links: Vec<_> =
            self.links.iter().map(|link| json!({ "name": link.name, "state": state(link) })).collect();
        let recoveries = self.db.file_status().borrow().recoveries;
        let limits: Vec<_> = self.adapters.iter().flat_map(|adapter| adapter.limits().all()).collect();
        json!({
            "links": links, "instances": instances, "rate_limits": limits,
            "store_trouble": self.db.problem(), "store_recoveries": recoveries,
            "listen": self.listen, "url": self.url, "pid": std::process::id(),
        })
    }
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

fn write(home: &Path, state: &Value) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::Io(error.to_string());
    let fresh = home.join(format!("{STATE_FILE}~"));
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&fresh);
    file.and_then(|mut file| file.write_all(state.to_string().as_bytes())).map_err(failed)?;
    std::fs::rename(&fresh, home.join(STATE_FILE)).map_err(failed)
}
