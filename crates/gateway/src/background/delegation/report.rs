//! What children have to say: results for the model, the completion that owes them, files for what is too long.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use petasos_agent::Task;
use petasos_core::ids::RowId;
use petasos_core::journal::{Outcome, Write};
use petasos_core::transcript::{Message, Role};
use petasos_core::turn::{self, Event, Limits};
use petasos_core::{Millis, SessionId, SessionKey, TurnId};
use petasos_store::{DelegationRow, Error as StoreError, Tx};
use serde_json::{Value, json};

use super::batch::{Batch, Why, Working};
use super::{Delegation, Means, is_child};
use crate::runtime::commit::Commit;
use crate::{Error, clock};

/// Characters of a report that the model gets, at most and at least.
const MOST: usize = 24_000;
const LEAST: usize = 2_000;
/// Characters of a row in a growing transcript.
const ROW: usize = 2_000;
/// Rows of a child that are looked at: the last ones.
const ROWS: usize = 1_000;
/// How long files are kept.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long to wait when the store refuses.
const STORE_RETRY: Duration = Duration::from_secs(1);

/// How a child ended.
pub(super) struct Ended {
    /// `None`: it was lost sight of.
    pub(super) outcome: Option<Outcome>,
    pub(super) why: Option<Why>,
    pub(super) seconds: f64,
}

impl Ended {
    /// Status and reason.
    fn words(&self, spent: bool) -> (&'static str, &'static str) {
        match (self.outcome, self.why) {
            (Some(Outcome::Answered), _) if spent => ("completed", "max_iterations"),
            (Some(Outcome::Answered | Outcome::Merged), _) => ("completed", "completed"),
            (_, Some(Why::TimedOut)) => ("timeout", "timeout"),
            (Some(Outcome::Cancelled), _) | (_, Some(Why::Stopped)) => ("interrupted", "interrupted"),
            (Some(Outcome::Refused | Outcome::Dead), None) => ("failed", "error"),
            (None, None) => ("error", "error"),
        }
    }
}

