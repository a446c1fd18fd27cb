//! Reports of children: results for the model, the completion of a batch, transcripts and files for long reports.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use petasos_agent::DelegatedTask;
use petasos_core::ids::RowId;
use petasos_core::journal::{MessageOutcome, Write};
use petasos_core::transcript::{Message, Role};
use petasos_core::turn::{self, Event, TurnLimits};
use petasos_core::{DelegationId, Millis, SessionId, SessionKey, TurnId};
use petasos_store::{DelegationRow, Error as StoreError, Tx};
use serde_json::{Value, json};

use super::batch::{ChildSession, DelegationBatch, StopReason};
use super::{Delegation, DelegationContext, is_child};
use crate::runtime::commit::Commit;
use crate::{Error, clock};

/// Bounds of a report in the parent's context.
const MAX_SUMMARY_CHARS: usize = 24_000;
const MIN_SUMMARY_CHARS: usize = 2_000;
const MAX_ROW_CHARS: usize = 2_000;
/// Only the last rows of a child are read.
const MAX_ROWS: usize = 1_000;
const RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);
const STORE_RETRY: Duration = Duration::from_secs(1);

/// How a child ended.
pub(super) struct ChildEnd {
    /// `None`: unknown.
    pub(super) outcome: Option<MessageOutcome>,
    pub(super) stop_reason: Option<StopReason>,
    pub(super) seconds: f64,
}

impl ChildEnd {
    /// Status and reason.
    fn status(&self, spent: bool) -> (&'static str, &'static str) {
        match (self.outcome, self.stop_reason) {
            (Some(MessageOutcome::Answered), _) if spent => ("completed", "max_iterations"),
            (Some(MessageOutcome::Answered | MessageOutcome::Merged), _) => ("completed", "completed"),
            (_, Some(StopReason::TimedOut)) => ("timeout", "timeout"),
            (Some(MessageOutcome::Cancelled), _) | (_, Some(StopReason::Stopped)) => {
                ("interrupted", "interrupted")
            }
            (Some(MessageOutcome::Refused | MessageOutcome::Dead), None) => ("failed", "error"),
            (None, None) => ("error", "error"),
        }
    }
}

/// The result entry of one child, for the model.
pub(super) async fn entry(context: &DelegationContext, child: &ChildSession, ended: &ChildEnd) -> Value {
    let session = child.session.clone();
    let turn = TurnId::from(child.inbox);
    let read = context.db.read(move |reader| {
        let rows = reader.rows_last(&session, MAX_ROWS)?;
        let rows: Vec<Message> = rows.into_iter().map(|row| row.message).collect();
        let steps = reader.turn(turn)?.map_or(0, |journaled| journaled.turn.step);
        let usage = reader.session(&session)?.map(|row| row.usage).unwrap_or_default();
        Ok((rows, steps, usage))
    });
    let (rows, steps, usage) = match read.await {
        Ok(read) => read,
        Err(error) => return json!({ "task_index": child.at, "status": "error", "error": error.to_string() }),
    };
    let (status, exit_reason) = ended.status(steps >= context.settings.delegation.steps);
    let mut entry = json!({
        "task_index": child.at,
        "status": status,
        "summary": "",
        "api_calls": steps,
        "duration_seconds": ended.seconds,
        "model": context.model,
        "exit_reason": exit_reason,
        "tokens": { "input": usage.input, "output": usage.output },
        "tool_trace": trace(&rows),
        "live_transcript": child.transcript_path(),
    });
    let last = |role: Role| rows.iter().rev().find(|row| row.role == role && !row.content.trim().is_empty());
    match (status, last(Role::Assistant), last(Role::Notice)) {
        ("completed", Some(answer), _) => put_summary(context, child, &answer.content, &mut entry).await,
        (_, answer, notice) => {
            if let Some(answer) = answer {
                put_summary(context, child, &answer.content, &mut entry).await;
            }
            let error = notice.map_or("It ended without a report.", |notice| notice.content.as_str());
            entry["error"] = error.into();
        }
    }
    entry
}

