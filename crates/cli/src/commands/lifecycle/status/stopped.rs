//! Status without a responding gateway: how the last one ended and what it left.

use std::process::ExitCode;

use petasos_core::lifecycle::marker::MarkerStatus;
use petasos_gateway::home::process::ProcessRecord;
use petasos_gateway::home::state::{self, GatewayLoad, ProcessState};
use petasos_store::{Backlog, OutboxCounts};
use serde_json::{Map, Value, json};

use super::{line, stored_sessions};
use crate::commands::drain::{marker, request_summary};
use crate::commands::{Context, open_reader};
use crate::failure::Failure;
use crate::lock;
use crate::observe::display_state;
use crate::print::{self, BOLD, DIM, ERROR, WARNING, errln, outln, styled};

/// How the last gateway of a home ended, according to its state file.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LastExit {
    /// A planned stop, or there was no gateway yet.
    Stopped {
        reason: Option<String>,
    },
    StartFailed {
        reason: String,
    },
    /// A supervisor should start it again.
    Restart,
    Signal {
        reason: String,
    },
    DuringStop,
    /// Killed without recording a reason.
    Killed,
}

impl LastExit {
    fn of(fields: &Map<String, Value>) -> Self {
        let text = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
        let reason = text("exit_reason");
        let state = text("gateway_state");
        let restart = fields.get("restart_requested") == Some(&Value::Bool(true));
        let kind = fields.get("drain").and_then(|drain| drain.get("kind")).and_then(Value::as_str);
        match (state.as_deref(), reason) {
            (Some("stopped"), _) if restart => Self::Restart,
            (Some("draining"), _) if matches!(kind, Some("shutdown" | "restart")) => Self::DuringStop,
            (None | Some("stopped"), reason) => Self::Stopped { reason },
            (Some("startup_failed"), reason) => Self::StartFailed { reason: reason.unwrap_or_default() },
            (Some(_), Some(reason)) => Self::Signal { reason },
            (Some(_), None) => Self::Killed,
        }
    }

    const fn state(&self) -> &'static str {
        match self {
            Self::StartFailed { .. } => "startup_failed",
            Self::Stopped { .. } | Self::Restart | Self::Signal { .. } | Self::DuringStop | Self::Killed => {
                "stopped"
            }
        }
    }

    const fn as_str(&self) -> &'static str {
        match self {
            Self::Stopped { .. } => "stopped",
            Self::StartFailed { .. } => "unstartable",
            Self::Restart => "restart",
            Self::Signal { .. } => "signalled",
            Self::DuringStop => "amid_stop",
            Self::Killed => "killed",
        }
    }

    fn reason(&self) -> Option<&str> {
        match self {
            Self::Stopped { reason } => reason.as_deref(),
            Self::StartFailed { reason } | Self::Signal { reason } => Some(reason),
            Self::Restart | Self::DuringStop | Self::Killed => None,
        }
    }
}

pub(super) fn show(context: &Context, restrictions: &[String]) -> Result<ExitCode, Failure> {
    let fields = state::read(context.home.path()).unwrap_or_default();
    match lock::holder(&context.home.lock_file()) {
        Some(held) => unresponsive(context, &held.process, &fields),
        None => stopped(context, &LastExit::of(&fields), restrictions),
    }
}

