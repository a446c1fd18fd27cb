//! `petasos service install`: checks the configuration, writes the unit, enables and starts it.

use std::io::ErrorKind;
use std::process::ExitCode;

use petasos_config::Settings;
use serde_json::json;

use super::{Steps, program, unit_text, user};
use crate::arguments::ServiceInstallArguments;
use crate::commands::{Context, StartCheck, print_warnings};
use crate::failure::{Failure, WRITABLE_ADVICE};
use crate::service::{InstalledUnit, Scope, Service, read, replace};
use crate::{lock, print};

pub(super) fn install(
    context: &Context,
    service: &Service,
    options: &ServiceInstallArguments,
    can_start: StartCheck<'_>,
) -> Result<ExitCode, Failure> {
    let mut resolved = petasos_config::load(&context.home);
    let text = unit_text(context, service, &resolved.settings)?;
    if options.print {
        return show(context, service, &text);
    }
    can_start(&context.home, &mut resolved).map_err(|problems| Failure::from_problems(&problems))?;
    home(context, service)?;
    let changed = differs(service, &text, options)?;
    print_warnings(&resolved.problems);
    let mut steps = Steps::new(context, service);
    if changed {
        replace(service.path(), &text).map_err(|error| write_failure(context, service, &error))?;
        steps.record(format!("wrote {}", service.path().display()));
    } else {
        steps.record(format!("{} is up to date", service.path().display()));
    }
    let rest = format!("{0} daemon-reload && {0} enable --now {1}", service.manager(), service.name);
    steps.reload().map_err(|error| steps.failure(&error, &rest))?;
    steps.change("enable", "enabled").map_err(|error| steps.failure(&error, &rest))?;
    if !options.no_start {
        start(&mut steps, changed)?;
    }
    warn_about_limits(&mut steps, &resolved.settings);
    if context.json {
        print::json(&json!({
            "name": service.name, "scope": service.scope, "unit": service.path(), "changed": changed,
            "started": !options.no_start, "steps": steps.done, "warnings": steps.notes,
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
        print::outln!("{}", text.trim_end());
    }
    Ok(ExitCode::SUCCESS)
}

/// A system service needs an existing home, whose owner it runs as.
fn home(context: &Context, service: &Service) -> Result<(), Failure> {
    let path = context.home.path().display();
    match service.scope {
        Scope::System if !context.home.path().is_dir() => {
            let failure =
                Failure::new(format!("{path} does not exist, so the user of the service is unknown"));
            Err(failure.next(format!("create it for that user: install -d -m 700 -o USER {path}")))
        }
        Scope::System => Ok(()),
        Scope::User => context.home.create().map_err(|error| {
            Failure::new(format!("{path} cannot be created: {error}")).next(WRITABLE_ADVICE)
        }),
    }
}

/// Whether the unit must be written. A foreign unit is replaced only with `--force`.
fn differs(service: &Service, text: &str, options: &ServiceInstallArguments) -> Result<bool, Failure> {
    let path = service.path().display();
    match read(service.path()) {
        Ok(InstalledUnit::Missing) => Ok(true),
        Ok(InstalledUnit::Ours(existing)) => Ok(existing != text),
        Ok(InstalledUnit::Foreign) if options.force => Ok(true),
        Ok(InstalledUnit::Foreign) => {
            let failure = Failure::new(format!("{path} was not written by petasos"));
            Err(failure.next("check the file; --force replaces it, --name NAME creates another service"))
        }
        Err(error) => Err(Failure::new(format!("{path} cannot be read: {error}"))),
    }
}

fn write_failure(context: &Context, service: &Service, error: &std::io::Error) -> Failure {
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

/// A gateway that was started by hand holds the home, so the service would fail.
fn start(steps: &mut Steps<'_>, changed: bool) -> Result<(), Failure> {
    let service = steps.service;
    let rest = service.manual_command("start");
    let state = service.manager().show(&service.name).map_err(|error| steps.failure(&error, &rest))?;
    let holder = lock::holder(&steps.context.home.lock_file()).map(|record| record.process.pid);
    let ours = matches!(state.active.as_str(), "active" | "activating" | "reloading" | "deactivating");
    if let (Some(pid), false) = (holder, ours) {
        let what = format!("installed, but not started: another gateway (pid {pid}) runs on this home");
        return Err(Failure::new(what).next(format!("petasos stop, then {rest}")));
    }
    steps.change("start", "started").map_err(|error| {
        let journal = match service.scope {
            Scope::User => format!("journalctl --user -u {} -e", service.name),
            Scope::System => format!("journalctl -u {} -e", service.name),
        };
        steps.failure(&error, &format!("{journal} shows the reason; then {rest}"))
    })?;
    if ours && changed {
        steps.warn(format!("it runs with the old unit until you run: {}", service.manual_command("restart")));
    }
    Ok(())
}

/// Warnings about settings that may keep the service from working later.
fn warn_about_limits(steps: &mut Steps<'_>, settings: &Settings) {
    let shell_variables = settings.variables();
    if !shell_variables.is_empty() {
        steps.warn(format!(
            "the service does not see the variables of this shell: {}; put them into {}",
            shell_variables.join(", "),
            steps.context.home.dotenv_file().display()
        ));
    }
    match steps.service.scope {
        Scope::User if !lingers() => steps.warn(
            "the service stops when you log out and starts when you log in; to keep it running: loginctl enable-linger",
        ),
        Scope::System if user(Scope::System, steps.context.home.path()).is_none() => steps.warn(
            "the agent and its tools run as root, because root owns the home; change its owner (chown -R) \
             and install again",
        ),
        Scope::User | Scope::System => {}
    }
}

fn lingers() -> bool {
    let user = std::env::var_os("USER").or_else(|| std::env::var_os("LOGNAME"));
    user.is_some_and(|name| std::path::Path::new("/var/lib/systemd/linger").join(name).exists())
}