fn trace(rows: &[Message]) -> Vec<Value> {
    let results = rows.iter().filter(|row| row.role == Role::Tool);
    let one = |row: &Message| {
        let id = row.tool_call_id.as_deref();
        let call = rows.iter().flat_map(|row| &row.tool_calls).find(|call| Some(call.id.as_str()) == id);
        let failed = row.content.trim_start().starts_with("{\"error\":\"");
        json!({
            "tool": row.tool_name,
            "args_bytes": call.map_or(0, |call| call.arguments.len()),
            "result_bytes": row.content.len(),
            "status": if failed { "error" } else { "ok" },
        })
    };
    results.map(one).collect()
}

/// Adds the report, shortened if necessary; a shortened report is saved in full in a file.
async fn put_summary(context: &DelegationContext, child: &ChildSession, text: &str, entry: &mut Value) {
    let children = context.settings.delegation.children.max(1);
    let room = (context.window * 4 / 2 / children).clamp(MIN_SUMMARY_CHARS, MAX_SUMMARY_CHARS);
    if text.chars().count() <= room {
        entry["summary"] = text.into();
        return;
    }
    let path = child.transcript.with_extension("full.md");
    let spilled = write_private(&path, text.as_bytes()).await;
    entry["summary"] = shorten(text, room).into();
    entry["summary_truncated"] = true.into();
    match spilled {
        Ok(()) => entry["summary_full_path"] = path.display().to_string().into(),
        Err(error) => tracing::warn!(%error, "cannot save the full report of a subagent"),
    }
}

fn shorten(text: &str, room: usize) -> String {
    let all: Vec<char> = text.chars().collect();
    let head = room * 3 / 4;
    let tail = room / 4;
    let omitted = all.len().saturating_sub(head + tail);
    let begin: String = all[..head.min(all.len())].iter().collect();
    let end: String = all[all.len().saturating_sub(tail)..].iter().collect();
    format!("{begin}\n[… {omitted} characters are left out …]\n{end}")
}

/// Appends to the live transcript of a child.
pub(super) struct TranscriptWriter {
    path: PathBuf,
    session: SessionId,
    after: RowId,
}

impl TranscriptWriter {
    pub(super) fn new(child: &ChildSession) -> Self {
        Self { path: child.transcript.clone(), session: child.session.clone(), after: RowId(0) }
    }

    /// Appends new rows. Errors are only logged: the result does not depend on the transcript.
    pub(super) async fn write(&mut self, context: &DelegationContext) {
        let session = self.session.clone();
        let after = self.after;
        let Ok(rows) = context.db.read(move |reader| reader.rows_after(&session, after, MAX_ROWS)).await
        else {
            return;
        };
        let Some(last) = rows.last().map(|row| row.id) else { return };
        let text: String = rows.iter().map(|row| format_row(&row.message)).collect();
        match append_private(&self.path, text.as_bytes()).await {
            Ok(()) => self.after = last,
            Err(error) => tracing::debug!(%error, "cannot write the transcript of a subagent"),
        }
    }
}

fn format_row(row: &Message) -> String {
    let shown: String = row.content.chars().take(MAX_ROW_CHARS).collect();
    let calls: String = row
        .tool_calls
        .iter()
        .map(|call| format!("\n-> {} ({} bytes)", call.name, call.arguments.len()))
        .collect();
    let name = row.tool_name.as_deref().map(|name| format!(" {name}")).unwrap_or_default();
    format!("## {}{name}\n{shown}{calls}\n\n", row.role.as_str())
}

