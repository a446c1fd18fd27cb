//! The `process` tool: lists and controls the background processes of a session.

use std::sync::Arc;
use std::time::Duration;

use petasos_runtime::clock;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Processes;
use super::process::Process;
use super::record::{ExitReason, NotifyMode};
use crate::terminal::{of as terminal, redaction};
use crate::tools::registry::arguments::{Count, required};
use crate::tools::registry::definition::{Definition, Effects, Reach, Runner, Service, Toolset};
use crate::tools::{SessionCtx, local};

const MAX_WAIT: usize = 180;
const WINDOW: u64 = 200_000;
const LINES: usize = 200;
const MAX_LINES: usize = 2000;
const IN_LIST: usize = 200;
const IN_POLL: usize = 1000;
const AT_END: usize = 2000;
const COMMAND: usize = 200;

pub(crate) fn tool() -> Definition {
    Definition {
        name: "process",
        description: "Manages background processes of this conversation: list them, poll one, read its log, wait for its end, kill \
             it, write to its input, submit a line, or close its input.",
        toolset: Toolset::Terminal,
        service: Service::Terminal,
        effects: Effects::Anything,
        paginated: false,
        reach: Reach::Turn,
        runner: Runner::new(|tools, ctx, arguments: ProcessArguments| {
            Box::pin(async move {
                match dispatch(&terminal(tools)?.processes, ctx, &arguments).await {
                    Ok(value) | Err(value) => Ok(value),
                }
            })
        }),
    }
}

