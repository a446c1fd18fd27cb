//! The work of a turn: one model call, or one group of tool calls.
//!
//! Runs in its own task, so that a panic becomes a report like any other. Dropping [`TurnWork`] aborts it. Text goes directly into
//! the view, fenced by turn and attempt; results come back as reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::{StreamExt as _, stream};
use petasos_agent::compaction::CompactionTrigger;
use petasos_agent::tool_output::{OutputBudget, render_result};
use petasos_agent::{
    AsyncDelivery, Chunk, ModelFailureClass, Respondent, SessionCtx, ToolSpec, TurnHeartbeat,
    duplicate_result,
};
use petasos_approval::OfferedChoices;
use petasos_core::lifecycle::TurnActivity;
use petasos_core::message::ChatType;
use petasos_core::redaction::StreamRedactor;
use petasos_core::session::ReaderKind;
use petasos_core::transcript::{EffectState, ToolCall};
use petasos_core::turn::{CallProgress, Cutoff, ModelAnswer, Phase, ToolReport, Turn};
use petasos_core::{Platform, SessionId, SessionKey, Source, TurnId};
use petasos_store::PendingMessage;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::prepare::{ModelCall, prepare, prepare_without_turn};
use crate::api::runs::RunOptions;
use crate::background::delegation::ChildLevel;
use crate::inbound::downloads;
#[cfg(feature = "simulation")]
use crate::runtime::fault_injection::{PlantedBug, planted};
use crate::sessions::questions::{QuestionIssuer, QuestionScope};
use crate::sessions::turn::compaction::{self, CompactionOutcome, compact};
use crate::sessions::turn::{RunningTurn, TurnSlot};
use crate::sessions::view::{LiveTurn, SessionView};
use crate::sessions::{Handles, ManualCompaction, SessionTask};
use crate::{Error, clock, notices};

#[derive(Debug)]
pub(in crate::sessions) struct TurnWork {
    attempt: u32,
    /// Tool calls without a result; empty for a model call.
    open: Vec<String>,
    /// Compaction is running: new messages wait.
    compacting: Arc<AtomicBool>,
    task: JoinHandle<()>,
    reports: mpsc::Receiver<WorkReport>,
}

impl Drop for TurnWork {
    fn drop(&mut self) {
        #[cfg(feature = "simulation")]
        if planted(PlantedBug::AcceptsStaleResult) && self.open.is_empty() {
            return abandoned::retain(&mut self.reports);
        }
        self.task.abort();
    }
}

#[derive(Debug)]
pub(in crate::sessions) enum WorkReport {
    Answered {
        attempt: u32,
        answer: ModelAnswer,
    },
    /// The conversation was too long and has been compacted.
    Compacted {
        attempt: u32,
        compaction: CompactionOutcome,
    },
    /// Too long, and nothing is left to compact.
    Exhausted {
        attempt: u32,
    },
    Compressed {
        session: SessionId,
        compaction: Option<CompactionOutcome>,
    },
    Failed {
        attempt: u32,
        notice: String,
    },
    ToolEnded {
        attempt: u32,
        call: String,
        end: ToolReport,
    },
    ToolsEnded,
    Panicked {
        attempt: u32,
        open: Vec<String>,
    },
}

impl TurnWork {
    pub(in crate::sessions) fn is_compacting(&self) -> bool {
        self.compacting.load(Ordering::Relaxed)
    }
}

/// The next report; pending for ever without work.
pub(in crate::sessions) async fn next_report(work: Option<&mut TurnWork>) -> WorkReport {
    let Some(current) = work else {
        return std::future::pending().await;
    };
    match current.reports.recv().await {
        Some(WorkReport::ToolEnded { attempt, call, end }) => {
            current.open.retain(|id| *id != call);
            WorkReport::ToolEnded { attempt, call, end }
        }
        Some(report) => report,
        None => {
            let attempt = current.attempt;
            let open = std::mem::take(&mut current.open);
            WorkReport::Panicked { attempt, open }
        }
    }
}

const REPORT_DEPTH: usize = 8;
const MAX_PARALLEL_TOOLS: usize = 8;

impl RunningTurn {
    fn set_activity(&self, set_activity: TurnActivity) {
        if let TurnSlot::Active(slot) = &self.slot {
            slot.set_activity(set_activity);
        }
    }
}

