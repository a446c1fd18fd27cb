//! `petasos run`: the gateway in the foreground, until it is stopped.

mod announce;
mod respawn;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use petasos_cli::arguments::RunArguments;
use petasos_cli::commands::{Context, print_warnings};
use petasos_cli::failure::Failure;
use petasos_cli::{lock, logs};
use petasos_config::{Home, Problem};
use petasos_core::lifecycle::{RestartMethod, RestartOrigin, ShutdownReason};
use petasos_gateway::home::peers::{self, SignalMarker};
use petasos_gateway::home::process::ProcessRecord;
use petasos_gateway::sd::Notifier;
use petasos_gateway::{ShutdownTrigger, clock};

use crate::serve;
use crate::signals::{Signal, Signals};
use crate::takeover;
use crate::wire::wire;

/// A platform that takes longer to connect does not delay readiness.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) async fn run(context: &Context, arguments: RunArguments) -> Result<ExitCode, Failure> {
    let mut signals =
        Signals::listen().map_err(|error| Failure::new(format!("signals cannot be handled: {error}")))?;
    warn_about_ignored_options(arguments);
    let mut resolved = petasos_config::load_with_secrets(&context.home)?;
    // Before any takeover: a working gateway must not be replaced by one that cannot start.
    let mut wired = wire(&context.home, &mut resolved)
        .map_err(|problems| configuration_failure(context, arguments, &problems))?;
    wired.gateway.lifetime.supervised |= arguments.external_supervisor;
    print_warnings(&resolved.problems);
    wired.gateway.lifetime.storm_pause = respawn::record_start(context, &wired.gateway.lifetime, arguments);
    let lock = match lock::acquire(&context.home) {
        Ok(lock) => lock,
        Err(failure) if !arguments.replace => return Err(failure),
        Err(_) => tokio::select! {
            lock = takeover::take_over(&context.home) => lock?,
            signal = signals.next() => return Err(interrupted_takeover(signal)),
        },
    };
    let notifier = wired.gateway.notifier.clone();
    let mut early_signal = None;
    let startup = serve::start(&context.home, wired, lock);
    tokio::pin!(startup);
    let petasos = loop {
        tokio::select! {
            petasos = &mut startup => break petasos?,
            signal = signals.next() => match early_signal.replace(signal) {
                None => tracing::warn!(signal = signal.as_str(), "will stop after startup; repeat to stop at once"),
                Some(_) => return Err(interrupted_start(signal)),
            },
        }
    };
    if early_signal.is_none()
        && let Err(failure) = announce::print(context, &petasos).await
    {
        tracing::warn!(reason = %failure, "cannot announce the start");
    }
    petasos_runtime::spawn(handle_signals(
        signals,
        early_signal,
        petasos.handle.shutdown_trigger(),
        context.home.clone(),
    ));
    petasos_runtime::spawn(notify_ready(petasos.handle.shutdown_trigger(), notifier));
    let end = petasos.wait().await;
    match end.why {
        ShutdownReason::Failure => {
            let failure = Failure::new("a component of the gateway failed, so the gateway stopped");
            Err(failure.next("the log above names the component; no accepted message is lost"))
        }
        ShutdownReason::Unstartable => {
            let message = format!("no platform can be used: {}", end.reason.unwrap_or_default());
            Err(Failure::configuration(message)
                .next("correct the configuration, then check with petasos doctor --online"))
        }
        ShutdownReason::Restart { method: RestartMethod::Detached, .. } => start_successor(context),
        ShutdownReason::Restart { method: RestartMethod::Service, .. }
        | ShutdownReason::Stop
        | ShutdownReason::Signal
        | ShutdownReason::AllPlatformsLost => Ok(ExitCode::from(end.why.exit_code())),
    }
}

/// Warns about options of other gateways that have no effect here.
fn warn_about_ignored_options(arguments: RunArguments) {
    if arguments.force {
        tracing::warn!("--force has no effect: an installed service does not prevent running a gateway");
    }
    if arguments.no_supervise {
        tracing::warn!("--no-supervise has no effect: petasos run always stays in the foreground");
    }
}