#[derive(Deserialize, JsonSchema)]
struct ProcessArguments {
    #[schemars(with = "ProcessAction")]
    action: String,
    /// The process (proc_…); for all actions but list
    session_id: Option<String>,
    /// Text for write and submit; submit adds a newline
    data: Option<String>,
    /// Seconds wait may take, at most 180
    #[schemars(range(min = 1))]
    timeout: Option<Count>,
    /// First line of log, counted from 0; default: the last ones
    #[schemars(range(min = 0))]
    offset: Option<Count>,
    /// Lines of log, default 200
    #[schemars(range(min = 1))]
    limit: Option<Count>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ProcessAction {
    List,
    Poll,
    Log,
    Wait,
    Kill,
    Write,
    Submit,
    Close,
}

async fn dispatch(
    processes: &Processes,
    ctx: &SessionCtx,
    arguments: &ProcessArguments,
) -> Result<Value, Value> {
    let wrong = |reason: String| json!({ "error": reason });
    let Ok(action) = serde_json::from_value(json!(arguments.action)) else {
        return Err(wrong(format!("Unknown process action: {}", arguments.action)));
    };
    let process = || find(processes, ctx, arguments);
    match action {
        ProcessAction::List => Ok(list(processes, ctx).await),
        ProcessAction::Poll => Ok(poll(&*process()?).await),
        ProcessAction::Log => log(processes, &*process()?, arguments).await.map_err(wrong),
        ProcessAction::Wait => wait(processes, &*process()?, arguments).await.map_err(wrong),
        ProcessAction::Kill => Ok(kill(processes, &*process()?).await),
        ProcessAction::Submit => {
            let data = arguments.data.as_deref().unwrap_or_default();
            Ok(write(&*process()?, &format!("{data}\n")).await)
        }
        ProcessAction::Write => {
            Ok(write(&*process()?, required(&arguments.data, "data").map_err(wrong)?).await)
        }
        ProcessAction::Close => Ok(match process()?.close().await {
            Ok(message) => json!({ "status": "ok", "message": message }),
            Err(error) => io_failure(&error),
        }),
    }
}

fn find(
    processes: &Processes,
    ctx: &SessionCtx,
    arguments: &ProcessArguments,
) -> Result<Arc<Process>, Value> {
    let id = arguments.session_id.as_deref().filter(|id| !id.is_empty());
    let id =
        id.ok_or_else(|| json!({ "error": format!("session_id is required for {}", arguments.action) }))?;
    let missing = || json!({ "status": "not_found", "error": format!("No process with ID {id}") });
    processes.find(&ctx.key, id).ok_or_else(missing)
}

async fn list(processes: &Processes, ctx: &SessionCtx) -> Value {
    let mut listed = Vec::new();
    for process in processes.of(&ctx.key) {
        let record = &process.record;
        let mut entry = Map::from_iter([
            ("session_id".into(), record.id.clone().into()),
            ("command".into(), command(&process).chars().take(COMMAND).collect::<String>().into()),
            ("cwd".into(), record.cwd.clone().into()),
            ("pid".into(), process.identity.pid.into()),
            ("started_at".into(), started(&process, ctx).into()),
            ("uptime_seconds".into(), uptime(&process).into()),
            ("status".into(), status(&process).into()),
            ("output_preview".into(), preview(&process, IN_LIST).await.into()),
        ]);
        match &record.notify {
            NotifyMode::Nothing => {}
            NotifyMode::Completion => drop(entry.insert("notify_on_complete".into(), true.into())),
            NotifyMode::Lines { patterns, .. } => {
                drop(entry.insert("watch_patterns".into(), json!(patterns)))
            }
        }
        if let Some(end) = process.end() {
            entry.insert("exit_code".into(), json!(end.exit_code));
        }
        if process.adopted {
            entry.insert("detached".into(), true.into());
        }
        listed.push(Value::Object(entry));
    }
    json!({ "processes": listed })
}

/// Read-only: never suppresses the completion notification.
async fn poll(process: &Process) -> Value {
    let mut polled = json!({
        "session_id": process.record.id,
        "command": command(process),
        "status": status(process),
        "pid": process.identity.pid,
        "uptime_seconds": uptime(process),
        "output_preview": preview(process, IN_POLL).await,
    });
    add_end(process, &mut polled);
    if process.adopted {
        polled["detached"] = true.into();
        polled["note"] = "Started before the gateway was restarted: its input cannot be written to.".into();
    }
    polled
}

async fn log(
    processes: &Processes,
    process: &Process,
    arguments: &ProcessArguments,
) -> Result<Value, String> {
    let limit = Count::within(arguments.limit.as_ref(), "limit", LINES, MAX_LINES)?;
    let ended = process.end().is_some();
    let output = process.tail(WINDOW).await;
    let lines: Vec<&str> = output.lines().collect();
    let first = match arguments.offset.as_ref().and_then(Count::number) {
        Some(offset) => usize::try_from(offset).unwrap_or(usize::MAX).min(lines.len()),
        None => lines.len().saturating_sub(limit),
    };
    let last = first.saturating_add(limit).min(lines.len());
    if ended && last == lines.len() {
        processes.mark_consumed(process).await;
    }
    Ok(json!({
        "session_id": process.record.id,
        "command": command(process),
        "status": status(process),
        "output": lines[first..last].join("\n"),
        "total_lines": lines.len(),
        "showing": format!("{} lines", last - first),
    }))
}

async fn wait(
    processes: &Processes,
    process: &Process,
    arguments: &ProcessArguments,
) -> Result<Value, String> {
    let requested = Count::within(arguments.timeout.as_ref(), "timeout", MAX_WAIT, usize::MAX)?;
    let seconds = requested.min(MAX_WAIT);
    let clamped =
        (requested > seconds).then(|| format!("Waited at most {MAX_WAIT} s instead of {requested} s."));
    let ended = tokio::time::timeout(Duration::from_secs(seconds as u64), process.wait_ended()).await;
    let mut waited = if ended.is_ok() {
        processes.mark_consumed(process).await;
        let mut waited = json!({
            "status": "exited",
            "command": command(process),
            "output": preview(process, AT_END).await,
        });
        add_end(process, &mut waited);
        waited
    } else {
        let note = format!("It still runs after {seconds} s.");
        json!({
            "status": "timeout",
            "command": command(process),
            "output": preview(process, IN_POLL).await,
            "timeout_note": note,
        })
    };
    if let Some(clamped) = clamped {
        waited["timeout_note"] = clamped.into();
    }
    Ok(waited)
}

async fn kill(processes: &Processes, process: &Process) -> Value {
    if process.end().is_some() {
        let mut ended = json!({ "status": "already_exited", "session_id": process.record.id });
        add_end(process, &mut ended);
        return ended;
    }
    if !processes.kill(process, ExitReason::Killed).await {
        return json!({ "status": "error", "error": "The process did not end." });
    }
    processes.mark_consumed(process).await;
    json!({
        "status": "killed",
        "session_id": process.record.id,
        "completion_reason": ExitReason::Killed.as_str(),
        "termination_source": ExitReason::Killed.source(),
        "output": preview(process, AT_END).await,
    })
}

async fn write(process: &Process, data: &str) -> Value {
    if process.end().is_some() {
        return json!({ "status": "already_exited", "error": "The process has ended." });
    }
    match process.write(data.as_bytes()).await {
        Ok(()) => json!({ "status": "ok", "bytes_written": data.len() }),
        Err(error) => io_failure(&error),
    }
}

fn io_failure(error: &std::io::Error) -> Value {
    json!({ "status": "error", "error": error.to_string() })
}

fn add_end(process: &Process, to: &mut Value) {
    if let Some(end) = process.end() {
        to["exit_code"] = json!(end.exit_code);
        to["completion_reason"] = end.reason.as_str().into();
        to["termination_source"] = end.reason.source().into();
    }
}

fn command(process: &Process) -> String {
    redaction::redact(&process.record.command).into_owned()
}

fn status(process: &Process) -> &'static str {
    if process.end().is_some() { "exited" } else { "running" }
}

fn uptime(process: &Process) -> u64 {
    let until = process.end().map_or_else(clock::now, |end| end.at);
    until.since(process.record.started_at).as_secs()
}

fn started(process: &Process, ctx: &SessionCtx) -> String {
    local(process.record.started_at, ctx.timezone.as_deref()).strftime("%Y-%m-%dT%H:%M:%S").to_string()
}

async fn preview(process: &Process, most: usize) -> String {
    let output = process.tail(most as u64 * 4).await;
    redaction::tail(&output, most).to_owned()
}

#[cfg(test)]
#[path = "tool_tests.rs"]
mod tests;
