//! `petasos service`: systemd keeps the gateway running.

mod install;
mod status;
mod uninstall;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use petasos_config::Settings;
use petasos_config::keys::gateway;

use super::{Check, Context};
use crate::arguments::{self, ServiceAction};
use crate::failure::Failure;
use crate::print::{GOOD, ODD, say, styled, warn_of};
use crate::service::{Scope, Service, Trouble, Unit};

pub fn service(
    context: &Context,
    wanted: &arguments::Service,
    can_start: Check<'_>,
) -> Result<ExitCode, Failure> {
    let scope = if wanted.system { Scope::System } else { Scope::User };
    let service = Service::new(wanted.name.as_deref(), scope, |name| std::env::var_os(name));
    let service = service.ok_or_else(|| {
        Failure::new("there is no place for a unit: neither XDG_CONFIG_HOME nor HOME is set")
            .next("set HOME, or install a service of the machine with --system")
    })?;
    match &wanted.action {
        ServiceAction::Install(how) => install::install(context, &service, how, can_start),
        ServiceAction::Uninstall { force } => uninstall::uninstall(context, &service, *force),
        ServiceAction::Status => status::status(context, &service),
    }
}

/// The unit as it would be written now.
fn unit_text(context: &Context, service: &Service, settings: &Settings) -> Result<String, Failure> {
    let unit = Unit {
        service: &service.name,
        scope: service.scope,
        program: &program()?,
        home: context.home.path(),
        user: user(service.scope, context.home.path()),
        drain: petasos_config::drain_timeout(settings),
        watchdog: settings.get(&gateway::WATCHDOG),
    };
    unit.text().map_err(|unfit| Failure::new(unfit.to_string()).next("move it to a plainer path"))
}

/// Whoever owns the home runs the service; a user's own manager has no choice.
fn user(scope: Scope, home: &Path) -> Option<u32> {
    match scope {
        Scope::User => None,
        Scope::System => std::fs::metadata(home).ok().map(|found| found.uid()).filter(|id| *id != 0),
    }
}

fn program() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe().ok().filter(|path| path.exists());
    program.ok_or_else(|| {
        Failure::new("the file of this program cannot be found; it may have been replaced just now")
            .next("try again")
    })
}

/// What was done: told as it happens, and again if something fails.
struct Steps<'a> {
    context: &'a Context,
    service: &'a Service,
    done: Vec<String>,
    notes: Vec<String>,
}

impl<'a> Steps<'a> {
    fn new(context: &'a Context, service: &'a Service) -> Self {
        Self { context, service, done: Vec::new(), notes: Vec::new() }
    }

    fn did(&mut self, what: impl Into<String>) {
        let what = what.into();
        if !self.context.json {
            say!("{} {what}", styled(GOOD, "ok"));
        }
        self.done.push(what);
    }

    /// Something to know about, which stops nothing.
    fn note(&mut self, what: impl Into<String>) {
        let what = what.into();
        if !self.context.json {
            warn_of!("{} {what}", styled(ODD, "warning:"));
        }
        self.notes.push(what);
    }

    /// Enables, starts, stops or disables the service.
    fn tell(&mut self, verb: &'static str, done: &str) -> Result<(), Trouble> {
        self.service.manager().tell(verb, &self.service.name)?;
        self.did(format!("{done} {}", self.service.name));
        Ok(())
    }

    fn reload(&mut self) -> Result<(), Trouble> {
        self.service.manager().reload()?;
        self.did("made systemd read its units again");
        Ok(())
    }

    /// `rest`: what a person can do by hand when systemd is there.
    fn stuck(&self, trouble: &Trouble, rest: &str) -> Failure {
        let before = match self.done.as_slice() {
            [] => "nothing was changed".to_owned(),
            done => format!("done before that: {}", done.join("; ")),
        };
        let advice = match (trouble, self.service.scope) {
            (Trouble::Absent, _) => {
                "this needs systemd; any other supervisor can run `petasos run` and start it again after exit code 75"
                    .to_owned()
            }
            (Trouble::Unstartable(_) | Trouble::Refused { .. }, Scope::User) => format!(
                "`systemctl --user` works in a login of the user itself, not below sudo or su; there: {rest}"
            ),
            (Trouble::Unstartable(_) | Trouble::Refused { .. }, Scope::System) => format!("as root: {rest}"),
        };
        Failure::new(format!("{trouble} ({before})")).next(advice)
    }
}