/// What the model is told of one child.
pub(super) async fn entry(means: &Means, child: &Working, ended: &Ended) -> Value {
    let (session, turn) = (child.session.clone(), TurnId::from(child.inbox));
    let read = means.db.read(move |reader| {
        let rows = reader.rows_last(&session, ROWS)?;
        let rows: Vec<Message> = rows.into_iter().map(|said| said.message).collect();
        let steps = reader.turn(turn)?.map_or(0, |journaled| journaled.turn.step);
        let usage = reader.session(&session)?.map(|row| row.usage).unwrap_or_default();
        Ok((rows, steps, usage))
    });
    let (rows, steps, usage) = match read.await {
        Ok(read) => read,
        Err(error) => return json!({ "task_index": child.at, "status": "error", "error": error.to_string() }),
    };
    let (status, exit_reason) = ended.words(steps >= means.settings.delegation.steps);
    let mut entry = json!({
        "task_index": child.at,
        "status": status,
        "summary": "",
        "api_calls": steps,
        "duration_seconds": ended.seconds,
        "model": means.model,
        "exit_reason": exit_reason,
        "tokens": { "input": usage.input, "output": usage.output },
        "tool_trace": trace(&rows),
        "live_transcript": child.transcript_path(),
    });
    let last = |role: Role| rows.iter().rev().find(|row| row.role == role && !row.content.trim().is_empty());
    match (status, last(Role::Assistant), last(Role::Notice)) {
        ("completed", Some(said), _) => put_summary(means, child, &said.content, &mut entry).await,
        (_, said, notice) => {
            if let Some(said) = said {
                put_summary(means, child, &said.content, &mut entry).await;
            }
            let why = notice.map_or("It ended without a report.", |notice| notice.content.as_str());
            entry["error"] = why.into();
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

/// As much of a report as there is room for; the whole of it lies in a file.
async fn put_summary(means: &Means, child: &Working, text: &str, entry: &mut Value) {
    let children = means.settings.delegation.children.max(1);
    let room = (means.window * 4 / 2 / children).clamp(LEAST, MOST);
    if text.chars().count() <= room {
        entry["summary"] = text.into();
        return;
    }
    let path = child.transcript.with_extension("full.md");
    let spilled = write_private(&path, text.as_bytes()).await;
    entry["summary"] = cut(text, room).into();
    entry["summary_truncated"] = true.into();
    match spilled {
        Ok(()) => entry["summary_full_path"] = path.display().to_string().into(),
        Err(error) => tracing::warn!(%error, "a subagent's report could not be kept whole"),
    }
}

/// The beginning and the end.
fn cut(text: &str, room: usize) -> String {
    let all: Vec<char> = text.chars().collect();
    let (head, tail) = (room * 3 / 4, room / 4);
    let omitted = all.len().saturating_sub(head + tail);
    let begin: String = all[..head.min(all.len())].iter().collect();
    let end: String = all[all.len().saturating_sub(tail)..].iter().collect();
    format!("{begin}\n[… {omitted} characters are left out …]\n{end}")
}

/// Writes down what a child does, while it does it.
pub(super) struct Scribe {
    path: PathBuf,
    session: SessionId,
    after: RowId,
}

impl Scribe {
    pub(super) fn new(child: &Working) -> Self {
        Self { path: child.transcript.clone(), session: child.session.clone(), after: RowId(0) }
    }

    /// Adds what is new. A transcript that cannot be written costs nobody a result.
    pub(super) async fn write(&mut self, means: &Means) {
        let (session, after) = (self.session.clone(), self.after);
        let Ok(rows) = means.db.read(move |reader| reader.rows_after(&session, after, ROWS)).await else {
            return;
        };
        let Some(last) = rows.last().map(|said| said.id) else { return };
        let text: String = rows.iter().map(|said| line(&said.message)).collect();
        match append_private(&self.path, text.as_bytes()).await {
            Ok(()) => self.after = last,
            Err(error) => tracing::debug!(%error, "a subagent's transcript is not written"),
        }
    }
}

fn line(row: &Message) -> String {
    let shown: String = row.content.chars().take(ROW).collect();
    let calls: String = row
        .tool_calls
        .iter()
        .map(|call| format!("\n-> {} ({} bytes)", call.name, call.arguments.len()))
        .collect();
    let name = row.tool_name.as_deref().map(|name| format!(" {name}")).unwrap_or_default();
    format!("## {}{name}\n{shown}{calls}\n\n", row.role.as_str())
}

/// The end of a batch and the completion it owes: one commit, tried until the store takes it.
pub(super) async fn owe(delegation: &Delegation, batch: &Batch, results: Vec<Value>, seconds: f64) {
    let status = overall(&results);
    let transcripts: Vec<_> = batch.children.iter().map(Working::transcript_path).collect();
    let mut payload = event(&batch.id, &batch.key, &batch.session, &batch.tasks);
    payload["status"] = status.into();
    payload["results"] = results.into();
    payload["model"] = delegation.0.means.model.clone().into();
    payload["live_transcripts"] = json!(transcripts);
    payload["total_duration_seconds"] = seconds.into();
    payload["dispatched_at"] = json!(batch.dispatched_at);
    payload["completed_at"] = json!(clock::now());
    let payload = payload.to_string();
    loop {
        let (id, key, origin) = (batch.id.clone(), batch.key.clone(), batch.origin.clone());
        let (session, payload) = (batch.session.clone(), payload.clone());
        let kept = delegation.0.means.db.write(Commit::Delegation, move |tx| {
            let now = clock::now();
            if tx.delegation_ended(&id, status, &payload, now)? {
                tx.complete_work(&id, (&key, Some(&session)), &origin, KIND, &payload, now)?;
            }
            Ok(())
        });
        match kept.await {
            Ok(()) => return delegation.0.means.bell.ring(),
            // The next start finds it as it is.
            Err(Error::Stopping) => return,
            Err(error) => {
                tracing::warn!(%error, "the end of delegated work cannot be stored; trying again");
                tokio::time::sleep(STORE_RETRY).await;
            }
        }
    }
}

/// What is known of a batch before it ends.
fn event(id: &str, key: &SessionKey, session: &SessionId, tasks: &[Task]) -> Value {
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

/// What the completions of batches are called.
pub(super) const KIND: &str = "delegation";

fn overall(results: &[Value]) -> &'static str {
    let has = |status: &str| results.iter().any(|result| result["status"] == status);
    match () {
        () if results.iter().all(|result| result["status"] == "completed") => "completed",
        () if has("completed") => "partial",
        () if has("interrupted") => "interrupted",
        () if has("timeout") => "timeout",
        () => "failed",
    }
}

/// A new process: nobody works on these any more. Each conversation is told once; children are not taken up.
pub(crate) fn lose(tx: &Tx<'_>, limits: Limits, now: Millis) -> Result<(), StoreError> {
    for row in tx.open_delegations()? {
        tracing::warn!(delegation = row.id, "delegated work was cut off; its outcome is unknown");
        let payload = unknown(&row, now).to_string();
        if tx.delegation_ended(&row.id, "unknown", &payload, now)? {
            tx.complete_work(&row.id, (&row.key, Some(&row.session)), &row.origin, KIND, &payload, now)?;
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
            tx.apply(&[Write::SettleInbox { inbox, outcome: Outcome::Cancelled, at: now }], now)?;
        }
    }
    Ok(())
}

fn unknown(row: &DelegationRow, now: Millis) -> Value {
    // Rows of another version: it is told all the same.
    let tasks: Vec<Task> = serde_json::from_str(&row.tasks).unwrap_or_default();
    let mut payload = event(&row.id, &row.key, &row.session, &tasks);
    payload["status"] = "unknown".into();
    payload["error"] = UNKNOWN.into();
    payload["dispatched_at"] = json!(row.started_at);
    payload["completed_at"] = json!(now);
    payload
}

const UNKNOWN: &str = "The gateway was interrupted while this work was under way. Its outcome is UNKNOWN: some of it may \
have been done. It was not started again; check before you repeat it.";

/// Makes the folder, and forgets what has lain there for long. What cannot be removed stays until the next time.
pub(super) async fn make_room(folder: PathBuf) {
    let tidied = petasos_runtime::blocking(move || {
        use std::os::unix::fs::DirBuilderExt as _;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        for file in std::fs::read_dir(&folder)?.flatten() {
            let written = file.metadata().and_then(|meta| meta.modified());
            let old = |at: SystemTime| at.elapsed().is_ok_and(|age| age > KEPT);
            if written.is_ok_and(old) {
                std::fs::remove_file(file.path())?;
            }
        }
        std::io::Result::Ok(())
    });
    if let Ok(Err(error)) = tidied.await {
        tracing::warn!(%error, "the folder for delegated work cannot be tidied");
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
    let (path, bytes) = (path.to_owned(), bytes.to_owned());
    let written = petasos_runtime::blocking(move || options.open(path)?.write_all(&bytes));
    written.await.map_err(|_panicked| std::io::Error::other("writing panicked"))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_report_keeps_its_beginning_and_its_end() {
        let text = format!("{}{}", "a".repeat(30_000), "z".repeat(10_000));
        let shown = cut(&text, 4_000);
        assert!(shown.starts_with("aaa") && shown.ends_with("zzz") && shown.contains("36000 characters"));
        assert!(shown.chars().count() < 4_100);
    }

    #[tokio::test]
    async fn a_child_that_did_much_is_reported_by_what_it_said_last() {
        let home = tempfile::tempdir().unwrap();
        let stopper = crate::lifecycle::shutdown::Stopper::default();
        let store = petasos_store::Store::open(home.path().join("petasos.db")).unwrap();
        let (db, _writer) = crate::storage::database::start(store, stopper).unwrap();
        let session = SessionId("s".into());
        let of = session.clone();
        db.write(Commit::Delegation, move |tx| {
            let now = clock::now();
            tx.create_session(&of, &SessionKey("k".into()), None, None, now)?;
            for at in 0..=ROWS {
                tx.append(&of, &Message::assistant(format!("step {at}"), now))?;
            }
            tx.append(&of, &Message::assistant("done at last", now)).map(drop)
        })
        .await
        .unwrap();
        let means = Means {
            db,
            router: crate::sessions::router::Router::new().0,
            bell: crate::background::completions::Bell::default(),
            gate: crate::lifecycle::gate::Gate::new(None),
            folder: home.path().into(),
            settings: crate::lifecycle::config::Settings::new(home.path()),
            hint: String::new(),
            model: String::new(),
            window: 8_000,
        };
        let key = SessionKey("k".into());
        let child = Working {
            at: 0,
            key,
            session,
            inbox: petasos_core::InboxId(1),
            transcript: home.path().join("x"),
        };
        let ended = Ended { outcome: Some(Outcome::Answered), why: None, seconds: 1.0 };
        assert_eq!(entry(&means, &child, &ended).await["summary"], "done at last");
    }

    #[test]
    fn one_that_failed_does_not_spoil_the_others() {
        let of = |list: &[&str]| -> Vec<Value> { list.iter().map(|it| json!({ "status": it })).collect() };
        for (list, want) in [
            (&["completed", "completed"][..], "completed"),
            (&["completed", "failed"], "partial"),
            (&["interrupted", "failed"], "interrupted"),
            (&["timeout"], "timeout"),
            (&["failed", "error"], "failed"),
        ] {
            assert_eq!(overall(&of(list)), want, "{list:?}");
        }
    }
}
