//! Markers that are left in the home, and the installed service.

use std::time::Duration;

use petasos_cli::commands::drain::{marker, request_summary};
use petasos_cli::service::{InstalledUnit, Scope, Service, read};
use petasos_config::Home;
use petasos_core::lifecycle::marker::MarkerStatus;
use petasos_gateway::home::peers::SignalMarker;

use super::Finding;

const MARKER_LIFETIME: Duration = Duration::from_secs(60);

pub(super) fn service() -> Finding {
    for scope in [Scope::User, Scope::System] {
        let Some(service) = Service::new(None, scope, |name| std::env::var_os(name)) else { continue };
        let path = service.path().display();
        match read(service.path()) {
            Ok(InstalledUnit::Ours(_)) => return Finding::ok("service", format!("installed: {path}")),
            Ok(InstalledUnit::Foreign) => {
                return Finding::ok("service", format!("{path}, not written by petasos"));
            }
            Ok(InstalledUnit::Missing) | Err(_) => {}
        }
    }
    Finding::ok("service", "not installed (petasos service install adds a systemd service)")
}

pub(super) fn drain(home: &Home) -> Option<Finding> {
    let (marker, status) = marker(home)?;
    let summary = request_summary(marker.principal.as_deref(), marker.requested(), marker.reason.as_deref());
    Some(match status {
        MarkerStatus::Active => {
            Finding::warn("drain", format!("no new turns start: {summary}"), "petasos resume ends the drain")
        }
        MarkerStatus::OtherBoot | MarkerStatus::Expired { .. } => {
            let detail = format!("an expired marker: {summary}");
            Finding::warn("drain", detail, "petasos resume removes it")
        }
    })
}

pub(super) fn stale_markers(home: &Home) -> Vec<Finding> {
    let stale = |marker: &SignalMarker| {
        let path = marker.path(home.path());
        let written = std::fs::symlink_metadata(&path).ok()?.modified().ok()?;
        let old = written.elapsed().is_ok_and(|age| age > MARKER_LIFETIME);
        let detail = format!("{} is left over and has no effect", path.display());
        old.then(|| Finding::warn("marker", detail, format!("rm {}", path.display())))
    };
    [SignalMarker::Takeover, SignalMarker::PlannedStop].iter().filter_map(stale).collect()
}