/// Stores the end of a batch and its completion in one commit, retried until it succeeds.
pub(super) async fn store_completion(
    delegation: &Delegation,
    batch: &DelegationBatch,
    results: Vec<Value>,
    seconds: f64,
) {
    let status = batch_status(&results);
    let transcripts: Vec<_> = batch.children.iter().map(ChildSession::transcript_path).collect();
    let mut payload = event(&batch.id, &batch.key, &batch.session, &batch.tasks);
    payload["status"] = status.into();
    payload["results"] = results.into();
    payload["model"] = delegation.0.context.model.clone().into();
    payload["live_transcripts"] = json!(transcripts);
    payload["total_duration_seconds"] = seconds.into();
    payload["dispatched_at"] = json!(batch.dispatched_at);
    payload["completed_at"] = json!(clock::now());
    let payload = payload.to_string();
    loop {
        let id = batch.id.clone();
        let key = batch.key.clone();
        let origin = batch.origin.clone();
        let session = batch.session.clone();
        let payload = payload.clone();
        let kept = delegation.0.context.db.write(Commit::Delegation, move |tx| {
            let now = clock::now();
            if tx.delegation_ended(&id, status, &payload, now)? {
                tx.record_completion(id.as_str(), (&key, Some(&session)), &origin, KIND, &payload, now)?;
            }
            Ok(())
        });
        match kept.await {
            Ok(()) => return delegation.0.context.wake.notify(),
            // The next start marks the batch as unknown.
            Err(Error::Stopping) => return,
            Err(error) => {
                tracing::warn!(%error, "the end of delegated work cannot be stored; trying again");
                clock::sleep(STORE_RETRY).await;
            }
        }
    }
}

/// The completion payload without results.
fn event(id: &DelegationId, key: &SessionKey, session: &SessionId, tasks: &[DelegatedTask]) -> Value {
    let goals: Vec<_> = tasks.iter().map(|task| &task.goal).collect();
    json!({
        "type": "async_delegation",
        "delegation_id": id,
        "session_key": key,
        "parent_session_id": session,
        "goal": goals.first(),
        "goals": goals,
        "context": tasks.first().and_then(|task| task.context.as_ref()),
        "role": tasks.first().map(|task| task.role),
        "tasks": tasks,
        "is_batch": true,
        "results": [],
    })
}

pub(super) const KIND: &str = "delegation";

fn batch_status(results: &[Value]) -> &'static str {
    let has = |status: &str| results.iter().any(|result| result["status"] == status);
    match () {
        () if results.iter().all(|result| result["status"] == "completed") => "completed",
        () if has("completed") => "partial",
        () if has("interrupted") => "interrupted",
        () if has("timeout") => "timeout",
        () => "failed",
    }
}

/// Ends the batches and children of the previous process. Each conversation is notified once; children are not resumed.
pub(crate) fn recover_interrupted(tx: &Tx<'_>, limits: TurnLimits, now: Millis) -> Result<(), StoreError> {
    for row in tx.open_delegations()? {
        tracing::warn!(delegation = %row.id, "delegated work was cut off; its outcome is unknown");
        let payload = unknown(&row, now).to_string();
        if tx.delegation_ended(&row.id, "unknown", &payload, now)? {
            let to = (&row.key, Some(&row.session));
            tx.record_completion(row.id.as_str(), to, &row.origin, KIND, &payload, now)?;
        }
    }
    for turn in tx.open_turns()? {
        if is_child(turn.route.platform) {
            let (_, decision) = turn::step(turn, limits, now, Event::GivenUp { notice: None });
            tx.apply(&decision.writes, now)?;
        }
    }
    for key in tx.keys_with_work()? {
        let queued = tx.queued(&key)?;
        let inbox: Vec<_> =
            queued.iter().filter(|it| is_child(it.inbound.source.platform)).map(|it| it.id).collect();
        if !inbox.is_empty() {
            tx.apply(&[Write::SettleInbox { inbox, outcome: MessageOutcome::Cancelled, at: now }], now)?;
        }
    }
    Ok(())
}

fn unknown(row: &DelegationRow, now: Millis) -> Value {
    // Rows of another version may not parse; the conversation is notified without the tasks.
    let tasks: Vec<DelegatedTask> = serde_json::from_str(&row.tasks).unwrap_or_default();
    let mut payload = event(&row.id, &row.key, &row.session, &tasks);
    payload["status"] = "unknown".into();
    payload["error"] = INTERRUPTED.into();
    payload["dispatched_at"] = json!(row.started_at);
    payload["completed_at"] = json!(now);
    payload
}

