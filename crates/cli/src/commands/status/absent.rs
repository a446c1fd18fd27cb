//! What can be said of a gateway that does not answer: how the last one ended, and what it left.

use std::process::ExitCode;

use petasos_config::limits;
use petasos_core::lifecycle::marker::Standing;
use petasos_gateway::home::process::Record;
use petasos_gateway::home::state::{self, Load, Process};
use petasos_store::{Backlog, OutboxCounts};
use serde_json::{Map, Value, json};

use super::{line, stored};
use crate::commands::drain::{asked_for, marker};
use crate::commands::{Context, reader};
use crate::failure::Failure;
use crate::life::headline;
use crate::lock;
use crate::print::{self, BAD, BOLD, DIM, ODD, say, styled, warn_of};

/// How the last gateway of a home ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    /// As it should, or there was none yet.
    Stopped { reason: Option<String> },
    /// It could not start.
    Unstartable { reason: String },
    /// To be started again by whoever looks after it.
    Restart,
    /// By a signal that nobody had announced.
    Signalled { reason: String },
    /// It was about to stop, and did not come to an end of it. Who ended it is not known.
    Amid,
    /// It did not even say goodbye.
    Killed,
}

impl End {
    fn of(fields: &Map<String, Value>) -> Self {
        let text = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
        let reason = text("exit_reason");
        let state = text("gateway_state");
        let restart = fields.get("restart_requested") == Some(&Value::Bool(true));
        let kind = fields.get("drain").and_then(|drain| drain.get("kind")).and_then(Value::as_str);
        match (state.as_deref(), reason) {
            (Some("stopped"), _) if restart => Self::Restart,
            (Some("draining"), _) if matches!(kind, Some("shutdown" | "restart")) => Self::Amid,
            (None | Some("stopped"), reason) => Self::Stopped { reason },
            (Some("startup_failed"), reason) => Self::Unstartable { reason: reason.unwrap_or_default() },
            (Some(_), Some(reason)) => Self::Signalled { reason },
            (Some(_), None) => Self::Killed,
        }
    }

    const fn state(&self) -> &'static str {
        match self {
            Self::Unstartable { .. } => "startup_failed",
            Self::Stopped { .. } | Self::Restart | Self::Signalled { .. } | Self::Amid | Self::Killed => {
                "stopped"
            }
        }
    }

    const fn as_str(&self) -> &'static str {
        match self {
            Self::Stopped { .. } => "stopped",
            Self::Unstartable { .. } => "unstartable",
            Self::Restart => "restart",
            Self::Signalled { .. } => "signalled",
            Self::Amid => "amid_stop",
            Self::Killed => "killed",
        }
    }

    fn reason(&self) -> Option<&str> {
        match self {
            Self::Stopped { reason } => reason.as_deref(),
            Self::Unstartable { reason } | Self::Signalled { reason } => Some(reason),
            Self::Restart | Self::Amid | Self::Killed => None,
        }
    }
}

pub(super) fn absent(context: &Context) -> Result<ExitCode, Failure> {
    let fields = state::read(context.home.path()).unwrap_or_default();
    match lock::holder(&context.home.lock_file()) {
        Some(held) => silent(context, &held.process, &fields),
        None => stopped(context, &End::of(&fields)),
    }
}

