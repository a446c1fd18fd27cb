//! `petasos stop`: requests a stop and waits until the home is free.
//!
//! The request is a planned-stop marker, which a gateway follows at once, and which also works when it cannot
//! answer. The control socket is used if the marker cannot be written.

use std::process::ExitCode;

use petasos_core::lifecycle::stop_budget;
use petasos_gateway::Lifetime;
use petasos_gateway::home::peers::{self, SignalMarker};
use petasos_gateway::home::process::ProcessRecord;
use serde_json::{Value, json};

use super::wait::{
    Deadline, GatewayWait, WaitResult, detached, interrupted_turns, title_with_turns, turns_interrupted,
};
use crate::client::{self, Client};
use crate::commands::Context;
use crate::failure::Failure;
use crate::observe::{self, LifecycleStatus, Observation};
use crate::print::{WARNING, errln, outln, span, styled};
use crate::{lock, print, service};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// They may finish within the drain timeout.
    Graceful,
    Now,
}

pub async fn stop(context: &Context, haste: StopMode) -> Result<ExitCode, Failure> {
    refuse_within_gateway()?;
    let home = &context.home;
    let target = lock::holder(&home.lock_file()).ok_or_else(|| client::no_gateway(home))?.process;
    let pid = target.pid;
    let supervised = service::is_restarted_by_supervisor(pid);
    request_stop(context, &target).await?;
    if haste == StopMode::Now {
        interrupt_turns(context).await;
    }
    let drain = observe::drain_timeout(home, Some(&target)).unwrap_or(Lifetime::default().drain_timeout);
    let budget = stop_budget(drain);
    let wait = GatewayWait::new(context, Some(budget), Deadline::FollowsTurns);
    match wait.until(title, |seen| is_gone(seen, &target).then_some(())).await {
        WaitResult::Done(()) => {}
        WaitResult::TimedOut(seen) => {
            let what = format!(
                "the gateway (pid {pid}) was asked to stop and has not stopped within {}",
                span(budget)
            );
            return Err(Failure::new(what).next(advice(pid, &seen)));
        }
        WaitResult::Interrupted => {
            let what = "Stopped waiting; the gateway continues to stop (petasos status shows its state)";
            return detached(context, what);
        }
    }
    // A new holder of the home may have resumed them already.
    let interrupted = if lock::is_held(&home.lock_file()) { None } else { interrupted_turns(home) };
    remove_marker(context, &target);
    if context.json {
        print::json(&json!({ "stopped": true, "pid": pid, "interrupted": interrupted }))?;
        return Ok(ExitCode::SUCCESS);
    }
    outln!("Stopped (pid {pid})");
    match interrupted {
        None | Some(0) => {}
        Some(1) => outln!("{}; the next start resumes it", turns_interrupted(1)),
        Some(count) => outln!("{}; the next start resumes them", turns_interrupted(count)),
    }
    if supervised {
        let hint = "a supervisor manages it and may start it again; to keep it stopped, stop its service \
                    (systemctl --user stop petasos)";
        errln!("{} {hint}", styled(WARNING, "note:"));
    }
    Ok(ExitCode::SUCCESS)
}

/// A tool of the agent would wait for its own process to end.
pub(super) fn refuse_within_gateway() -> Result<(), Failure> {
    if std::env::var_os("_HERMES_GATEWAY").is_none_or(|value| value != "1") {
        return Ok(());
    }
    let failure = Failure::new("this command was started by the gateway, so it would wait for its own end");
    Err(failure.next("send /restart in a chat, or run the command in your own terminal"))
}

async fn request_stop(context: &Context, target: &ProcessRecord) -> Result<(), Failure> {
    let written = peers::write(context.home.path(), SignalMarker::PlannedStop, target, print::now());
    let Err(error) = written else { return Ok(()) };
    let unwritten = || {
        Failure::new(format!("the gateway (pid {}) could not be asked to stop: {error}", target.pid))
            .next(format!("kill -INT {}", target.pid))
    };
    let client = Client::connect(&context.home)?.ok_or_else(unwritten)?;
    client.post::<Value>("/api/shutdown", &json!({})).await.map_err(|_| unwritten())?;
    Ok(())
}

/// A gateway that does not answer cannot be hurried.
async fn interrupt_turns(context: &Context) {
    if let Ok(Some(client)) = Client::connect(&context.home) {
        let _gone: Result<Value, _> = client.post("/api/hurry", &json!({})).await;
    }
}

fn title(seen: &Observation) -> String {
    match seen {
        Observation::Responding(_, lifecycle) => title_with_turns("stopping", lifecycle),
        Observation::Unresponsive(_) | Observation::NotRunning => {
            "stopping: waiting for the process to end".into()
        }
    }
}

fn is_gone(seen: &Observation, target: &ProcessRecord) -> bool {
    match seen {
        Observation::NotRunning => true,
        Observation::Unresponsive(Some(record)) | Observation::Responding(record, _) => {
            !record.is_same(target)
        }
        Observation::Unresponsive(None) => false,
    }
}

fn advice(pid: u32, seen: &Observation) -> String {
    match seen.status().map(|lifecycle: &LifecycleStatus| lifecycle.awaited().count()) {
        Some(1..) => "petasos stop --now interrupts the running turns; \
                      petasos drain skip SESSION interrupts one of them"
            .into(),
        Some(0) | None => {
            format!("kill -9 {pid}; the next start recovers, and no accepted message is lost")
        }
    }
}

/// Removes a marker that the process did not consume before it ended.
fn remove_marker(context: &Context, target: &ProcessRecord) {
    let home = context.home.path();
    if peers::probe(home, SignalMarker::PlannedStop, target, print::now()) {
        let _stays_and_means_nobody = peers::clear(home, SignalMarker::PlannedStop);
    }
}