/// A process holds the home and does not answer: it is starting, or it hangs.
fn unresponsive(
    context: &Context,
    record: &ProcessRecord,
    fields: &Map<String, Value>,
) -> Result<ExitCode, Failure> {
    let matches = fields.get("pid").and_then(Value::as_u64) == Some(record.pid.into());
    let reported = fields.get("gateway_state").and_then(Value::as_str).filter(|_| matches);
    // The file may describe an earlier process.
    let state =
        reported.filter(|state| !matches!(*state, "stopped" | "startup_failed")).unwrap_or("starting");
    let load = if matches { GatewayLoad::of(fields, ProcessState::Live) } else { GatewayLoad::default() };
    if context.json {
        print::json(&json!({
            "state": state, "gateway_state": state, "gateway_running": true, "answers": false, "pid": record.pid,
            "home": context.home.path(), "active_agents": load.active_agents, "gateway_busy": load.busy,
            "gateway_drainable": load.drainable,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let kind = fields.get("drain").and_then(|drain| drain.get("kind")).and_then(Value::as_str);
    let displayed = display_state(state, kind.filter(|_| matches));
    outln!("{} is {} and does not answer", styled(BOLD, "Petasos"), styled(WARNING, displayed));
    line("process", &format!("pid {}", record.pid));
    line("home", &context.home.path().display().to_string());
    if state != "starting" {
        line("", "if this persists: petasos stop; if that does not help: petasos run --replace");
    }
    Ok(ExitCode::SUCCESS)
}

/// Open work in the database of a gateway that does not run.
struct OpenWork {
    sessions: usize,
    inbox: Backlog,
    outbox: OutboxCounts,
}

impl OpenWork {
    fn read(context: &Context) -> Result<Option<Self>, Failure> {
        let Some(reader) = open_reader(&context.home)? else { return Ok(None) };
        let sessions = stored_sessions(context)?;
        Ok(Some(Self { sessions, inbox: reader.backlog()?, outbox: reader.outbox_counts()? }))
    }
}

/// No gateway runs. A database that cannot be read, because it is damaged or a gateway is creating it at the moment, is
/// reported and hides nothing else.
fn stopped(context: &Context, exit: &LastExit, restrictions: &[String]) -> Result<ExitCode, Failure> {
    let found = OpenWork::read(context);
    let database_error = found.as_ref().err().map(ToString::to_string);
    let open = found.ok().flatten();
    let marker = marker(&context.home).filter(|(_, status)| *status == MarkerStatus::Active);
    if context.json {
        let inbox = open.as_ref().map(|it| json!({ "queued": it.inbox.queued, "running": it.inbox.claimed }));
        let outbox = open
            .as_ref()
            .map(|it| json!({ "due": it.outbox.due + it.outbox.sending, "dead": it.outbox.dead }));
        let sessions = open.as_ref().map(|it| it.sessions).or(database_error.is_none().then_some(0));
        print::json(&json!({
            "state": exit.state(), "gateway_state": exit.state(), "gateway_running": false, "active_agents": 0,
            "gateway_busy": false, "gateway_drainable": false, "gateway_exit_reason": exit.reason(),
            "ended": exit.as_str(), "home": context.home.path(), "stored_sessions": sessions,
            "inbox": inbox, "outbox": outbox, "drain_marker": marker.map(|(marker, _)| marker),
            "restrictions": restrictions, "database_error": database_error,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    print_exit(exit);
    line("home", &context.home.path().display().to_string());
    if let Some(error) = database_error {
        line("database", &styled(ERROR, &format!("cannot be read: {error}")));
    }
    if let Some(OpenWork { sessions, inbox, outbox }) = open {
        line("sessions", &format!("{sessions} stored"));
        line("inbox", &format!("{} waiting for an answer", inbox.queued + inbox.claimed));
        line("outbox", &format!("{} due, {} dead-lettered", outbox.due + outbox.sending, outbox.dead));
    }
    super::restrictions(restrictions);
    if let Some((marker, _)) = marker {
        let summary =
            request_summary(marker.principal.as_deref(), marker.requested(), marker.reason.as_deref());
        let message = format!("a drain was {summary}; the next gateway starts no turns until petasos resume");
        errln!("{} {message}", styled(WARNING, "warning:"));
    }
    Ok(ExitCode::SUCCESS)
}

fn print_exit(exit: &LastExit) {
    let name = styled(BOLD, "Petasos");
    let starts = styled(DIM, "(petasos run starts it)");
    match exit {
        LastExit::Stopped { .. } | LastExit::Signal { .. } | LastExit::DuringStop | LastExit::Killed => {
            outln!("{name} is stopped {starts}")
        }
        LastExit::Restart => {
            outln!("{name} is stopped, and {} {starts}", styled(WARNING, "waiting to be restarted"))
        }
        LastExit::StartFailed { .. } => outln!("{name} {}", styled(ERROR, "could not start")),
    }
    match exit {
        LastExit::Stopped { reason: None } => {}
        LastExit::Stopped { reason: Some(reason) } => line("reason", reason),
        LastExit::Restart => {
            line("reason", "a restart was requested; without a supervisor, start it with petasos run")
        }
        LastExit::StartFailed { reason } => reason.lines().for_each(|text| outln!("    {text}")),
        LastExit::Signal { reason } => {
            line("reason", &format!("{reason} without notice; interrupted turns are resumed"));
        }
        LastExit::DuringStop => {
            line(
                "reason",
                &styled(
                    WARNING,
                    "the gateway was killed while it was stopping; interrupted turns are resumed",
                ),
            );
        }
        LastExit::Killed => {
            let message = "the gateway was killed, or the machine lost power; interrupted turns are resumed";
            line("reason", &styled(WARNING, message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_state_file_to_last_exit() {
        for (fields, exit, state) in [
            (json!({}), "stopped", "stopped"),
            (json!({"gateway_state": null}), "stopped", "stopped"),
            (json!({"gateway_state": "stopped", "exit_reason": "a planned stop"}), "stopped", "stopped"),
            (json!({"gateway_state": "running", "exit_reason": null}), "killed", "stopped"),
            (json!({"gateway_state": "draining"}), "killed", "stopped"),
            (json!({"gateway_state": "draining", "drain": {"kind": "external"}}), "killed", "stopped"),
            (
                json!({"gateway_state": "draining", "exit_reason": "SIGINT", "drain": {"kind": "shutdown"}}),
                "amid_stop",
                "stopped",
            ),
            (json!({"gateway_state": "draining", "drain": {"kind": "restart"}}), "amid_stop", "stopped"),
            (
                json!({"gateway_state": "stopped", "exit_reason": "SIGUSR1", "restart_requested": true}),
                "restart",
                "stopped",
            ),
            (json!({"gateway_state": "stopped", "restart_requested": false}), "stopped", "stopped"),
            (json!({"gateway_state": "starting"}), "killed", "stopped"),
            (json!({"gateway_state": "new word"}), "killed", "stopped"),
            (json!({"gateway_state": "running", "exit_reason": "SIGTERM"}), "signalled", "stopped"),
            (json!({"gateway_state": "startup_failed"}), "unstartable", "startup_failed"),
        ] {
            let found = LastExit::of(fields.as_object().unwrap());
            assert_eq!((found.as_str(), found.state()), (exit, state), "{fields}");
        }
    }
}