const INTERRUPTED: &str = "The gateway was interrupted while this work was under way. Its outcome is UNKNOWN: some of it may \
have been done. It was not started again; check before you repeat it.";

/// Creates the folder and deletes expired files. A file that cannot be removed stays until the next batch.
pub(super) async fn prepare_folder(folder: PathBuf) {
    let tidied = petasos_runtime::blocking(move || {
        use std::os::unix::fs::DirBuilderExt as _;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        for file in std::fs::read_dir(&folder)?.flatten() {
            let written = file.metadata().and_then(|meta| meta.modified());
            let old = |at: SystemTime| at.elapsed().is_ok_and(|age| age > RETENTION);
            if written.is_ok_and(old) {
                std::fs::remove_file(file.path())?;
            }
        }
        std::io::Result::Ok(())
    });
    if let Ok(Err(error)) = tidied.await {
        tracing::warn!(%error, "cannot prepare the folder for delegated work");
    }
}

async fn write_private(path: &std::path::Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    write_to(options, path, bytes).await
}

async fn append_private(path: &std::path::Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.append(true).create(true).mode(0o600);
    write_to(options, path, bytes).await
}

async fn write_to(
    options: std::fs::OpenOptions,
    path: &std::path::Path,
    bytes: &[u8],
) -> std::io::Result<()> {
    let path = path.to_owned();
    let bytes = bytes.to_owned();
    let written = petasos_runtime::blocking(move || options.open(path)?.write_all(&bytes));
    written.await.map_err(|_panicked| std::io::Error::other("writing panicked"))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortened_report_keeps_beginning_and_end() {
        let text = format!("{}{}", "a".repeat(30_000), "z".repeat(10_000));
        let shown = shorten(&text, 4_000);
        assert!(shown.starts_with("aaa") && shown.ends_with("zzz") && shown.contains("36000 characters"));
        assert!(shown.chars().count() < 4_100);
    }

    #[tokio::test]
    async fn reports_last_message_of_a_child_with_many_rows() {
        let home = tempfile::tempdir().unwrap();
        let shutdown = crate::lifecycle::shutdown::ShutdownHandle::default();
        let store = petasos_store::Store::open(home.path().join("petasos.db")).unwrap();
        let (db, _writer) = crate::storage::database::start(store, shutdown).unwrap();
        let session = SessionId("s".into());
        let of = session.clone();
        db.write(Commit::Delegation, move |tx| {
            let now = clock::now();
            tx.create_session(&of, &SessionKey("k".into()), None, None, now)?;
            for at in 0..=MAX_ROWS {
                tx.append(&of, &Message::assistant(format!("step {at}"), now))?;
            }
            tx.append(&of, &Message::assistant("done at last", now)).map(drop)
        })
        .await
        .unwrap();
        let context = DelegationContext {
            db,
            router: crate::sessions::router::Router::new().0,
            wake: crate::background::completions::WakeSignal::default(),
            gate: crate::lifecycle::gate::AcceptGate::new(None),
            folder: home.path().into(),
            settings: crate::lifecycle::config::Settings::new(home.path()),
            hint: String::new(),
            model: String::new(),
            window: 8_000,
        };
        let key = SessionKey("k".into());
        let child = ChildSession {
            at: 0,
            key,
            session,
            inbox: petasos_core::InboxId(1),
            transcript: home.path().join("x"),
        };
        let ended = ChildEnd { outcome: Some(MessageOutcome::Answered), stop_reason: None, seconds: 1.0 };
        assert_eq!(entry(&context, &child, &ended).await["summary"], "done at last");
    }

    #[test]
    fn batch_with_some_failures_is_partial() {
        let of = |list: &[&str]| -> Vec<Value> { list.iter().map(|it| json!({ "status": it })).collect() };
        for (list, want) in [
            (&["completed", "completed"][..], "completed"),
            (&["completed", "failed"], "partial"),
            (&["interrupted", "failed"], "interrupted"),
            (&["timeout"], "timeout"),
            (&["failed", "error"], "failed"),
        ] {
            assert_eq!(batch_status(&of(list)), want, "{list:?}");
        }
    }
}