impl SessionTask {
    pub(in crate::sessions) fn call_model(&mut self, attempt: u32, closing: Option<Cutoff>) {
        let Some(running) = &mut self.running else { return };
        let handles = self.handles.clone();
        let view_tx = self.view_tx.clone();
        let resumed = running.resumed;
        running.set_activity(TurnActivity::Thinking);
        running.sign_of_life();
        let turn = running.turn.clone();
        let alive = running.alive.clone();
        let offered =
            running.offered.get_or_insert_with(|| handles.agent.tools_of(&turn.key).specs()).clone();
        let channel = running.author.as_ref().map_or(turn.route.platform, |author| author.platform);
        let later = AsyncDelivery::from(self.handles.channels.capabilities(channel).async_delivery);
        view_tx.send_modify(|view| {
            view.live = Some(LiveTurn {
                turn: turn.id,
                step: turn.step,
                attempt,
                text: String::new(),
                tools: Vec::new(),
            });
        });
        let (reports, inbox) = mpsc::channel(REPORT_DEPTH);
        let compacting = Arc::new(AtomicBool::new(false));
        let busy = compacting.clone();
        #[cfg(feature = "simulation")]
        abandoned::replay(attempt, &reports);
        let task = petasos_runtime::spawn(async move {
            let call = ModelCall { attempt, closing, resumed, later };
            let report = call_and_report(&handles, &view_tx, &turn, (call, offered), &busy, &alive).await;
            // The session may have abandoned this work.
            let _ = reports.send(report).await;
        });
        running.work = Some(TurnWork { attempt, open: vec![], compacting, task, reports: inbox });
    }

    pub(in crate::sessions) fn run_tools(&mut self, attempt: u32, calls: Vec<ToolCall>) {
        let Some(running) = &mut self.running else { return };
        running.set_activity(TurnActivity::Acting(calls.iter().map(|call| call.name.clone()).collect()));
        running.sign_of_life();
        let turn = &running.turn;
        let asking = turn.clone();
        let author = running.author.clone();
        let alive = running.alive.clone();
        // Includes earlier groups, so that a repeated call is not run again.
        let all = match &turn.phase {
            Phase::Acting { calls, .. } => calls.clone(),
            Phase::Thinking | Phase::Over => calls.clone(),
        };
        let handles = self.handles.clone();
        let view_tx = self.view_tx.clone();
        let id = turn.id;
        view_tx.send_modify(|view| {
            let tools = calls.iter().map(|call| call.name.clone()).collect();
            view.live = Some(LiveTurn { turn: id, step: turn.step, attempt, text: String::new(), tools });
        });
        let open = calls.iter().map(|call| call.id.clone()).collect();
        let window = self.handles.agent.model_chain.window().context;
        let room = running.room.get_or_insert_with(|| Arc::new(OutputBudget::of(window))).clone();
        let (reports, inbox) = mpsc::channel(REPORT_DEPTH);
        let task = petasos_runtime::spawn(async move {
            let ctx = tool_context(&handles, &asking, author.as_ref(), &view_tx, alive).await;
            // A single call has its own timeout.
            let patience = handles.settings.tools_patience.filter(|_| calls.len() > 1);
            let until = patience.map(|patience| clock::monotonic() + patience);
            let each: Vec<_> =
                calls.iter().map(|call| run_one(&handles, &ctx, &room, &all, call, until)).collect();
            // Run concurrently, reported in order.
            let mut ended = stream::iter(each).buffered(MAX_PARALLEL_TOOLS);
            while let Some((call, end)) = ended.next().await {
                let _ = reports.send(WorkReport::ToolEnded { attempt, call, end }).await;
            }
            let _ = reports.send(WorkReport::ToolsEnded).await;
        });
        let compacting = Arc::default();
        running.work = Some(TurnWork { attempt, open, compacting, task, reports: inbox });
    }
}

impl SessionTask {
    /// Starts `/compress`. The command stays in the inbox until the work is done.
    pub(in crate::sessions) fn start_compaction(
        &mut self,
        command: PendingMessage,
        session: SessionId,
        focus: Option<String>,
    ) {
        let handles = self.handles.clone();
        let key = self.key.clone();
        let (reports, inbox) = mpsc::channel(REPORT_DEPTH);
        let task = petasos_runtime::spawn(async move {
            let report = match compact_now(&handles, key, session.clone(), focus.as_deref()).await {
                Ok(compaction) => WorkReport::Compressed { session, compaction },
                Err(error) => WorkReport::Failed { attempt: 0, notice: notices::turns::failed(error) },
            };
            let _ = reports.send(report).await;
        });
        let compacting = Arc::new(AtomicBool::new(true));
        let work = TurnWork { attempt: 0, open: vec![], compacting, task, reports: inbox };
        self.compaction = Some(ManualCompaction { command, work });
    }
}

async fn compact_now(
    handles: &Handles,
    key: SessionKey,
    session: SessionId,
    focus: Option<&str>,
) -> Result<Option<CompactionOutcome>, Error> {
    let prepared = prepare_without_turn(handles, key, session).await?;
    // Closed only when the handles are gone.
    let Ok(_permit) = handles.agent.calls.acquire().await else { return Ok(None) };
    Ok(compact(handles, &prepared, CompactionTrigger::Forced, focus).await)
}

