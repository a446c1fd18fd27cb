//! What a turn has under way: one model call, or one batch of tools.
//!
//! Runs in a task of its own, so that a panic is a report like any other. Dropping [`Work`] ends it. Text
//! goes straight into the view, guarded by turn and attempt; results come back as reports.

use std::sync::Arc;

use futures_util::future::join_all;
use petasos_agent::{Chunk, Request, SessionCtx, repeated};
use petasos_core::lifecycle::Doing;
use petasos_core::message::ChatType;
use petasos_core::session::{Entry, Interruption};
use petasos_core::transcript::{EffectState, Message, Role, ToolCall};
use petasos_core::turn::{Answer, Moment, Turn, resume_note};
use petasos_core::{Source, TurnId};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::{Session, Shell, words};
use crate::view::{Live, View};
use crate::{Error, clock};

#[derive(Debug)]
pub(super) struct Work {
    attempt: u32,
    /// Tools without a result yet; empty for a model call.
    open: Vec<String>,
    task: JoinHandle<()>,
    reports: mpsc::Receiver<Report>,
}

impl Drop for Work {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug)]
pub(super) enum Report {
    Answered { attempt: u32, answer: Answer },
    Failed { attempt: u32, notice: String },
    ToolEnded { attempt: u32, call: String, content: String, effect: EffectState },
    ToolsEnded,
    Panicked { attempt: u32, open: Vec<String> },
}

/// The next thing the work has to say; never, if there is none.
pub(super) async fn next(work: &mut Option<Work>) -> Report {
    let Some(current) = work else {
        return std::future::pending().await;
    };
    match current.reports.recv().await {
        Some(Report::ToolEnded { attempt, call, content, effect }) => {
            current.open.retain(|id| *id != call);
            Report::ToolEnded { attempt, call, content, effect }
        }
        Some(report) => report,
        None => {
            let (attempt, open) = (current.attempt, std::mem::take(&mut current.open));
            Report::Panicked { attempt, open }
        }
    }
}

/// Reports that may wait for the session.
const REPORTS: usize = 8;
/// Rows of history that are read for a call; what does not fit the model's context is cut later.
const HISTORY_ROWS: usize = 2000;
/// Harmless tools that run at the same time.
const PARALLEL: usize = 8;

impl Session {
    fn note_doing(&self, doing: Doing) {
        if let Some(slot) = &self.slot {
            slot.doing(doing);
        }
    }

    pub(super) fn call_model(&mut self, attempt: u32, last: bool) {
        let Some(turn) = self.turn.clone() else { return };
        let (shell, show, resumed) = (self.shell.clone(), self.show.clone(), self.resumed);
        self.note_doing(Doing::Thinking);
        show.send_modify(|view| {
            view.live = Some(Live {
                turn: turn.id,
                step: turn.step,
                attempt,
                text: String::new(),
                tools: Vec::new(),
            });
        });
        let (reports, inbox) = mpsc::channel(REPORTS);
        let task = tokio::spawn(async move {
            let asked = Asked { attempt, last, resumed };
            let report = match think(&shell, &show, &turn, asked).await {
                Ok(answer) => Report::Answered { attempt, answer },
                Err(notice) => Report::Failed { attempt, notice },
            };
            // A session that has moved on does not want to know.
            let _ = reports.send(report).await;
        });
        self.work = Some(Work { attempt, open: vec![], task, reports: inbox });
    }

    pub(super) fn run_tools(&mut self, attempt: u32, calls: Vec<ToolCall>) {
        let Some(turn) = &self.turn else { return };
        self.note_doing(Doing::Acting(calls.iter().map(|call| call.name.clone()).collect()));
        let ctx = context(&self.shell, turn, self.author.as_ref());
        let (shell, show, id) = (self.shell.clone(), self.show.clone(), turn.id);
        show.send_modify(|view| {
            let tools = calls.iter().map(|call| call.name.clone()).collect();
            view.live = Some(Live { turn: id, step: turn.step, attempt, text: String::new(), tools });
        });
        let open = calls.iter().map(|call| call.id.clone()).collect();
        let (reports, inbox) = mpsc::channel(REPORTS);
        let task = tokio::spawn(async move {
            for batch in batches(&shell, &calls) {
                join_all(batch.iter().map(|call| run_one(&shell, &ctx, attempt, &calls, call, &reports)))
                    .await;
            }
            let _ = reports.send(Report::ToolsEnded).await;
        });
        self.work = Some(Work { attempt, open, task, reports: inbox });
    }
}

/// One question to the model.
#[derive(Debug, Clone, Copy)]
struct Asked {
    attempt: u32,
    /// Without tools: the budget is spent.
    last: bool,
    /// The turn was interrupted and is being continued.
    resumed: bool,
}

/// Harmless calls that stand together run together; every other runs alone, in its place.
fn batches<'a>(shell: &Shell, calls: &'a [ToolCall]) -> Vec<&'a [ToolCall]> {
    let harmless = |call: &ToolCall| shell.tools.read_only(&call.name);
    let runs = calls.chunk_by(|a, b| harmless(a) && harmless(b));
    runs.flat_map(|run| run.chunks(PARALLEL)).collect()
}

