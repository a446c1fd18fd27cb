//! `petasos service status`: the unit file, and its state in systemd.

use std::process::ExitCode;

use serde_json::json;

use super::unit_text;
use crate::commands::Context;
use crate::failure::Failure;
use crate::print::{self, DIM, outln, styled};
use crate::service::{InstalledUnit, Scope, Service, UnitState, read};

pub(super) fn status(context: &Context, service: &Service) -> Result<ExitCode, Failure> {
    let path = service.path();
    let found =
        read(path).map_err(|error| Failure::new(format!("{} cannot be read: {error}", path.display())))?;
    let expected = unit_text(context, service, &petasos_config::load(&context.home).settings)?;
    let reported = service.manager().show(&service.name);
    let state = reported.as_ref().ok();
    if context.json {
        print::json(&json!({
            "name": service.name, "scope": service.scope, "unit": path,
            "installed": found != InstalledUnit::Missing,
            "ours": matches!(found, InstalledUnit::Ours(_)),
            "up_to_date": found == InstalledUnit::Ours(expected),
            "systemd": state,
            "trouble": reported.as_ref().err().map(ToString::to_string),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let line = |name: &str, text: &str| outln!("  {} {text}", styled(DIM, &format!("{name:<8}")));
    let kind = match service.scope {
        Scope::User => "user service",
        Scope::System => "system service",
    };
    outln!("{} {}", service.name, styled(DIM, &format!("({kind})")));
    line("unit", &path.display().to_string());
    line("", about(&found, &expected));
    match &reported {
        Ok(state) => {
            line("enabled", or_no(&state.enabled));
            line("active", &activity(state));
        }
        Err(error) => line("systemd", &format!("unavailable: {error}")),
    }
    Ok(ExitCode::SUCCESS)
}

fn about(found: &InstalledUnit, expected: &str) -> &'static str {
    match found {
        InstalledUnit::Missing => "not installed; petasos service install installs it",
        InstalledUnit::Foreign => "installed, but not by petasos",
        InstalledUnit::Ours(existing) if existing == expected => "installed, up to date",
        InstalledUnit::Ours(_) => "installed, but outdated; petasos service install updates it",
    }
}

fn activity(state: &UnitState) -> String {
    let mut text = match state.sub.as_str() {
        "" => or_no(&state.active).to_owned(),
        sub => format!("{} ({sub})", or_no(&state.active)),
    };
    if let Some(pid) = state.pid {
        text += &format!(", pid {pid}");
    }
    if let (Some(since), "active") = (&state.since, state.active.as_str()) {
        text += &format!(", since {since}");
    }
    text
}

/// systemd reports empty properties for unknown units.
fn or_no(value: &str) -> &str {
    if value.is_empty() { "no" } else { value }
}
