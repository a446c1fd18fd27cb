//! `connector_state.json`: what the connector is at, for whoever cannot ask it. Nothing depends on it; after a crash it
//! says what was true last.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use petasos_core::link::State as LinkState;
use petasos_gateway::shell::LinkHandle;
use petasos_gateway::{Error, clock};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::instance::{Ask, Seen};
use crate::shell::Shell;

pub const STATE: &str = "connector_state.json";
const EVERY: Duration = Duration::from_millis(500);

/// As it was last written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status(pub Value);

impl Status {
    /// `None`: nothing was written yet, or nothing that can be read.
    pub fn read(home: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(home.join(STATE)).ok()?).ok().map(Self)
    }
}

pub(crate) async fn run(shell: Arc<Shell>, links: Vec<LinkHandle>, listen: String) {
    let (mut last, started_at) = (Value::Null, clock::now());
    loop {
        let mut now = look(&shell, &links).await;
        now["listen"] = json!(listen);
        now["url"] = json!(shell.url);
        now["pid"] = json!(std::process::id());
        now["started_at"] = json!(started_at.0);
        if now != last {
            match write(&shell.home, &now) {
                Ok(()) => last = now,
                Err(error) => tracing::warn!(%error, "connector_state.json cannot be written"),
            }
        }
        petasos_runtime::select! {
            () = shell.stopper.stopped() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

async fn look(shell: &Arc<Shell>, links: &[LinkHandle]) -> Value {
    let mut instances = vec![];
    for (id, mailbox) in shell.instances.awake() {
        let (ask, seen) = oneshot::channel();
        if mailbox.send(Ask::Look(ask)).await.is_err() {
            continue;
        }
        if let Ok(Seen { mode, backlog, gateways, counts }) = seen.await {
            instances.push(json!({
                "id": id, "mode": mode, "backlog": backlog, "gateways": gateways,
                "superseded": counts.superseded, "put_aside": counts.put_aside,
            }));
        }
    }
    instances.sort_by_key(|it| it["id"].to_string());
    let links: Vec<_> = links.iter().map(|link| json!({ "name": link.name, "state": state(link) })).collect();
    let recoveries = shell.db.upkeep().borrow().recoveries;
    let limits: Vec<_> = shell.adapters.iter().flat_map(|adapter| adapter.limits().all()).collect();
    json!({
        "links": links, "instances": instances, "rate_limits": limits,
        "store_trouble": shell.db.trouble(), "store_recoveries": recoveries,
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

/// Whoever reads sees the old one or the new one.
fn write(home: &Path, state: &Value) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::Io(error.to_string());
    let fresh = home.join(format!("{STATE}~"));
    std::fs::write(&fresh, state.to_string()).map_err(failed)?;
    std::fs::rename(&fresh, home.join(STATE)).map_err(failed)
}