async fn run_one(
    shell: &Shell,
    ctx: &SessionCtx,
    attempt: u32,
    calls: &[ToolCall],
    call: &ToolCall,
    reports: &mpsc::Sender<Report>,
) {
    let result = match repeated(calls, call) {
        Some(result) => result,
        None => shell.tools.run(ctx, call).await,
    };
    let (call, content, effect) = (call.id.clone(), result.content, EffectState::Known);
    let _ = reports.send(Report::ToolEnded { attempt, call, content, effect }).await;
}

async fn think(
    shell: &Shell,
    show: &Arc<watch::Sender<View>>,
    turn: &Turn,
    asked: Asked,
) -> Result<Answer, String> {
    let attempt = asked.attempt;
    let request = request(shell, turn, asked).await.map_err(|error| {
        format!(
            "⚠️ I could not read our conversation ({error}). Your message is kept; send /retry to try again."
        )
    })?;
    let id = turn.id;
    // Closed only if the shell is gone, and then nobody is here to ask.
    let _permit = shell.calls.acquire().await.map_err(|_closed| words::PANICKED.to_owned())?;
    let mut on_chunk = |chunk| show_chunk(show, id, attempt, chunk);
    match shell.brain.answer(&request, &mut on_chunk).await {
        Ok(mut answer) => {
            if answer.partial {
                answer.text.push_str(words::CUT_OFF);
            }
            let partial = answer.partial;
            Ok(Answer { text: answer.text, calls: answer.calls, usage: answer.usage, partial })
        }
        Err(failure) => {
            tracing::warn!(turn = %id, class = failure.class.as_str(), "the model could not answer");
            Err(format!("⚠️ {}", failure.message))
        }
    }
}

fn show_chunk(show: &watch::Sender<View>, turn: TurnId, attempt: u32, chunk: Chunk) {
    show.send_if_modified(|view| {
        let current = view.live.as_mut().filter(|live| live.turn == turn && live.attempt == attempt);
        let Some(live) = current else { return false };
        match chunk {
            Chunk::Text(text) => live.text.push_str(&text),
            Chunk::Restart => live.text.clear(),
            Chunk::Reasoning => return false,
        }
        true
    });
}

async fn request(shell: &Shell, turn: &Turn, asked: Asked) -> Result<Request, Error> {
    let (session, key) = (turn.session.clone(), turn.key.clone());
    let (said, prompt, entry) = shell
        .db
        .read(move |reader| {
            Ok((
                reader.history(&session, HISTORY_ROWS)?,
                reader.system_prompt(&session)?,
                reader.entry(&key)?,
            ))
        })
        .await?;
    let mut messages: Vec<Message> = said.into_iter().map(|said| said.message).collect();
    let tools = if asked.last { vec![] } else { shell.tools.specs() };
    let hint = &shell.channels.capabilities(turn.route.platform).hint;
    let system = prompt.unwrap_or_else(|| shell.settings.system_prompt(hint, turn.started_at));
    let mut note = None;
    if let Some(entry) = &entry {
        let before = messages.partition_point(|row| row.at < turn.started_at);
        let first = messages[before..].iter().find(|row| row.role != Role::Notice);
        let moment = match first.map(|row| row.role) {
            Some(Role::User) if asked.resumed => Moment::Continued,
            Some(Role::User) => Moment::Message,
            Some(Role::Assistant | Role::Tool | Role::Notice) | None => Moment::Silence,
        };
        let (window, now) = (shell.settings.resume_window, clock::now());
        let mut what =
            Interruption::of(entry, &messages[..before], window, now, petasos_store::local_time(now));
        // A mark made while this turn runs is for the next process, not for us.
        let begun = petasos_store::local_time(turn.started_at);
        what.pending &= asked.resumed || entry.last_resume_marked_at.is_none_or(|marked| marked < begun);
        let reader = shell.channels.reader(turn.route.platform);
        note = reset_note(entry, &messages).or_else(|| resume_note(&what, reader, moment));
        if moment == Moment::Silence
            && let Some(note) = note.take()
        {
            messages.insert(before, Message::user(note, turn.started_at));
        }
    }
    let model = entry.and_then(|entry| entry.model_override).and_then(|chosen| chosen.model);
    Ok(Request { system, messages, note, tools, model, session: turn.session.clone() })
}

/// In the first turn after a reset nobody asked for, the model learns why it remembers nothing.
fn reset_note(entry: &Entry, messages: &[Message]) -> Option<String> {
    let first = messages.iter().all(|message| message.role == Role::User);
    let reason = entry.auto_reset_reason.filter(|_| entry.was_auto_reset && first)?;
    Some(format!(
        "[System note: the conversation before this message was closed by the gateway ({}). This is a fresh start; \
         the user can bring the old one back with /resume.]",
        reason.as_str()
    ))
}

/// The only place where a tool call gets its context: what the channel can do is read off the channel that handles
/// this turn.
fn context(shell: &Shell, turn: &Turn, author: Option<&Source>) -> SessionCtx {
    let route = &turn.route;
    let source = author.cloned().unwrap_or_else(|| {
        let room = Source::new(route.platform, ChatType::default(), route.chat_id.clone());
        Source { thread_id: route.thread_id.clone(), ..room }
    });
    SessionCtx {
        key: turn.key.clone(),
        session: turn.session.clone(),
        source,
        later: shell.channels.capabilities(route.platform).async_delivery.into(),
        home: shell.home.clone(),
        workspace: shell.settings.workspace.clone(),
        now: clock::now(),
        timezone: None,
    }
}
