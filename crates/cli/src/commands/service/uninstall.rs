//! `petasos service uninstall`: the way back. What is gone already is no error.

use std::io::ErrorKind;
use std::process::ExitCode;

use serde_json::json;

use super::Steps;
use crate::commands::Context;
use crate::failure::Failure;
use crate::print;
use crate::service::{Found, Service, Trouble, look};

/// `force`: go on without systemd, and also with somebody else's unit.
pub(super) fn uninstall(context: &Context, service: &Service, force: bool) -> Result<ExitCode, Failure> {
    let path = service.path();
    let mut steps = Steps::new(context, service);
    match look(path) {
        Ok(Found::Nothing) => {
            // An earlier removal may have been cut short just before this.
            let _nobody_to_tell = service.manager().reload();
            steps.did(format!("{} is not installed", service.name));
            return report(&steps);
        }
        Ok(Found::Foreign) if !force => {
            let failure = Failure::new(format!("{} was not written by petasos", path.display()));
            return Err(failure.next("look at it; --force removes it all the same"));
        }
        Ok(Found::Foreign | Found::Ours(_)) => {}
        Err(error) => return Err(Failure::new(format!("{} cannot be read: {error}", path.display()))),
    }
    let stopped = steps.tell("stop", "stopped");
    settle(&mut steps, stopped, force)?;
    let disabled = steps.tell("disable", "disabled");
    settle(&mut steps, disabled, force)?;
    remove(&mut steps)?;
    let reloaded = steps.reload();
    settle(&mut steps, reloaded, force)?;
    report(&steps)
}

/// Without systemd nothing can be running below it, and there is only the file to remove.
fn settle(steps: &mut Steps<'_>, told: Result<(), Trouble>, force: bool) -> Result<(), Failure> {
    let Err(trouble) = told else { return Ok(()) };
    if force || matches!(trouble, Trouble::Absent) {
        steps.note(trouble.to_string());
        return Ok(());
    }
    let service = steps.service;
    let rest = format!("{}, then petasos service uninstall --force", service.by_hand("disable --now"));
    Err(steps.stuck(&trouble, &rest))
}

fn remove(steps: &mut Steps<'_>) -> Result<(), Failure> {
    let path = steps.service.path();
    match std::fs::remove_file(path) {
        Ok(()) => steps.did(format!("removed {}", path.display())),
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
