//! `petasos connector run`: the connector in the foreground, until it is stopped.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use petasos_cli::commands::{Context, print_warnings};
use petasos_cli::failure::{Failure, WRITABLE_ADVICE};
use petasos_cli::lock::{Lock, LockError};
use petasos_cli::logs;
use petasos_cli::print::outln;
use petasos_connector::{StartError, StopCause};

use crate::commands::run::program_path;
use crate::signals::Signals;
use crate::wire;

pub(crate) async fn run(context: &Context, listen: Option<String>) -> Result<ExitCode, Failure> {
    let mut signals =
        Signals::listen().map_err(|error| Failure::new(format!("signals cannot be handled: {error}")))?;
    let home = &context.home;
    let loaded = petasos_config::load_connector(home)?;
    let redactor = loaded.own.redactor();
    logs::redact(redactor.clone());
    let mut fronting = wire::connector(home, loaded, listen.as_deref())
        .map_err(|problems| Failure::from_problems(&problems))?;
    fronting.connector.redactor = redactor;
    print_warnings(&fronting.warnings);
    home.create().map_err(|error| {
        Failure::new(format!("{} cannot be created: {error}", home.path().display())).next(WRITABLE_ADVICE)
    })?;
    // Held until the end: the next process must find a closed database.
    let lock = Lock::acquire(&home.connector_lock()).map_err(lock_failure)?;
    let running = petasos_connector::start(fronting.connector).await.map_err(start_failure)?;
    outln!("The connector listens on http://{}", running.address());
    let cause = running
        .wait(async {
            let signal = signals.next().await;
            tracing::info!(signal = signal.as_str(), "shutting down");
        })
        .await;
    match cause {
        StopCause::Requested => Ok(ExitCode::SUCCESS),
        StopCause::TaskFailed => {
            let failure = Failure::new("a component of the connector failed, so the connector stopped");
            Err(failure.next("the log above names the component; no accepted message is lost"))
        }
        StopCause::DatabaseDamaged => {
            drop(lock);
            Err(restart_in_place())
        }
    }
}

/// Replaces this process by a new start, which salvages the database. The process id stays, so a supervisor sees no exit.
/// Returns only if that fails.
fn restart_in_place() -> Failure {
    let error = match program_path() {
        Ok(program) => Command::new(program).args(std::env::args_os().skip(1)).exec(),
        Err(error) => error,
    };
    Failure::new(format!("the database is damaged, and the connector could not start again: {error}"))
        .next("start it with petasos connector run; the start salvages the database")
}

pub(super) fn lock_failure(error: LockError) -> Failure {
    match error {
        LockError::Held { .. } => Failure::new("another connector is running on this home")
            .next("petasos connector status shows it; --home DIR selects another home"),
        LockError::Io { .. } => Failure::new(error.to_string()).next(WRITABLE_ADVICE),
    }
}

fn start_failure(error: StartError) -> Failure {
    match error {
        StartError::Open(error) => error.into(),
        StartError::Listen(error) => Failure::new(error.to_string()),
        StartError::Connector(error) => Failure::new(error.to_string()),
    }
}
