//! `petasos stop`: asks, and waits until the home is free.
//!
//! It asks by the marker of a planned stop, which works with a gateway that cannot answer, too, and which it follows
//! at once; over the control socket if the marker cannot be written.

use std::process::ExitCode;

use petasos_core::lifecycle::stop_budget;
use petasos_gateway::Lifetime;
use petasos_gateway::home::peers::{self, Peer};
use petasos_gateway::home::process::Record;
use serde_json::{Value, json};

use super::Context;
use super::wait::{Patience, Wait, Waited, busy, left_open, turns_interrupted, unwatched};
use crate::client::{self, Client};
use crate::failure::Failure;
use crate::life::{self, Life, Sight};
use crate::print::{ODD, say, span, styled, warn_of};
use crate::{lock, print, service};

/// What becomes of running turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Haste {
    /// They may finish, as far as the gateway's patience goes.
    Patient,
    Now,
}

pub async fn stop(context: &Context, haste: Haste) -> Result<ExitCode, Failure> {
    not_from_within()?;
    let home = &context.home;
    let target = lock::holder(&home.lock_file()).ok_or_else(|| client::nobody(home))?.process;
    let pid = target.pid;
    let revived = service::revives(pid);
    ask(context, &target).await?;
    if haste == Haste::Now {
        hurry(context).await;
    }
    let drain = life::drain_timeout(home, Some(&target)).unwrap_or(Lifetime::default().drain_timeout);
    let budget = stop_budget(drain);
    let wait = Wait::new(context, Some(budget), Patience::Leaving);
    match wait.until(title, |sight| is_gone(sight, &target).then_some(())).await {
        Waited::Done(()) => {}
        Waited::Late(sight) => {
            let what = format!(
                "the gateway (pid {pid}) was asked to stop and has not stopped after {}",
                span(budget)
            );
            return Err(Failure::new(what).next(advice(pid, &sight)));
        }
        Waited::Interrupted => {
            let what = "not watching any more; the gateway goes on stopping (petasos status shows it)";
            return unwatched(context, what);
        }
    }
    // Whoever has the home by now may have taken them up already.
    let interrupted = if lock::is_held(&home.lock_file()) { None } else { left_open(home) };
    forget(context, &target);
    if context.json {
        print::json(&json!({ "stopped": true, "pid": pid, "interrupted": interrupted }))?;
        return Ok(ExitCode::SUCCESS);
    }
    say!("stopped (pid {pid})");
    match interrupted {
        None | Some(0) => {}
        Some(1) => say!("{}; the next start goes on with it", turns_interrupted(1)),
        Some(count) => say!("{}; the next start goes on with them", turns_interrupted(count)),
    }
    if revived {
        let hint = "a supervisor looked after it and may start it again; to keep it stopped, stop its service \
                    (systemctl --user stop petasos)";
        warn_of!("{} {hint}", styled(ODD, "note:"));
    }
    Ok(ExitCode::SUCCESS)
}

/// A tool of the agent would wait for its own end.
pub(super) fn not_from_within() -> Result<(), Failure> {
    if std::env::var_os("_HERMES_GATEWAY").is_none_or(|value| value != "1") {
        return Ok(());
    }
    let failure = Failure::new("this was started by the gateway itself, which would wait for it");
    Err(failure.next("in a chat: /restart; or from a terminal of yours"))
}

async fn ask(context: &Context, target: &Record) -> Result<(), Failure> {
    let written = peers::write(context.home.path(), Peer::PlannedStop, target, print::now());
    let Err(error) = written else { return Ok(()) };
    let unwritten = || {
        Failure::new(format!("the gateway (pid {}) could not be asked to stop: {error}", target.pid))
            .next(format!("kill -INT {}", target.pid))
    };
    let client = Client::connect(&context.home)?.ok_or_else(unwritten)?;
    client.post::<Value>("/api/shutdown", &json!({})).await.map_err(|_| unwritten())?;
    Ok(())
}

/// A gateway that does not listen (any more) has nothing to hurry with.
async fn hurry(context: &Context) {
    if let Ok(Some(client)) = Client::connect(&context.home) {
        let _gone: Result<Value, _> = client.post("/api/hurry", &json!({})).await;
    }
}

fn title(sight: &Sight) -> String {
    match sight {
        Sight::Life(_, life) => busy("stopping", life),
        Sight::Silent(_) | Sight::Nobody => "stopping: waiting for the process to end".into(),
    }
}

fn is_gone(sight: &Sight, target: &Record) -> bool {
    match sight {
        Sight::Nobody => true,
        Sight::Silent(Some(record)) | Sight::Life(record, _) => !record.is_same(target),
        Sight::Silent(None) => false,
    }
}

fn advice(pid: u32, sight: &Sight) -> String {
    match sight.life().map(|life: &Life| life.awaited().count()) {
        Some(1..) => "petasos stop --now does not wait for the sessions at work; \
                      petasos drain skip SESSION gives up on one of them"
            .into(),
        Some(0) | None => {
            format!("kill -9 {pid}; the next start goes on from there, nothing that was accepted is lost")
        }
    }
}

/// A marker that was not taken (the process died first) means nobody now.
fn forget(context: &Context, target: &Record) {
    let home = context.home.path();
    if peers::probe(home, Peer::PlannedStop, target, print::now()) {
        let _stays_and_means_nobody = peers::clear(home, Peer::PlannedStop);
    }
}