async fn run_one(
    handles: &Handles,
    ctx: &SessionCtx,
    room: &OutputBudget,
    all: &[ToolCall],
    call: &ToolCall,
    until: Option<Instant>,
) -> (String, ToolReport) {
    let known = |content, progress| ToolReport { content, effect: EffectState::Known, progress };
    let id = call.id.clone();
    if let Some(result) = duplicate_result(all, call) {
        return (id, known(result.content, CallProgress::None));
    }
    let tools = handles.agent.tools_of(&ctx.key);
    let run = tools.run(ctx, call);
    let result = match until {
        Some(until) => tokio::time::timeout_at(until, run).await,
        None => Ok(run.await),
    };
    let Ok(result) = result else {
        let content = notices::model::TOOL_TOO_SLOW.into();
        return (id, ToolReport { content, effect: EffectState::Unknown, progress: CallProgress::Failed });
    };
    let progress = if result.failed {
        CallProgress::Failed
    } else if tools.read_only(&call.name) {
        CallProgress::Read
    } else {
        CallProgress::Changed
    };
    let content = handles.settings.redactor.redact_owned(result.content);
    let effect = if result.unknown { EffectState::Unknown } else { EffectState::Known };
    (id, ToolReport { content: render_result(ctx, room, call, content).await, effect, progress })
}

/// Calls the model. If the conversation is too long, compacts it instead; the turn then calls again.
async fn call_and_report(
    handles: &Handles,
    view_tx: &Arc<watch::Sender<SessionView>>,
    turn: &Turn,
    (call, offered): (ModelCall, Arc<[ToolSpec]>),
    compacting: &AtomicBool,
    alive: &TurnHeartbeat,
) -> WorkReport {
    let id = turn.id;
    let attempt = call.attempt;
    let redactor = &handles.settings.redactor;
    let failed = |notice: String| WorkReport::Failed { attempt, notice: redactor.redact_owned(notice) };
    let mut prepared = match prepare(handles, turn, call, offered).await {
        Ok(prepared) => prepared,
        Err(error) => {
            return failed(notices::turns::conversation_unreadable(error));
        }
    };
    // Closed only when the handles are gone.
    let Ok(_permit) = handles.agent.calls.acquire().await else {
        return failed(notices::turns::PANICKED.to_owned());
    };
    let may_relieve =
        handles.settings.compaction.enabled && turn.compactions < handles.settings.limits.compactions;
    let long =
        prepared.conversation().is_long(compaction::room(handles)) && prepared.throttle.allows(clock::now());
    if may_relieve && long {
        compacting.store(true, Ordering::Relaxed);
        if let Some(compaction) = compact(handles, &prepared, CompactionTrigger::Threshold, None).await {
            return WorkReport::Compacted { attempt, compaction };
        }
        compacting.store(false, Ordering::Relaxed);
    }
    prepared.insert_note();
    let mut stream = redactor.stream();
    let mut on_chunk = |chunk| {
        alive.record();
        show_chunk(view_tx, id, attempt, redact_chunk(&mut stream, chunk));
    };
    let failure = match handles.agent.model_chain.complete(&prepared.request, &mut on_chunk).await {
        Ok(answer) => {
            return WorkReport::Answered { attempt, answer: to_core_answer(handles, &turn.key, answer) };
        }
        Err(failure) => failure,
    };
    prepared.remove_note();
    tracing::warn!(turn = %id, class = failure.class.as_str(), "model call failed");
    match failure.class {
        ModelFailureClass::ContextOverflow | ModelFailureClass::PayloadTooLarge
            if !handles.settings.compaction.enabled =>
        {
            failed(notices::turns::TOO_LONG.into())
        }
        ModelFailureClass::ContextOverflow | ModelFailureClass::PayloadTooLarge => {
            compacting.store(true, Ordering::Relaxed);
            let compaction = if may_relieve {
                compact(handles, &prepared, CompactionTrigger::Forced, None).await
            } else {
                None
            };
            match compaction {
                Some(compaction) => WorkReport::Compacted { attempt, compaction },
                None if prepared.is_first() => failed(notices::turns::MESSAGE_TOO_LONG.into()),
                None => WorkReport::Exhausted { attempt },
            }
        }
        _ => failed(notices::turns::failed(failure.message)),
    }
}

fn to_core_answer(handles: &Handles, key: &SessionKey, answer: petasos_agent::ModelResponse) -> ModelAnswer {
    let petasos_agent::ModelResponse { text, calls, usage, partial, .. } = answer;
    let mut text = handles.settings.redactor.redact_owned(text);
    if partial {
        text.push_str(notices::turns::CUT_OFF);
    }
    let tools = handles.agent.tools_of(key);
    let groups = tools.groups(&handles.settings.workspace, &calls);
    let astray = !calls.is_empty() && !calls.iter().any(|call| tools.knows(&call.name));
    ModelAnswer { text, calls, groups, unknown_tools_only: astray, usage, partial }
}