/// Somebody has the home: it is starting, or stuck.
fn silent(context: &Context, record: &Record, fields: &Map<String, Value>) -> Result<ExitCode, Failure> {
    let theirs = fields.get("pid").and_then(Value::as_u64) == Some(record.pid.into());
    let said = fields.get("gateway_state").and_then(Value::as_str).filter(|_| theirs);
    // What is in the file may be of the process before.
    let state = said.filter(|state| !matches!(*state, "stopped" | "startup_failed")).unwrap_or("starting");
    let load = if theirs { Load::of(fields, Process::Live) } else { Load::default() };
    if context.json {
        print::json(&json!({
            "state": state, "gateway_state": state, "gateway_running": true, "answers": false, "pid": record.pid,
            "home": context.home.path(), "active_agents": load.active_agents, "gateway_busy": load.busy,
            "gateway_drainable": load.drainable,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let kind = fields.get("drain").and_then(|drain| drain.get("kind")).and_then(Value::as_str);
    let does = headline(state, kind.filter(|_| theirs));
    say!("{} is {}, and does not answer", styled(BOLD, "Petasos"), styled(ODD, does));
    line("process", &format!("pid {}", record.pid));
    line("home", &context.home.path().display().to_string());
    if state != "starting" {
        line("", "if it stays like this: petasos stop; and if that does not help, petasos run --replace");
    }
    Ok(ExitCode::SUCCESS)
}

/// Open work in the database of a gateway that does not run.
struct Stored {
    sessions: usize,
    inbox: Backlog,
    outbox: OutboxCounts,
}

impl Stored {
    fn read(context: &Context) -> Result<Option<Self>, Failure> {
        let Some(reader) = reader(&context.home)? else { return Ok(None) };
        let sessions = stored(context)?;
        Ok(Some(Self { sessions, inbox: reader.backlog()?, outbox: reader.outbox_counts()? }))
    }
}

/// No process runs. A database that cannot be read, because it is damaged or a gateway is just creating it, is
/// reported and hides nothing else.
fn stopped(context: &Context, end: &End) -> Result<ExitCode, Failure> {
    let (open, unreadable) = match Stored::read(context) {
        Ok(open) => (open, None),
        Err(failure) => (None, Some(failure.to_string())),
    };
    let restrictions = limits::summary(&petasos_config::load(&context.home).settings);
    let marker = marker(&context.home).filter(|(_, standing)| *standing == Standing::Active);
    if context.json {
        let inbox = open.as_ref().map(|it| json!({ "queued": it.inbox.queued, "running": it.inbox.claimed }));
        let outbox = open
            .as_ref()
            .map(|it| json!({ "due": it.outbox.due + it.outbox.sending, "dead": it.outbox.dead }));
        let sessions = match (&open, &unreadable) {
            (_, Some(_)) => Value::Null,
            (open, None) => json!(open.as_ref().map_or(0, |it| it.sessions)),
        };
        print::json(&json!({
            "state": end.state(), "gateway_state": end.state(), "gateway_running": false, "active_agents": 0,
            "gateway_busy": false, "gateway_drainable": false, "gateway_exit_reason": end.reason(),
            "ended": end.as_str(), "home": context.home.path(), "stored_sessions": sessions,
            "inbox": inbox, "outbox": outbox, "drain_marker": marker.map(|(marker, _)| marker),
            "restrictions": restrictions, "database_error": unreadable,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    tell(end);
    line("home", &context.home.path().display().to_string());
    if let Some(error) = unreadable {
        line(
            "database",
            &styled(BAD, &format!("cannot be read: {error}; petasos doctor looks for the cause")),
        );
    }
    if let Some(Stored { sessions, inbox, outbox }) = open {
        line("sessions", &format!("{sessions} stored"));
        line("inbox", &format!("{} to be answered", inbox.queued + inbox.claimed));
        line("outbox", &format!("{} due, {} given up", outbox.due + outbox.sending, outbox.dead));
    }
    super::restrictions(&restrictions);
    if let Some((marker, _)) = marker {
        let asked = asked_for(marker.principal.as_deref(), marker.requested(), marker.reason.as_deref());
        let what = format!("a drain is {asked}; the next gateway takes no turns until petasos resume");
        warn_of!("{} {what}", styled(ODD, "warning:"));
    }
    Ok(ExitCode::SUCCESS)
}

fn tell(end: &End) {
    let (name, starts) = (styled(BOLD, "Petasos"), styled(DIM, "(petasos run starts it)"));
    match end {
        End::Stopped { .. } | End::Signalled { .. } | End::Amid | End::Killed => {
            say!("{name} is stopped {starts}")
        }
        End::Restart => say!("{name} is stopped, and {} {starts}", styled(ODD, "waits to be started again")),
        End::Unstartable { .. } => say!("{name} {}", styled(BAD, "could not start")),
    }
    match end {
        End::Stopped { reason: None } => {}
        End::Stopped { reason: Some(reason) } => line("because", reason),
        End::Restart => line("because", "somebody asked for a restart; if nobody looks after it, start it"),
        End::Unstartable { reason } => reason.lines().for_each(|text| say!("    {text}")),
        End::Signalled { reason } => {
            line("because", &format!("{reason}, which nobody had announced; what was at work is resumed"));
        }
        End::Amid => {
            line("because", &styled(ODD, "it ended in the middle of a stop; what was at work is resumed"));
        }
        End::Killed => {
            let what =
                "it did not stop by itself: it was killed, or the machine was; what was at work is resumed";
            line("because", &styled(ODD, what));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_gateway_is_known_by_its_last_words() {
        for (told, end, state) in [
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
            let found = End::of(told.as_object().unwrap());
            assert_eq!((found.as_str(), found.state()), (end, state), "{told}");
        }
    }
}
