//! `petasos connector run`: the connector in the foreground, until it is asked to stop.

use std::process::ExitCode;

use petasos_cli::commands::{Context, warn};
use petasos_cli::failure::{Failure, WRITABLE};
use petasos_cli::lock::{Lock, NotTaken};
use petasos_cli::print::say;
use petasos_connector::StartError;

use crate::signals::Signals;
use crate::wire;

pub(crate) async fn run(context: &Context, listen: Option<String>) -> Result<ExitCode, Failure> {
    let mut signals = Signals::listen().map_err(|error| Failure::new(format!("no signals: {error}")))?;
    let home = &context.home;
    let fronting = wire::connector(home, petasos_config::load_connector(home), listen.as_deref())
        .map_err(|problems| Failure::of_problems(&problems))?;
    warn(&fronting.warnings);
    home.create().map_err(|error| {
        Failure::new(format!("{} cannot be created: {error}", home.path().display())).next(WRITABLE)
    })?;
    // Held until the very end: the next process must find a closed database.
    let _lock = Lock::take(&home.connector_lock()).map_err(not_taken)?;
    let running = petasos_connector::start(fronting.connector).await.map_err(not_started)?;
    say!("the connector listens on http://{}", running.address());
    let asked = running
        .wait(async {
            let signal = signals.next().await;
            tracing::info!(signal = signal.as_str(), "leaving");
        })
        .await;
    match asked {
        true => Ok(ExitCode::SUCCESS),
        false => Err(Failure::new("the connector stopped because a part of it failed")
            .next("the log above says which; nothing that was accepted is lost")),
    }
}

fn not_taken(error: NotTaken) -> Failure {
    match error {
        NotTaken::Held { .. } => Failure::new("another connector is running on this home"),
        NotTaken::Io { .. } => Failure::new(error.to_string()).next(WRITABLE),
    }
}

fn not_started(error: StartError) -> Failure {
    match error {
        StartError::Open(error) => error.into(),
        StartError::Listen(error) => Failure::new(error.to_string()),
        StartError::Connector(error) => Failure::new(error.to_string()),
    }
}
