//! `petasos service`: installs, removes and shows the systemd service.

mod install;
mod status;
mod uninstall;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use petasos_config::Settings;
use petasos_config::keys::{agent, gateway};

use crate::arguments::{ServiceAction, ServiceArguments};
use crate::commands::{Context, StartCheck};
use crate::failure::Failure;
use crate::print::{SUCCESS, WARNING, errln, outln, styled};
use crate::service::{Scope, Service, SystemctlError, UnitFile};

pub fn service(
    context: &Context,
    arguments: &ServiceArguments,
    can_start: StartCheck<'_>,
) -> Result<ExitCode, Failure> {
    let scope = if arguments.system { Scope::System } else { Scope::User };
    let service = Service::new(arguments.name.as_deref(), scope, |name| std::env::var_os(name));
    let service = service.ok_or_else(|| {
        Failure::new("the directory for units is unknown: neither XDG_CONFIG_HOME nor HOME is set")
            .next("set HOME, or install a system service with --system")
    })?;
    match &arguments.action {
        ServiceAction::Install(options) => install::install(context, &service, options, can_start),
        ServiceAction::Uninstall { force } => uninstall::uninstall(context, &service, *force),
        ServiceAction::Status => status::status(context, &service),
    }
}

fn unit_text(context: &Context, service: &Service, settings: &Settings) -> Result<String, Failure> {
    let unit = UnitFile {
        service: &service.name,
        scope: service.scope,
        program: &program()?,
        home: context.home.path(),
        user: user(service.scope, context.home.path()),
        writable: &writable(context, service.scope, settings),
        drain: petasos_config::drain_timeout(settings),
        watchdog: settings.get(&gateway::WATCHDOG),
    };
    unit.text()
        .map_err(|error| Failure::new(error.to_string()).next("move it to a path without such characters"))
}

/// A system service runs as the owner of the home; `None` for root. A user service has no choice.
fn user(scope: Scope, home: &Path) -> Option<u32> {
    match scope {
        Scope::User => None,
        Scope::System => std::fs::metadata(home).ok().map(|found| found.uid()).filter(|id| *id != 0),
    }
}

/// The directories outside the home that the gateway writes to: the home directory of its user (locks, caches of
/// tools), workspace and backups.
fn writable(context: &Context, scope: Scope, settings: &Settings) -> Vec<PathBuf> {
    if scope == Scope::User {
        return vec![];
    }
    let home = context.home.path();
    let configured = [Some(settings.get(&agent::WORKSPACE)), settings.get(&gateway::BACKUP_DIRECTORY)];
    let configured = configured.into_iter().flatten().map(PathBuf::from);
    let account = account_directory(user(scope, home).unwrap_or_default());
    let mut paths: Vec<PathBuf> =
        account.into_iter().chain(configured).filter(|path| path.is_absolute()).collect();
    paths.retain(|path| !path.starts_with(home));
    paths.dedup();
    paths
}

/// The home directory of a local account. Accounts of a directory service are unknown here.
fn account_directory(user: u32) -> Option<PathBuf> {
    let accounts = std::fs::read_to_string("/etc/passwd").ok()?;
    let mut fields = accounts.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let account = fields.find(|fields| fields.get(2).is_some_and(|id| id.parse() == Ok(user)))?;
    // Services without a home directory have / or /nonexistent.
    account.get(5).map(PathBuf::from).filter(|path| path.parent().is_some() && path.is_dir())
}

fn program() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe().ok().filter(|path| path.exists());
    program.ok_or_else(|| {
        Failure::new("the program file cannot be found; it may just have been replaced").next("try again")
    })
}

/// The completed steps: printed as they happen, and listed again in a failure.
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

    fn record(&mut self, what: impl Into<String>) {
        let what = what.into();
        if !self.context.json {
            outln!("{} {what}", styled(SUCCESS, "ok"));
        }
        self.done.push(what);
    }

    fn warn(&mut self, what: impl Into<String>) {
        let what = what.into();
        if !self.context.json {
            errln!("{} {what}", styled(WARNING, "warning:"));
        }
        self.notes.push(what);
    }

    /// Runs `verb` (enable, start, stop, disable) on the service.
    fn change(&mut self, verb: &'static str, done: &str) -> Result<(), SystemctlError> {
        self.service.manager().change(verb, &self.service.name)?;
        self.record(format!("{done} {}", self.service.name));
        Ok(())
    }

    fn reload(&mut self) -> Result<(), SystemctlError> {
        self.service.manager().reload()?;
        self.record("reloaded the units of systemd");
        Ok(())
    }

    /// `rest`: the remaining steps by hand.
    fn failure(&self, error: &SystemctlError, remaining_steps: &str) -> Failure {
        let before = match self.done.as_slice() {
            [] => "nothing was changed".to_owned(),
            done => format!("completed before that: {}", done.join("; ")),
        };
        let advice = match (error, self.service.scope) {
            (SystemctlError::NotFound, _) => {
                "this needs systemd; any other supervisor can run `petasos run` and start it again after exit code 75"
                    .to_owned()
            }
            (SystemctlError::Spawn(_) | SystemctlError::Failed { .. }, Scope::User) => format!(
                "`systemctl --user` works only in a login session of the user, not under sudo or su; there: {remaining_steps}"
            ),
            (SystemctlError::Spawn(_) | SystemctlError::Failed { .. }, Scope::System) => format!("as root: {remaining_steps}"),
        };
        Failure::new(format!("{error} ({before})")).next(advice)
    }
}
