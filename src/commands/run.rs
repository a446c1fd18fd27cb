//! `petasos run`: the gateway in the foreground, until it is asked to stop.

mod greet;
mod storm;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use petasos_cli::arguments::Run;
use petasos_cli::commands::{Context, warn};
use petasos_cli::failure::Failure;
use petasos_cli::{lock, logs};
use petasos_config::{Home, Problem};
use petasos_core::lifecycle::{From, How, Leave};
use petasos_gateway::home::peers::{self, Peer};
use petasos_gateway::home::process::Record;
use petasos_gateway::sd::Notifier;
use petasos_gateway::{Leaver, clock};

use crate::serve;
use crate::signals::{Signal, Signals};
use crate::takeover;
use crate::wire::wire;

/// A platform that takes longer to answer does not keep us from being ready.
const CONNECTING: Duration = Duration::from_secs(30);

pub(crate) async fn run(context: &Context, how: Run) -> Result<ExitCode, Failure> {
    let mut signals = Signals::listen().map_err(|error| Failure::new(format!("no signals: {error}")))?;
    remark(how);
    let mut resolved = petasos_config::load(&context.home);
    // Before anybody waits or is replaced: a gateway that works is worth more than one that cannot start.
    let mut wired =
        wire(&context.home, &mut resolved).map_err(|problems| refused(context, how, &problems))?;
    wired.gateway.lifetime.supervised |= how.external_supervisor;
    warn(&resolved.problems);
    wired.gateway.lifetime.storm_pause = storm::record_start(context, &wired.gateway.lifetime, how);
    let lock = match lock::take(&context.home) {
        Ok(lock) => lock,
        Err(held) if !how.replace => return Err(held),
        Err(_) => tokio::select! {
            taken = takeover::take(&context.home) => taken?,
            signal = signals.next() => return Err(not_replacing(signal)),
        },
    };
    let notifier = wired.gateway.notifier.clone();
    let mut early = None;
    let starting = serve::start(&context.home, wired, lock);
    tokio::pin!(starting);
    let serving = loop {
        tokio::select! {
            serving = &mut starting => break serving?,
            signal = signals.next() => match early.replace(signal) {
                None => tracing::warn!(signal = signal.as_str(), "leaving when the start is through; again: at once"),
                Some(_) => return Err(not_starting(signal)),
            },
        }
    };
    if early.is_none()
        && let Err(failure) = greet::greet(context, &serving).await
    {
        // The gateway works without its greeting.
        tracing::warn!(why = %failure, "the start cannot be announced");
    }
    tokio::spawn(obey(signals, early, serving.handle.leaver(), context.home.clone()));
    tokio::spawn(tell_ready(serving.handle.leaver(), notifier));
    let end = serving.wait().await;
    match end.why {
        Leave::Failure => {
            let failure = Failure::new("the gateway stopped because a part of it failed");
            Err(failure.next("the log above says which; nothing that was accepted is lost"))
        }
        Leave::Unstartable => {
            let what = format!("no platform can be used: {}", end.reason.unwrap_or_default());
            Err(Failure::configuration(what)
                .next("mend the configuration; petasos doctor --online looks again"))
        }
        Leave::Restart { how: How::Detached, .. } => relaunch(context),
        Leave::Restart { how: How::Service, .. } | Leave::Stop | Leave::Signal | Leave::Deserted => {
            Ok(ExitCode::from(end.why.exit_code()))
        }
    }
}

/// Options that other gateways have, and that make no difference here.
fn remark(how: Run) {
    if how.force {
        tracing::warn!(
            "--force does nothing: a service that is installed keeps nobody from running a gateway"
        );
    }
    if how.no_supervise {
        tracing::warn!(
            "--no-supervise does nothing: this always runs in the foreground, and supervises nobody"
        );
    }
}

/// A configuration that cannot work. Only whoever has the home may say so in it.
fn refused(context: &Context, how: Run, problems: &[Problem]) -> Failure {
    let failure = Failure::of_problems(problems);
    match lock::take(&context.home) {
        Ok(_lock) => serve::tell_unstartable(&context.home, &failure),
        Err(held) if !how.replace => return held,
        Err(_) => {}
    }
    failure
}

fn not_replacing(signal: Signal) -> Failure {
    let what = format!("{} while waiting for the other gateway, which stops all the same", signal.as_str());
    Failure::new(what).next("petasos run starts one when it is gone")
}

fn not_starting(signal: Signal) -> Failure {
    let failure = Failure::new(format!("{}, again, before the gateway had started", signal.as_str()));
    failure.next("petasos run starts it; nothing that was accepted is lost")
}

/// The first signal lets turns finish, the second does not wait for them, the third leaves at once. `early`: one that
/// came before there was anybody to obey it.
async fn obey(mut signals: Signals, mut early: Option<Signal>, gateway: Leaver, home: Home) {
    let own = Record::of_this_process();
    let mut heard = 0;
    loop {
        let signal = match early.take() {
            Some(signal) => signal,
            None => signals.next().await,
        };
        let why = match signal {
            Signal::Restart => Leave::Restart { how: How::Service, from: From::Outside },
            Signal::Interrupt => Leave::Stop,
            Signal::Terminate | Signal::Hangup => announced(home.path(), &own),
        };
        if signal != Signal::Restart {
            heard += 1;
        }
        match heard {
            0 | 1 => {
                tracing::info!(signal = signal.as_str(), leaving = why.as_str(), "leaving");
                gateway.leave(why, Some(signal.as_str().to_owned()));
            }
            2 => {
                // It may be a stronger wish than the first.
                gateway.leave(why, Some(signal.as_str().to_owned()));
                tracing::warn!(
                    signal = signal.as_str(),
                    "not waiting for turns; the next start resumes them"
                );
                gateway.hurry();
            }
            _ => {
                tracing::warn!("leaving at once; the next start takes up what was interrupted");
                logs::flush();
                std::process::exit(1);
            }
        }
    }
}

/// Once it is known how every platform is, or after the time that one of them may take to find out.
async fn tell_ready(gateway: Leaver, notifier: Notifier) {
    if tokio::time::timeout(CONNECTING, gateway.started()).await != Ok(false) {
        notifier.ready();
    }
}

/// A signal that somebody announced is a stop like any other; one that nobody did may be an accident.
fn announced(home: &Path, own: &Record) -> Leave {
    let now = clock::now();
    let takeover = peers::consume(home, Peer::Takeover, own, now);
    if takeover || peers::consume(home, Peer::PlannedStop, own, now) { Leave::Stop } else { Leave::Signal }
}

/// Nobody starts us again, so we do: the home is free, and the new process has its own group and no terminal to wait
/// for. It replaces nobody: whoever was faster may stay.
fn relaunch(context: &Context) -> Result<ExitCode, Failure> {
    let child = Command::new(program().map_err(|error| not_again(&error))?)
        .args(std::env::args_os().skip(1).filter(|arg| arg != "--replace"))
        .env(greet::RELAUNCHED, "1")
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| not_again(&error))?;
    tracing::info!(pid = child.id(), home = %context.home.path().display(), "started again");
    Ok(ExitCode::SUCCESS)
}

/// Our file; or, after an upgrade, the one that has its name now.
fn program() -> std::io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    let renamed = path.to_str().and_then(|path| path.strip_suffix(" (deleted)")).map(PathBuf::from);
    Ok(renamed.filter(|_| !path.exists()).unwrap_or(path))
}

fn not_again(error: &std::io::Error) -> Failure {
    Failure::new(format!("the gateway stopped for a restart and could not be started again: {error}"))
        .next("start it: petasos run")
}
