//! `petasos service uninstall`: stops, disables and removes the unit. Completed steps are no error, so it can
//! be repeated.

use std::io::ErrorKind;
use std::process::ExitCode;

use serde_json::json;

use super::Steps;
use crate::commands::Context;
use crate::failure::Failure;
use crate::print;
use crate::service::{InstalledUnit, Service, SystemctlError, read};

/// `force`: continue without systemd, and remove a foreign unit as well.
pub(super) fn uninstall(context: &Context, service: &Service, force: bool) -> Result<ExitCode, Failure> {
    let path = service.path();
    let mut steps = Steps::new(context, service);
    match read(path) {
        Ok(InstalledUnit::Missing) => {
            // An earlier removal may have stopped just before this.
            let _ignored = service.manager().reload();
            steps.record(format!("{} is not installed", service.name));
            return report(&steps);
        }
        Ok(InstalledUnit::Foreign) if !force => {
            let failure = Failure::new(format!("{} was not written by petasos", path.display()));
            return Err(failure.next("check the file; --force removes it anyway"));
        }
        Ok(InstalledUnit::Foreign | InstalledUnit::Ours(_)) => {}
        Err(error) => return Err(Failure::new(format!("{} cannot be read: {error}", path.display()))),
    }
    let stopped = steps.change("stop", "stopped");
    check_step(&mut steps, stopped, force)?;
    let disabled = steps.change("disable", "disabled");
    check_step(&mut steps, disabled, force)?;
    remove(&mut steps)?;
    let reloaded = steps.reload();
    check_step(&mut steps, reloaded, force)?;
    report(&steps)
}

/// Without systemd the service cannot be running, and only the file is left to remove.
fn check_step(steps: &mut Steps<'_>, result: Result<(), SystemctlError>, force: bool) -> Result<(), Failure> {
    let Err(error) = result else { return Ok(()) };
    if force || matches!(error, SystemctlError::NotFound) {
        steps.warn(error.to_string());
        return Ok(());
    }
    let service = steps.service;
    let rest = format!("{}, then petasos service uninstall --force", service.manual_command("disable --now"));
    Err(steps.failure(&error, &rest))
}

fn remove(steps: &mut Steps<'_>) -> Result<(), Failure> {
    let path = steps.service.path();
    match std::fs::remove_file(path) {
        Ok(()) => steps.record(format!("removed {}", path.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => {
            let failure = Failure::new(format!("{} cannot be removed: {error}", path.display()));
            return Err(failure.next("remove it as its owner, then: systemctl daemon-reload"));
        }
    }
    Ok(())
}

fn report(steps: &Steps<'_>) -> Result<ExitCode, Failure> {
    if steps.context.json {
        print::json(&json!({
            "name": steps.service.name, "scope": steps.service.scope, "unit": steps.service.path(),
            "steps": steps.done, "warnings": steps.notes,
        }))?;
    }
    Ok(ExitCode::SUCCESS)
}
