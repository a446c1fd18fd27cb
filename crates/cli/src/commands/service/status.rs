//! `petasos service status`: what lies on disk, and what systemd makes of it.

use std::process::ExitCode;

use serde_json::json;

use super::unit_text;
use crate::commands::Context;
use crate::failure::Failure;
use crate::print::{self, DIM, say, styled};
use crate::service::{Found, Scope, Service, State, look};

pub(super) fn status(context: &Context, service: &Service) -> Result<ExitCode, Failure> {
    let path = service.path();
    let found =
        look(path).map_err(|error| Failure::new(format!("{} cannot be read: {error}", path.display())))?;
    let wanted = unit_text(context, service, &petasos_config::load(&context.home).settings)?;
    let asked = service.manager().ask(&service.name);
    let state = asked.as_ref().ok();
    if context.json {
        print::json(&json!({
            "name": service.name, "scope": service.scope, "unit": path,
            "installed": found != Found::Nothing,
            "ours": matches!(found, Found::Ours(_)),
            "up_to_date": found == Found::Ours(wanted),
            "systemd": state,
            "trouble": asked.as_ref().err().map(ToString::to_string),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let line = |name: &str, text: &str| say!("  {} {text}", styled(DIM, &format!("{name:<8}")));
    let whose = match service.scope {
        Scope::User => "of this user",
        Scope::System => "of the machine",
    };
    say!("{} {}", service.name, styled(DIM, &format!("(a service {whose})")));
    line("unit", &path.display().to_string());
    line("", about(&found, &wanted));
    match &asked {
        Ok(state) => {
            line("enabled", word(&state.enabled));
            line("active", &activity(state));
        }
        Err(trouble) => line("systemd", &format!("cannot be asked: {trouble}")),
    }
    Ok(ExitCode::SUCCESS)
}

fn about(found: &Found, wanted: &str) -> &'static str {
    match found {
        Found::Nothing => "not installed; petasos service install does that",
        Found::Foreign => "installed, but not by petasos",
        Found::Ours(there) if there == wanted => "installed, up to date",
        Found::Ours(_) => "installed, but not as it would be now; petasos service install renews it",
    }
}

fn activity(state: &State) -> String {
    let mut told = match state.sub.as_str() {
        "" => word(&state.active).to_owned(),
        sub => format!("{} ({sub})", word(&state.active)),
    };
    if let Some(pid) = state.pid {
        told += &format!(", pid {pid}");
    }
    if let (Some(since), "active") = (&state.since, state.active.as_str()) {
        told += &format!(", since {since}");
    }
    told
}

/// systemd says nothing about units it does not know.
fn word(said: &str) -> &str {
    if said.is_empty() { "no" } else { said }
}