/// Fails because of the configuration, and records it in the home if no other gateway holds it.
fn configuration_failure(context: &Context, arguments: RunArguments, problems: &[Problem]) -> Failure {
    let failure = Failure::from_problems(problems);
    match lock::acquire(&context.home) {
        Ok(_lock) => serve::record_start_failure(&context.home, &failure),
        Err(failure) if !arguments.replace => return failure,
        Err(_) => {}
    }
    failure
}

fn interrupted_takeover(signal: Signal) -> Failure {
    let message = format!("{} while waiting for the other gateway, which still stops", signal.as_str());
    Failure::new(message).next("petasos run starts one once it has exited")
}

fn interrupted_start(signal: Signal) -> Failure {
    let failure = Failure::new(format!("second {} before the gateway had started", signal.as_str()));
    failure.next("petasos run starts it; no accepted message is lost")
}

/// The first signal lets turns finish, the second interrupts them, the third exits at once. `early_signal`:
/// one that arrived during the start.
async fn handle_signals(
    mut signals: Signals,
    mut early_signal: Option<Signal>,
    gateway: ShutdownTrigger,
    home: Home,
) {
    let own = ProcessRecord::of_this_process();
    let mut count = 0;
    loop {
        let signal = match early_signal.take() {
            Some(signal) => signal,
            None => signals.next().await,
        };
        let reason = match signal {
            Signal::Restart => {
                ShutdownReason::Restart { method: RestartMethod::Service, origin: RestartOrigin::Outside }
            }
            Signal::Interrupt => ShutdownReason::Stop,
            Signal::Terminate | Signal::Hangup => signal_reason(home.path(), &own),
        };
        if signal != Signal::Restart {
            count += 1;
        }
        match count {
            0 | 1 => {
                tracing::info!(signal = signal.as_str(), leaving = reason.as_str(), "shutting down");
                gateway.shut_down(reason, Some(signal.as_str().to_owned()));
            }
            2 => {
                gateway.shut_down(reason, Some(signal.as_str().to_owned()));
                tracing::warn!(signal = signal.as_str(), "interrupting turns; the next start resumes them");
                gateway.skip_drain();
            }
            _ => {
                tracing::warn!("exiting at once; the next start resumes interrupted turns");
                logs::flush();
                std::process::exit(1);
            }
        }
    }
}

/// Notifies systemd once the state of every platform is known, at the latest after `READY_TIMEOUT`.
async fn notify_ready(gateway: ShutdownTrigger, notifier: Notifier) {
    if tokio::time::timeout(READY_TIMEOUT, gateway.started()).await != Ok(false) {
        notifier.ready();
    }
}

/// A signal with a marker is a planned stop; one without may be an accident.
fn signal_reason(home: &Path, own: &ProcessRecord) -> ShutdownReason {
    let now = clock::now();
    let takeover = peers::consume(home, SignalMarker::Takeover, own, now);
    if takeover || peers::consume(home, SignalMarker::PlannedStop, own, now) {
        ShutdownReason::Stop
    } else {
        ShutdownReason::Signal
    }
}

/// Starts the successor without a supervisor. It gets its own process group and no terminal, and never
/// replaces a gateway that was faster.
fn start_successor(context: &Context) -> Result<ExitCode, Failure> {
    let child = Command::new(program_path().map_err(|error| restart_failure(&error))?)
        .args(std::env::args_os().skip(1).filter(|arg| arg != "--replace"))
        .env(announce::SUCCESSOR, "1")
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| restart_failure(&error))?;
    tracing::info!(pid = child.id(), home = %context.home.path().display(), "successor started");
    Ok(ExitCode::SUCCESS)
}

/// The path of this program; after an upgrade, the file that has its name now.
pub(super) fn program_path() -> std::io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    let renamed = path.to_str().and_then(|path| path.strip_suffix(" (deleted)")).map(PathBuf::from);
    Ok(renamed.filter(|_| !path.exists()).unwrap_or(path))
}

fn restart_failure(error: &std::io::Error) -> Failure {
    Failure::new(format!(
        "the gateway stopped for a restart, and its successor could not be started: {error}"
    ))
    .next("start it with petasos run")
}