fn redact_chunk(stream: &mut StreamRedactor, chunk: Chunk) -> Chunk {
    match chunk {
        Chunk::Text(text) => Chunk::Text(stream.push(&text)),
        Chunk::Restart => {
            stream.restart();
            Chunk::Restart
        }
        Chunk::Reasoning => Chunk::Reasoning,
    }
}

fn show_chunk(view_tx: &watch::Sender<SessionView>, turn: TurnId, attempt: u32, chunk: Chunk) {
    view_tx.send_if_modified(|view| {
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

/// The context of a tool call, with the capabilities of the channel that the question came from.
async fn tool_context(
    handles: &Handles,
    turn: &Turn,
    author: Option<&Source>,
    view_tx: &Arc<watch::Sender<SessionView>>,
    alive: TurnHeartbeat,
) -> SessionCtx {
    let route = &turn.route;
    let source = author.cloned().unwrap_or_else(|| {
        let room = Source::new(route.platform, ChatType::default(), route.chat_id.clone());
        Source { thread_id: route.thread_id.clone(), ..room }
    });
    let later = AsyncDelivery::from(handles.channels.capabilities(source.platform).async_delivery);
    let person = match (handles.channels.reader(source.platform), later) {
        _ if ChildLevel::of(&turn.key).is_some() => handles.settings.delegation.person(),
        _ if handles.channels.is_scheduled(source.platform) && handles.settings.approvals.unattended => {
            Respondent::Unattended
        }
        (ReaderKind::Interactive, AsyncDelivery::Supported) => {
            let offer = if handles.may_approve_lastingly(&source).await {
                OfferedChoices::AllChoices
            } else {
                OfferedChoices::OnlyThisCommand
            };
            Respondent::Person(Arc::new(QuestionIssuer::new(
                &handles.people.questions,
                turn,
                &source,
                view_tx,
                QuestionScope::Anything,
                offer,
            )))
        }
        (ReaderKind::Machine, _) if answers_approvals(handles, turn, &source).await => {
            let scope = QuestionScope::ApprovalsOnly;
            let offer = OfferedChoices::AllChoices;
            Respondent::Person(Arc::new(QuestionIssuer::new(
                &handles.people.questions,
                turn,
                &source,
                view_tx,
                scope,
                offer,
            )))
        }
        (ReaderKind::Machine, _) | (_, AsyncDelivery::Unsupported) => Respondent::None,
    };
    SessionCtx {
        key: turn.key.clone(),
        session: turn.session.clone(),
        async_delivery: later,
        respondent: person,
        call: String::new(),
        source,
        home: handles.home.clone(),
        workspace: handles.settings.workspace.clone(),
        sent: downloads::session_folders(&handles.home, &turn.key),
        results: downloads::results_folder(&handles.home, &turn.key),
        heartbeat: alive,
        now: clock::now(),
        timezone: handles.settings.cron.timezone.clone(),
    }
}

/// True if the API client has declared that it answers approvals.
async fn answers_approvals(handles: &Handles, turn: &Turn, source: &Source) -> bool {
    if source.platform != Platform::API_SERVER {
        return false;
    }
    let inbox = turn.id.into();
    match handles.db.read(move |reader| reader.run_of(inbox)).await {
        Ok(run) => run.and_then(|run| RunOptions::parse(&run.options)).is_some_and(|options| options.answers),
        Err(error) => {
            tracing::warn!(turn = %turn.id, %error, "cannot read whether the API client answers approvals; assuming not");
            false
        }
    }
}

/// Planted bug: keeps abandoned model calls.
#[cfg(feature = "simulation")]
mod abandoned {
    use std::cell::RefCell;

    use tokio::sync::mpsc;

    use super::{REPORT_DEPTH, WorkReport};

    thread_local! {
        static CALL: RefCell<Option<mpsc::Receiver<WorkReport>>> = const { RefCell::new(None) };
    }

    pub(super) fn retain(reports: &mut mpsc::Receiver<WorkReport>) {
        let (_closed, nothing) = mpsc::channel(REPORT_DEPTH);
        CALL.set(Some(std::mem::replace(reports, nothing)));
    }

    /// The answer of the abandoned call counts for the new one.
    pub(super) fn replay(attempt: u32, reports: &mpsc::Sender<WorkReport>) {
        let (Some(mut old), reports) = (CALL.take(), reports.clone()) else { return };
        petasos_runtime::spawn(async move {
            while let Some(report) = old.recv().await {
                if let WorkReport::Answered { answer, .. } = report {
                    let _ = reports.send(WorkReport::Answered { attempt, answer }).await;
                }
            }
        });
    }
}
