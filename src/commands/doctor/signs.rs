//! What others left in the home, and who looks after the gateway.

use std::time::Duration;

use petasos_cli::commands::drain::{asked_for, marker};
use petasos_cli::service::{Found, Scope, Service, look};
use petasos_config::Home;
use petasos_core::lifecycle::marker::Standing;
use petasos_gateway::home::peers::Peer;

use super::Finding;

/// A marker that names a process means nothing after this.
const MARKER_LIFE: Duration = Duration::from_secs(60);

/// Not everybody wants one, so none is nothing to worry about.
pub(super) fn service() -> Finding {
    for scope in [Scope::User, Scope::System] {
        let Some(service) = Service::new(None, scope, |name| std::env::var_os(name)) else { continue };
        let path = service.path().display();
        match look(service.path()) {
            Ok(Found::Ours(_)) => return Finding::ok("service", format!("installed: {path}")),
            Ok(Found::Foreign) => return Finding::ok("service", format!("{path}, not written by petasos")),
            Ok(Found::Nothing) | Err(_) => {}
        }
    }
    Finding::ok("service", "not installed (petasos service install lets systemd keep the gateway running)")
}

/// Only what is there is worth a line.
pub(super) fn drain(home: &Home) -> Option<Finding> {
    let (marker, standing) = marker(home)?;
    let asked = asked_for(marker.principal.as_deref(), marker.requested(), marker.reason.as_deref());
    Some(match standing {
        Standing::Active => {
            Finding::warn("drain", format!("no new turns start: {asked}"), "petasos resume ends it")
        }
        Standing::OtherBoot | Standing::Expired { .. } => {
            let detail = format!("a marker that does not count any more: {asked}");
            Finding::warn("drain", detail, "petasos resume removes it")
        }
    })
}

pub(super) fn left_over(home: &Home) -> Vec<Finding> {
    let stale = |peer: &Peer| {
        let path = peer.path(home.path());
        let written = std::fs::symlink_metadata(&path).ok()?.modified().ok()?;
        let old = written.elapsed().is_ok_and(|age| age > MARKER_LIFE);
        let detail = format!("{} is left over and means nothing", path.display());
        old.then(|| Finding::warn("marker", detail, format!("rm {}", path.display())))
    };
    [Peer::Takeover, Peer::PlannedStop].iter().filter_map(stale).collect()
}
