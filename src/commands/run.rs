//! `petasos run`: the gateway in the foreground, until it is asked to stop.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use petasos_core::lifecycle::{From, How, Leave, storm};
use petasos_gateway::home::peers::{self, Peer};
use petasos_gateway::home::process::Record;
use petasos_gateway::{Leaver, clock, home};
use serde_json::json;

use super::{Context, warn};
use crate::arguments::Run;
use crate::config::{self, Home};
use crate::failure::Failure;
use crate::logs;
use crate::print::{BOLD, DIM, styled};
use crate::serve::{self, Serving};
use crate::signals::{Signal, Signals};
use crate::takeover;
use crate::wire::{self, wire};

pub(crate) async fn run(context: &Context, how: Run) -> Result<ExitCode, Failure> {
    let mut signals = Signals::listen().map_err(|error| Failure::new(format!("no signals: {error}")))?;
    remark(how);
    let mut resolved = config::load(&context.home);
    let storm = wire::lifecycle::lifetime(&resolved.settings, |name| std::env::var_os(name)).storm;
    // Before anybody is replaced: a gateway that works is worth more than one that cannot start.
    let wired = wire(&context.home, &mut resolved);
    let lock = match (serve::take(&context.home), &wired) {
        (Ok(lock), _) => lock,
        (Err(held), _) if !how.replace => return Err(held),
        (Err(_), Err(problems)) => return Err(Failure::of_problems(problems)),
        (Err(_), Ok(_)) => tokio::select! {
            taken = takeover::take(&context.home) => taken?,
            signal = signals.next() => return Err(interrupted(signal)),
        },
    };
    if !wait_out_the_storm(context, storm, &mut signals).await {
        return Ok(ExitCode::SUCCESS);
    }
    let mut wired = wired.map_err(|problems| {
        let failure = Failure::of_problems(&problems);
        serve::tell_unstartable(&context.home, &failure);
        failure
    })?;
    wired.gateway.lifetime.supervised |= how.external_supervisor;
    warn(&resolved.problems);
    let notifier = wired.gateway.notifier.clone();
    let serving = serve::start(&context.home, wired, lock).await?;
    greet(context, &serving).await?;
    notifier.ready();
    tokio::spawn(obey(signals, serving.handle.leaver(), context.home.clone()));
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

fn interrupted(signal: Signal) -> Failure {
    let what = format!("{} while waiting for the other gateway, which stops all the same", signal.as_str());
    Failure::new(what).next("petasos run starts one when it is gone")
}

/// Too many starts in a row: somebody starts us again and again, and waiting is the kindest thing to do. `false`: we
/// were asked to leave meanwhile.
async fn wait_out_the_storm(context: &Context, guard: storm::Guard, signals: &mut Signals) -> bool {
    let Some(wait) = home::starts::record(context.home.path(), guard, clock::now()) else { return true };
    tracing::warn!(seconds = wait.as_secs(), "started too often; waiting before this start");
    tokio::select! {
        () = tokio::time::sleep(wait) => true,
        _ = signals.next() => false,
    }
}

/// The first signal lets turns finish, the second does not wait for them, the third leaves at once.
async fn obey(mut signals: Signals, gateway: Leaver, home: Home) {
    let own = Record::of_this_process();
    let mut heard = 0;
    loop {
        let signal = signals.next().await;
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

async fn greet(context: &Context, serving: &Serving) -> Result<(), Failure> {
    let failed = |error: petasos_gateway::Error| Failure::new(error.to_string());
    let status = serving.handle.status().await.map_err(failed)?;
    let link = match &serving.url {
        Some(url) => {
            let token = serving.handle.login_link_token().await.map_err(failed)?;
            Some(format!("{url}/?token={token}"))
        }
        None => None,
    };
    if context.json {
        let told = json!({
            "event": "started", "pid": std::process::id(), "home": context.home.path(), "socket": serving.socket,
            "url": serving.url, "login_url": link, "model": status.model,
        });
        crate::print::say!("{told}");
        return Ok(());
    }
    let model = match status.model.demo {
        true => "demo model (scripted, offline; set a real one under `model:` in config.yaml)".to_owned(),
        false => format!("{} at {}", status.model.name, status.model.provider),
    };
    let line = |name: &str, text: &str| crate::print::say!("  {} {text}", styled(DIM, &format!("{name:<9}")));
    crate::print::say!("{}", styled(BOLD, &format!("Petasos {}", env!("CARGO_PKG_VERSION"))));
    line("home", &context.home.path().display().to_string());
    line("model", &model);
    for link in &status.links {
        line(link.name, "connecting");
    }
    if let Some(link) = &link {
        line("web page", &format!("{link} {}", styled(DIM, "(works once; `petasos open` makes another)")));
    }
    line("terminal", "petasos chat");
    crate::print::say!("{}", styled(DIM, "Ctrl-C stops. Running turns may finish first."));
    Ok(())
}
