//! The message that reports ended delegated work to its conversation. It is self-contained, because it may be read long
//! after the delegation.

use jiff::Timestamp;
use petasos_agent::DelegatedTask;
use petasos_core::Millis;
use serde_json::Value;

use super::report::KIND;

#[derive(Debug)]
pub(crate) struct DelegationMessage {
    pub(crate) text: String,
    /// For a chat with a new conversation since then.
    pub(crate) headline: String,
}

/// `None`: not a completion of delegated work.
pub(crate) fn message(kind: &str, payload: &str) -> Option<DelegationMessage> {
    if kind != KIND {
        return None;
    }
    let payload: Value = serde_json::from_str(payload).ok()?;
    let tasks: Vec<DelegatedTask> = serde_json::from_value(payload["tasks"].clone()).ok()?;
    let text = |name: &str| payload[name].as_str().unwrap_or_default();
    let id = text("delegation_id");
    let status = text("status");
    let count = tasks.len();
    let blocks = tasks.iter().enumerate().map(|(at, task)| block(at, count, task, &payload["results"][at]));
    let blocks: Vec<String> = blocks.collect();
    let head = [
        format!("[ASYNC DELEGATION BATCH COMPLETE — {id}]"),
        format!("Delegated work has ended (status={status}).{}", times(&payload)),
        text("error").to_owned(),
    ];
    let head: Vec<&str> = head.iter().map(String::as_str).filter(|line| !line.is_empty()).collect();
    let file = payload["live_transcripts"][0].as_str().map(|file| format!(" ({file})")).unwrap_or_default();
    let goal: String = text("goal").chars().take(120).collect();
    Some(DelegationMessage {
        text: format!("{}\n\n{}", head.join("\n"), blocks.join("\n\n")),
        headline: crate::notices::work::delegation_ended(status, &goal, &file),
    })
}

fn times(payload: &Value) -> String {
    let at = |name: &str| payload[name].as_u64().map(Millis);
    let (Some(from), Some(to)) = (at("dispatched_at"), at("completed_at")) else { return String::new() };
    let moment = i64::try_from(from.0).ok().and_then(|at| Timestamp::from_millisecond(at).ok());
    let moment = moment.map(|at| format!("{at:.0}")).unwrap_or_default();
    let model = payload["model"].as_str().map(|model| format!("; model {model}")).unwrap_or_default();
    format!(" Dispatched at {moment}, {} s before it ended{model}.", to.since(from).as_secs())
}

fn block(at: usize, count: usize, task: &DelegatedTask, result: &Value) -> String {
    let text = |name: &str| result[name].as_str().filter(|text| !text.is_empty());
    let status = text("status").unwrap_or("unknown");
    let mark = if status == "completed" { '✓' } else { '✗' };
    let seconds = result["duration_seconds"].as_f64().map(|it| format!(", {it:.0} s")).unwrap_or_default();
    let role = serde_json::to_value(task.role).ok();
    let role = role.as_ref().and_then(Value::as_str).unwrap_or_default();
    let mut lines = vec![
        format!("--- {mark} TASK {}/{count}: {} (status={status}) ---", at + 1, task.goal),
        format!("Role: {role}{seconds}"),
    ];
    lines.extend(task.context.as_ref().map(|context| format!("Context given: {context}")));
    lines.extend(text("summary").map(str::to_owned));
    lines.extend(text("error").map(|error| format!("Error: {error}")));
    lines.extend(text("summary_full_path").map(|path| format!("(whole report: {path})")));
    lines.extend(text("live_transcript").map(|path| format!("Transcript: {path}")));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_every_task_in_order() {
        let payload = json!({
            "delegation_id": "deleg_1", "status": "partial", "goal": "one", "model": "m",
            "dispatched_at": 1_000, "completed_at": 8_000,
            "tasks": [{"goal": "one", "context": "all of it"}, {"goal": "two", "role": "orchestrator"}],
            "results": [
                {"status": "completed", "summary": "did it", "duration_seconds": 5.2, "live_transcript": "/t/1"},
                {"status": "failed", "error": "no"},
            ],
        });
        let rendered = message("delegation", &payload.to_string()).unwrap();
        assert_eq!(
            rendered.text,
            "[ASYNC DELEGATION BATCH COMPLETE — deleg_1]\n\
             Delegated work has ended (status=partial). Dispatched at 1970-01-01T00:00:01Z, 7 s before it \
             ended; model m.\n\n\
             --- ✓ TASK 1/2: one (status=completed) ---\nRole: leaf, 5 s\nContext given: all of it\ndid it\n\
             Transcript: /t/1\n\n\
             --- ✗ TASK 2/2: two (status=failed) ---\nRole: orchestrator\nError: no"
        );
        assert!(rendered.headline.contains("(partial): one"), "{}", rendered.headline);
        assert!(super::message("completion", &payload.to_string()).is_none());
    }
}
