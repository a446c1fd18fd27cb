//! `petasos service install`: checks, writes the unit, enables it, starts it.

use std::io::ErrorKind;
use std::process::ExitCode;

use petasos_config::Settings;
use serde_json::json;

use super::{Steps, program, unit_text, user};
use crate::arguments::ServiceInstall;
use crate::commands::{Check, Context, warn};
use crate::failure::{Failure, WRITABLE};
use crate::service::{Found, Scope, Service, look, put};
use crate::{lock, print};

pub(super) fn install(
    context: &Context,
    service: &Service,
    how: &ServiceInstall,
    can_start: Check<'_>,
) -> Result<ExitCode, Failure> {
    let mut resolved = petasos_config::load(&context.home);
    let text = unit_text(context, service, &resolved.settings)?;
    if how.print {
        return show(context, service, &text);
    }
    can_start(&context.home, &mut resolved).map_err(|problems| Failure::of_problems(&problems))?;
    home(context, service)?;
    let changed = differs(service, &text, how)?;
    warn(&resolved.problems);
    let mut steps = Steps::new(context, service);
    if changed {
        put(service.path(), &text).map_err(|error| unwritten(context, service, &error))?;
        steps.did(format!("wrote {}", service.path().display()));
    } else {
        steps.did(format!("{} is up to date", service.path().display()));
    }
    let rest = format!("{0} daemon-reload && {0} enable --now {1}", service.manager(), service.name);
    steps.reload().map_err(|trouble| steps.stuck(&trouble, &rest))?;
    steps.tell("enable", "enabled").map_err(|trouble| steps.stuck(&trouble, &rest))?;
    if !how.no_start {
        start(&mut steps, changed)?;
    }
    remarks(&mut steps, &resolved.settings);
    if context.json {
        print::json(&json!({
            "name": service.name, "scope": service.scope, "unit": service.path(), "changed": changed,
            "started": !how.no_start, "steps": steps.done, "warnings": steps.notes,
        }))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(context: &Context, service: &Service, text: &str) -> Result<ExitCode, Failure> {
    if context.json {
        print::json(
            &json!({ "name": service.name, "scope": service.scope, "unit": service.path(), "text": text }),
        )?;
    } else {
        print::say!("{}", text.trim_end());
    }
    Ok(ExitCode::SUCCESS)
}

/// The home must be there and belong to whom the service is to run as.
fn home(context: &Context, service: &Service) -> Result<(), Failure> {
    let path = context.home.path().display();
    match service.scope {
        Scope::System if !context.home.path().is_dir() => {
            let failure = Failure::new(format!("{path} does not exist, so nobody owns the service"));
            Err(failure.next(format!("make it for that user: install -d -m 700 -o USER {path}")))
        }
        Scope::System => Ok(()),
        Scope::User => context
            .home
            .create()
            .map_err(|error| Failure::new(format!("{path} cannot be created: {error}")).next(WRITABLE)),
    }
}

/// Whether the unit has to be written. One that is not ours is only replaced on request.
fn differs(service: &Service, text: &str, how: &ServiceInstall) -> Result<bool, Failure> {
    let path = service.path().display();
    match look(service.path()) {
        Ok(Found::Nothing) => Ok(true),
        Ok(Found::Ours(there)) => Ok(there != text),
        Ok(Found::Foreign) if how.force => Ok(true),
        Ok(Found::Foreign) => {
            let failure = Failure::new(format!("{path} was not written by petasos"));
            Err(failure.next("look at it; --force replaces it, --name NAME makes another service"))
        }
        Err(error) => Err(Failure::new(format!("{path} cannot be read: {error}"))),
    }
}

fn unwritten(context: &Context, service: &Service, error: &std::io::Error) -> Failure {
    let failure = Failure::new(format!("{} cannot be written: {error}", service.path().display()));
    match (service.scope, error.kind(), program()) {
        (Scope::System, ErrorKind::PermissionDenied, Ok(program)) => failure.next(format!(
            "as root: sudo {} --home {} service install --system",
            program.display(),
            context.home.path().display()
        )),
        (Scope::User | Scope::System, _, _) => failure.next("make its directory writable"),
    }
}

/// A gateway that somebody runs by hand holds the home: the service would fail until it is gone.
fn start(steps: &mut Steps<'_>, changed: bool) -> Result<(), Failure> {
    let service = steps.service;
    let rest = service.by_hand("start");
    let state = service.manager().ask(&service.name).map_err(|trouble| steps.stuck(&trouble, &rest))?;
    let holder = lock::holder(&steps.context.home.lock_file()).map(|record| record.process.pid);
    let ours = matches!(state.active.as_str(), "active" | "activating" | "reloading" | "deactivating");
    if let (Some(pid), false) = (holder, ours) {
        let what = format!("installed, but not started: another gateway (pid {pid}) runs on this home");
        return Err(Failure::new(what).next(format!("petasos stop, then {rest}")));
    }
    steps.tell("start", "started").map_err(|trouble| {
        let journal = match service.scope {
            Scope::User => format!("journalctl --user -u {} -e", service.name),
            Scope::System => format!("journalctl -u {} -e", service.name),
        };
        steps.stuck(&trouble, &format!("{journal} shows why; then {rest}"))
    })?;
    if ours && changed {
        steps.note(format!("it runs with the older unit until: {}", service.by_hand("restart")));
    }
    Ok(())
}

/// What works now and may not work later.
fn remarks(steps: &mut Steps<'_>, settings: &Settings) {
    let only_here = settings.variables();
    if !only_here.is_empty() {
        steps.note(format!(
            "the service does not see the variables of this shell: {}; put them into {}",
            only_here.join(", "),
            steps.context.home.dotenv_file().display()
        ));
    }
    match steps.service.scope {
        Scope::User if !lingers() => steps.note(
            "the service ends when you log out, and starts when you log in; to keep it: loginctl enable-linger",
        ),
        Scope::System if user(Scope::System, steps.context.home.path()).is_none() => steps.note(
            "the agent and its tools run as root, because root owns the home; give it to another user (chown -R) \
             and install again",
        ),
        Scope::User | Scope::System => {}
    }
}

fn lingers() -> bool {
    let user = std::env::var_os("USER").or_else(|| std::env::var_os("LOGNAME"));
    user.is_some_and(|name| std::path::Path::new("/var/lib/systemd/linger").join(name).exists())
}
