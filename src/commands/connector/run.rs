//! `petasos connector run`: the connector in the foreground, until it is stopped.

use std::process::ExitCode;

use petasos_cli::commands::{Context, print_warnings};
use petasos_cli::failure::{Failure, WRITABLE_ADVICE};
use petasos_cli::lock::{Lock, LockError};
use petasos_cli::logs;
use petasos_cli::print::outln;
use petasos_connector::StartError;

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
    let _lock = Lock::acquire(&home.connector_lock()).map_err(lock_failure)?;
    let running = petasos_connector::start(fronting.connector).await.map_err(start_failure)?;
    outln!("The connector listens on http://{}", running.address());
    let stopped = running
        .wait(async {
            let signal = signals.next().await;
            tracing::info!(signal = signal.as_str(), "leaving");
        })
        .await;
    if stopped {
        return Ok(ExitCode::SUCCESS);
    }
    let failure = Failure::new("the connector stopped because a part of it failed");
    Err(failure.next("the log above names it; no accepted message is lost"))
}

fn lock_failure(error: LockError) -> Failure {
    match error {
        LockError::Held { .. } => Failure::new("another connector is running on this home"),
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
