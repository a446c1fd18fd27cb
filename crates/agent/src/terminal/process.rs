//! `process`: a session looks after the processes it started in the background. It sees nobody else's.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::live::Process;
use super::processes::{Processes, now};
use super::record::{Promise, Reason};
use super::text;
use crate::tools::{Arguments, SessionCtx, local};

/// The longest wait of one call.
const LONGEST_WAIT: usize = 180;
/// What is read of a process's output, in bytes.
const WINDOW: u64 = 200_000;
/// Lines of `log` that names no number, and the most.
const LINES: usize = 200;
const MOST_LINES: usize = 2000;
/// Characters of output in the various answers.
const IN_LIST: usize = 200;
const IN_POLL: usize = 1000;
const AT_END: usize = 2000;
/// Characters of a command in a list.
const COMMAND: usize = 200;

pub(crate) fn schema() -> (&'static str, Value) {
    let parameters = json!({
        "type": "object",
        "properties": {
            "action": {
                "type": "string",
                "enum": ["list", "poll", "log", "wait", "kill", "write", "submit", "close"],
            },
            "session_id": {"type": "string", "description": "The process (proc_…); for all actions but list"},
            "data": {"type": "string", "description": "What write and submit send; submit adds a newline"},
            "timeout": {"type": "integer", "minimum": 1, "description": "Seconds wait may take, at most 180"},
            "offset": {"type": "integer", "minimum": 0, "description": "First line of log, counted from 0; default: the last ones"},
            "limit": {"type": "integer", "minimum": 1, "description": "Lines of log, default 200"},
        },
        "required": ["action"],
    });
    (
        "Looks after background processes of this conversation: list them, poll one, read its log, wait for its end, kill \
         it, write to its input, submit a line, or close its input.",
        parameters,
    )
}

pub(super) async fn run(processes: &Processes, ctx: &SessionCtx, arguments: &Arguments) -> Value {
    match answer(processes, ctx, arguments).await {
        Ok(value) => value,
        Err(reason) => json!({ "error": reason }),
    }
}

async fn answer(processes: &Processes, ctx: &SessionCtx, arguments: &Arguments) -> Result<Value, String> {
    let action = arguments.text("action")?;
    if action == "list" {
        return Ok(list(processes, ctx).await);
    }
    if !["poll", "log", "wait", "kill", "write", "submit", "close"].contains(&action) {
        return Err(format!("Unknown process action: {action}"));
    }
    let id = arguments.maybe("session_id")?.filter(|id| !id.is_empty());
    let id = id.ok_or_else(|| format!("session_id is required for {action}"))?;
    let Some(process) = processes.find(&ctx.key, id) else {
        return Ok(json!({ "status": "not_found", "error": format!("No process with ID {id}") }));
    };
    match action {
        "poll" => Ok(poll(&process).await),
        "log" => log(processes, &process, arguments).await,
        "wait" => wait(processes, &process, arguments).await,
        "kill" => Ok(kill(processes, &process).await),
        "submit" => {
            let mut data = arguments.maybe("data")?.unwrap_or_default().to_owned();
            data.push('\n');
            Ok(write(&process, &data).await)
        }
        "write" => Ok(write(&process, arguments.text("data")?).await),
        _ => Ok(match process.close().await {
            Ok(message) => json!({ "status": "ok", "message": message }),
            Err(error) => cannot(&error),
        }),
    }
}

async fn list(processes: &Processes, ctx: &SessionCtx) -> Value {
    let mut listed = Vec::new();
    for process in processes.of(&ctx.key) {
        let record = &process.record;
        let mut entry = Map::from_iter([
            ("session_id".into(), record.id.clone().into()),
            ("command".into(), command(&process).chars().take(COMMAND).collect::<String>().into()),
            ("cwd".into(), record.cwd.clone().into()),
            ("pid".into(), process.who.pid.into()),
            ("started_at".into(), started(&process, ctx).into()),
            ("uptime_seconds".into(), uptime(&process).into()),
            ("status".into(), status(&process).into()),
            ("output_preview".into(), preview(&process, IN_LIST).await.into()),
        ]);
        match &record.promise {
            Promise::Nothing => {}
            Promise::Completion => drop(entry.insert("notify_on_complete".into(), true.into())),
            Promise::Lines { patterns, .. } => drop(entry.insert("watch_patterns".into(), json!(patterns))),
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

/// Looks and changes nothing: an end that was seen here is told all the same.
async fn poll(process: &Process) -> Value {
    let mut polled = json!({
        "session_id": process.record.id,
        "command": command(process),
        "status": status(process),
        "pid": process.who.pid,
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

async fn log(processes: &Processes, process: &Process, arguments: &Arguments) -> Result<Value, String> {
    let limit = arguments.count("limit", LINES, MOST_LINES)?;
    let ended = process.end().is_some();
    let output = process.tail(WINDOW).await;
    let lines: Vec<&str> = output.lines().collect();
    let first = match arguments.0.get("offset").and_then(Value::as_u64) {
        Some(offset) => usize::try_from(offset).unwrap_or(usize::MAX).min(lines.len()),
        None => lines.len().saturating_sub(limit),
    };
    let last = first.saturating_add(limit).min(lines.len());
    if ended && last == lines.len() {
        processes.consumed(process).await;
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

async fn wait(processes: &Processes, process: &Process, arguments: &Arguments) -> Result<Value, String> {
    let asked = arguments.count("timeout", LONGEST_WAIT, usize::MAX)?;
    let seconds = asked.min(LONGEST_WAIT);
    let clamped = (asked > seconds).then(|| format!("Waited at most {LONGEST_WAIT} s instead of {asked} s."));
    let ended = tokio::time::timeout(Duration::from_secs(seconds as u64), process.ended()).await;
    let mut waited = if ended.is_ok() {
        processes.consumed(process).await;
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
    if !processes.kill(process, Reason::Killed).await {
        return json!({ "status": "error", "error": "It does not end." });
    }
    processes.consumed(process).await;
    json!({
        "status": "killed",
        "session_id": process.record.id,
        "completion_reason": Reason::Killed.as_str(),
        "termination_source": Reason::Killed.source(),
        "output": preview(process, AT_END).await,
    })
}

async fn write(process: &Process, data: &str) -> Value {
    if process.end().is_some() {
        return json!({ "status": "already_exited", "error": "It has ended." });
    }
    match process.write(data.as_bytes()).await {
        Ok(()) => json!({ "status": "ok", "bytes_written": data.len() }),
        Err(error) => cannot(&error),
    }
}

fn cannot(error: &std::io::Error) -> Value {
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
    text::redact(&process.record.command).into_owned()
}

fn status(process: &Process) -> &'static str {
    if process.end().is_some() { "exited" } else { "running" }
}

fn uptime(process: &Process) -> u64 {
    let until = process.end().map_or_else(now, |end| end.at);
    until.since(process.record.started_at).as_secs()
}

fn started(process: &Process, ctx: &SessionCtx) -> String {
    local(process.record.started_at, ctx.timezone.as_deref()).strftime("%Y-%m-%dT%H:%M:%S").to_string()
}

async fn preview(process: &Process, most: usize) -> String {
    let output = process.tail(most as u64 * 4).await;
    text::tail(&output, most).to_owned()
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;
