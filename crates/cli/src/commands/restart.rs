//! `petasos restart`: asks, and waits until another process has taken over.

use std::process::ExitCode;
use std::time::Duration;

use petasos_config::Home;
use petasos_core::lifecycle::hung_after;
use petasos_gateway::Lifetime;
use petasos_gateway::home::process::Record;
use petasos_gateway::home::state;
use serde_json::{Value, json};

use super::Context;
use super::stop::not_from_within;
use super::wait::{Patience, Wait, Waited, busy, left_open, turns_interrupted, unwatched};
use crate::client::{Client, Error};
use crate::failure::Failure;
use crate::life::{self, Sight};
use crate::print::{say, span};
use crate::{lock, print};

/// How it came out.
enum Outcome {
    Up {
        pid: u32,
        state: String,
    },
    /// There is a new process no more; it said why.
    Failed(String),
}

pub async fn restart(context: &Context, no_wait: bool) -> Result<ExitCode, Failure> {
    not_from_within()?;
    let home = &context.home;
    let client = Client::require(home)?;
    let old = lock::holder(&home.lock_file()).map(|held| held.process);
    let drain = life::drain_timeout(home, old.as_ref()).unwrap_or(Lifetime::default().drain_timeout);
    client.post::<Value>("/api/restart", &json!({})).await.map_err(refused)?;
    let old_pid = old.as_ref().map(|record| record.pid);
    if no_wait {
        return told(context, json!({ "restarting": true, "old_pid": old_pid }), "restarting");
    }
    let most = hung_after(drain);
    let wait = Wait::new(context, Some(most), Patience::Leaving);
    let mut interrupted = None;
    let step = |sight: &Sight| {
        // At the first sight of its absence: the new one has not taken anything up yet.
        if interrupted.is_none() && is_gone(sight, old.as_ref()) {
            interrupted = left_open(home);
        }
        outcome(home, sight, old.as_ref())
    };
    match wait.until(|sight| title(sight, old.as_ref()), step).await {
        Waited::Done(Outcome::Up { pid, state }) => {
            let known = json!({
                "restarted": true, "old_pid": old_pid, "pid": pid, "gateway_state": state, "interrupted": interrupted,
            });
            let cost = match interrupted {
                None | Some(0) => String::new(),
                Some(1) => format!("; {}, and it goes on with it", turns_interrupted(1)),
                Some(count) => format!("; {}, and it goes on with them", turns_interrupted(count)),
            };
            told(context, known, &format!("restarted (pid {pid}), {state}{cost}"))
        }
        Waited::Done(Outcome::Failed(reason)) => {
            let failure =
                Failure::new(format!("the gateway stopped, and the new one could not start: {reason}"));
            Err(failure.next("mend that, then petasos run; petasos config check looks first"))
        }
        Waited::Late(sight) => Err(late(&sight, old.as_ref(), most)),
        Waited::Interrupted => {
            unwatched(context, "not watching any more; the restart goes on (petasos status shows it)")
        }
    }
}

fn told(context: &Context, known: Value, text: &str) -> Result<ExitCode, Failure> {
    if context.json {
        print::json(&known)?;
    } else {
        say!("{text}");
    }
    Ok(ExitCode::SUCCESS)
}

fn refused(error: Error) -> Failure {
    let stopping = error.fact("code").and_then(Value::as_str) == Some("stopping");
    let failure = Failure::from(error);
    match stopping {
        true => failure.next("petasos stop waits until it is gone; then petasos run starts one"),
        false => failure,
    }
}

fn is_gone(sight: &Sight, old: Option<&Record>) -> bool {
    match sight {
        Sight::Nobody => true,
        Sight::Life(record, _) | Sight::Silent(Some(record)) => !is_old(record, old),
        Sight::Silent(None) => false,
    }
}

fn is_old(record: &Record, old: Option<&Record>) -> bool {
    old.is_some_and(|old| old.is_same(record))
}

fn title(sight: &Sight, old: Option<&Record>) -> String {
    match sight {
        Sight::Life(record, life) if is_old(record, old) => busy("restarting", life),
        Sight::Silent(Some(record)) if is_old(record, old) => {
            "restarting: waiting for the old process to end".into()
        }
        Sight::Life(record, _) | Sight::Silent(Some(record)) => {
            format!("restarting: pid {} is starting", record.pid)
        }
        Sight::Nobody | Sight::Silent(None) => "restarting: waiting for the new process".into(),
    }
}

fn outcome(home: &Home, sight: &Sight, old: Option<&Record>) -> Option<Outcome> {
    match sight {
        Sight::Life(record, life) if !is_old(record, old) && life.is_up() => {
            Some(Outcome::Up { pid: record.pid, state: life.state.clone() })
        }
        Sight::Nobody => unstartable(home, old).map(Outcome::Failed),
        Sight::Life(..) | Sight::Silent(_) => None,
    }
}

/// Why another process than the old one could not start.
fn unstartable(home: &Home, old: Option<&Record>) -> Option<String> {
    let fields = state::read(home.path())?;
    let record = Record::parse(&serde_json::to_vec(&fields).ok()?)?;
    let failed = fields.get("gateway_state")?.as_str()? == "startup_failed" && !is_old(&record, old);
    let reason = fields.get("exit_reason").and_then(Value::as_str).unwrap_or("no reason was given");
    // Its advice was for whoever started it; ours follows.
    failed.then(|| reason.split("\n  next: ").next().unwrap_or(reason).to_owned())
}

fn late(sight: &Sight, old: Option<&Record>, most: Duration) -> Failure {
    let after = span(most);
    match sight {
        Sight::Life(record, _) | Sight::Silent(Some(record)) if is_old(record, old) => {
            let what = format!("the old gateway (pid {}) still runs after {after}", record.pid);
            Failure::new(what).next("petasos stop --now, then petasos run")
        }
        Sight::Life(record, _) | Sight::Silent(Some(record)) => {
            let what = format!("the new gateway (pid {}) is not up after {after}", record.pid);
            Failure::new(what).next("petasos status shows how far it is; petasos doctor looks for the reason")
        }
        Sight::Nobody | Sight::Silent(None) => {
            let failure = Failure::new(format!("the gateway stopped, and no new one came within {after}"));
            failure.next("petasos run starts one; if a service looks after it: petasos service status")
        }
    }
}
