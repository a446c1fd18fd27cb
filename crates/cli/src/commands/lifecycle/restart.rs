//! `petasos restart`: requests a restart and waits for the new process.

use std::process::ExitCode;
use std::time::Duration;

use petasos_config::Home;
use petasos_core::lifecycle::hung_after;
use petasos_gateway::Lifetime;
use petasos_gateway::home::process::ProcessRecord;
use petasos_gateway::home::state;
use serde_json::{Value, json};

use super::stop::refuse_within_gateway;
use super::wait::{
    Deadline, GatewayWait, WaitResult, detached, interrupted_turns, title_with_turns, turns_interrupted,
};
use crate::client::{Client, Error};
use crate::commands::Context;
use crate::failure::Failure;
use crate::observe::{self, Observation};
use crate::print::{outln, span};
use crate::{lock, print};

enum RestartResult {
    Up {
        pid: u32,
        state: String,
    },
    /// The new process has exited with this reason.
    Failed(String),
}

pub async fn restart(context: &Context, no_wait: bool) -> Result<ExitCode, Failure> {
    refuse_within_gateway()?;
    let home = &context.home;
    let client = Client::require(home)?;
    let old = lock::holder(&home.lock_file()).map(|held| held.process);
    let drain = observe::drain_timeout(home, old.as_ref()).unwrap_or(Lifetime::default().drain_timeout);
    client.post::<Value>("/api/restart", &json!({})).await.map_err(refused)?;
    let old_pid = old.as_ref().map(|record| record.pid);
    if no_wait {
        return print_result(context, json!({ "restarting": true, "old_pid": old_pid }), "Restarting");
    }
    let limit = hung_after(drain);
    let wait = GatewayWait::new(context, Some(limit), Deadline::FollowsTurns);
    let mut interrupted = None;
    let step = |seen: &Observation| {
        // Read as soon as the old process is gone, before the new one resumes anything.
        if interrupted.is_none() && is_gone(seen, old.as_ref()) {
            interrupted = interrupted_turns(home);
        }
        outcome(home, seen, old.as_ref())
    };
    match wait.until(|seen| title(seen, old.as_ref()), step).await {
        WaitResult::Done(RestartResult::Up { pid, state }) => {
            let fields = json!({
                "restarted": true, "old_pid": old_pid, "pid": pid, "gateway_state": state, "interrupted": interrupted,
            });
            let interruption = match interrupted {
                None | Some(0) => String::new(),
                Some(1) => format!("; {} and will be resumed", turns_interrupted(1)),
                Some(count) => format!("; {} and will be resumed", turns_interrupted(count)),
            };
            print_result(context, fields, &format!("Restarted (pid {pid}), {state}{interruption}"))
        }
        WaitResult::Done(RestartResult::Failed(reason)) => {
            let failure =
                Failure::new(format!("the gateway stopped and the new process could not start: {reason}"));
            Err(failure.next("correct the problem, check it with petasos config check, then petasos run"))
        }
        WaitResult::TimedOut(seen) => Err(timeout_failure(&seen, old.as_ref(), limit)),
        WaitResult::Interrupted => {
            detached(context, "Stopped waiting; the restart continues (petasos status shows its state)")
        }
    }
}

fn print_result(context: &Context, fields: Value, text: &str) -> Result<ExitCode, Failure> {
    if context.json {
        print::json(&fields)?;
    } else {
        outln!("{text}");
    }
    Ok(ExitCode::SUCCESS)
}

fn refused(error: Error) -> Failure {
    let stopping = error.detail("code").and_then(Value::as_str) == Some("stopping");
    let failure = Failure::from(error);
    if stopping {
        return failure.next("petasos stop waits until it has exited; then petasos run starts a new one");
    }
    failure
}

fn is_gone(seen: &Observation, old: Option<&ProcessRecord>) -> bool {
    match seen {
        Observation::NotRunning => true,
        Observation::Responding(record, _) | Observation::Unresponsive(Some(record)) => !is_old(record, old),
        Observation::Unresponsive(None) => false,
    }
}

fn is_old(record: &ProcessRecord, old: Option<&ProcessRecord>) -> bool {
    old.is_some_and(|old| old.is_same(record))
}

fn title(seen: &Observation, old: Option<&ProcessRecord>) -> String {
    match seen {
        Observation::Responding(record, lifecycle) if is_old(record, old) => {
            title_with_turns("restarting", lifecycle)
        }
        Observation::Unresponsive(Some(record)) if is_old(record, old) => {
            "restarting: waiting for the old process to end".into()
        }
        Observation::Responding(record, _) | Observation::Unresponsive(Some(record)) => {
            format!("restarting: pid {} is starting", record.pid)
        }
        Observation::NotRunning | Observation::Unresponsive(None) => {
            "restarting: waiting for the new process".into()
        }
    }
}

fn outcome(home: &Home, seen: &Observation, old: Option<&ProcessRecord>) -> Option<RestartResult> {
    match seen {
        Observation::Responding(record, lifecycle) if !is_old(record, old) && lifecycle.is_up() => {
            Some(RestartResult::Up { pid: record.pid, state: lifecycle.state.clone() })
        }
        Observation::NotRunning => startup_failure(home, old).map(RestartResult::Failed),
        Observation::Responding(..) | Observation::Unresponsive(_) => None,
    }
}

/// The reason why a process other than the old one failed to start.
fn startup_failure(home: &Home, old: Option<&ProcessRecord>) -> Option<String> {
    let fields = state::read(home.path())?;
    let record = ProcessRecord::parse(&serde_json::to_vec(&fields).ok()?)?;
    let failed = fields.get("gateway_state")?.as_str()? == "startup_failed" && !is_old(&record, old);
    let reason = fields.get("exit_reason").and_then(Value::as_str).unwrap_or("no reason given");
    // Without its advice, which was for a start by hand.
    failed.then(|| reason.split("\n  next: ").next().unwrap_or(reason).to_owned())
}

fn timeout_failure(seen: &Observation, old: Option<&ProcessRecord>, limit: Duration) -> Failure {
    let after = span(limit);
    match seen {
        Observation::Responding(record, _) | Observation::Unresponsive(Some(record))
            if is_old(record, old) =>
        {
            let what = format!("the old gateway (pid {}) is still running after {after}", record.pid);
            Failure::new(what).next("petasos stop --now, then petasos run")
        }
        Observation::Responding(record, _) | Observation::Unresponsive(Some(record)) => {
            let what = format!("the new gateway (pid {}) is not up after {after}", record.pid);
            Failure::new(what).next("petasos status shows its state; petasos doctor checks for the cause")
        }
        Observation::NotRunning | Observation::Unresponsive(None) => {
            let failure =
                Failure::new(format!("the gateway stopped, and no new process started within {after}"));
            failure.next("petasos run starts one; if it runs as a service: petasos service status")
        }
    }
}
