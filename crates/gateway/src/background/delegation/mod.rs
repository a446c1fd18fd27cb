//! Delegation: a turn gives tasks to subagents, each of which is an ordinary session.
//!
//! Owns the running batches, in one task ([`run`]), and their stop handles, under one short lock. One commit dispatches
//! a batch: its row (for a batch in the background) and a message for each child. One commit ends it: the row's end and
//! the completion that wakes the conversation. Children are never resumed after a crash; their transcripts stay, and
//! the conversation is notified once that the outcome is unknown.

mod batch;
mod child;
mod message;
mod report;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use petasos_agent::{DelegatedTask, Respondent, SessionCtx, SubagentRole, SubagentRunner};
use petasos_core::lifecycle::GateState;
use petasos_core::session::ResolveMode;
use petasos_core::{DelegationId, Inbound, Millis, SessionId, SessionKey, Source};
use petasos_store::{DelegationRow, Error as StoreError, PendingMessage, Tx};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;

use batch::{ChildSession, DelegationBatch, ResultSink};
pub(crate) use child::{ChildLevel, is_child};
pub(crate) use message::message;
pub(crate) use report::recover_interrupted;

use crate::background::completions::WakeSignal;
use crate::clock;
use crate::lifecycle::config::Settings;
use crate::lifecycle::gate::AcceptGate;
use crate::lifecycle::shutdown::ShutdownHandle;
use crate::runtime::commit::Commit;
use crate::runtime::tasks;
use crate::sessions::router::Router;
use crate::storage::database::Db;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegationSettings {
    /// Maximum children of one call, and maximum background batches.
    pub children: usize,
    /// Maximum depth; 1 means that children cannot delegate.
    pub depth: u32,
    /// Whether children may delegate, where the depth allows it.
    pub orchestrators: bool,
    /// Maximum model calls of a child.
    pub steps: u32,
    /// Time limit of a child; `None`: no limit.
    pub timeout: Option<Duration>,
    /// Children run commands without approval.
    pub auto_approve: bool,
}

impl Default for DelegationSettings {
    fn default() -> Self {
        Self { children: 3, depth: 1, orchestrators: true, steps: 50, timeout: None, auto_approve: false }
    }
}

impl DelegationSettings {
    /// Children can ask no person for approval.
    pub(crate) fn person(&self) -> Respondent {
        if self.auto_approve { Respondent::Unattended } else { Respondent::None }
    }
}

#[derive(Debug)]
pub(crate) struct DelegationContext {
    pub(crate) db: Db,
    pub(crate) router: Router,
    pub(crate) wake: WakeSignal,
    pub(crate) gate: AcceptGate,
    pub(crate) folder: PathBuf,
    pub(crate) settings: Settings,
    /// The channel hint in the system prompt of children.
    pub(crate) hint: String,
    pub(crate) model: String,
    pub(crate) window: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Delegation(Arc<DelegationState>);

#[derive(Debug)]
struct DelegationState {
    context: DelegationContext,
    pool: Arc<Semaphore>,
    batches: mpsc::Sender<DelegationBatch>,
    running: Mutex<BTreeMap<DelegationId, StopHandle>>,
}

#[derive(Debug)]
struct StopHandle {
    key: SessionKey,
    ask: watch::Sender<bool>,
}

/// The receiving end, for [`run`].
#[derive(Debug)]
pub(crate) struct BatchQueue(mpsc::Receiver<DelegationBatch>);

const QUEUE_CAPACITY: usize = 64;

enum DispatchMode {
    Background(tokio::sync::OwnedSemaphorePermit),
    /// The tool call waits for the results. The note explains why, for the model.
    Caller(Option<String>),
}

impl Delegation {
    pub(crate) fn new(context: DelegationContext) -> (Self, BatchQueue) {
        let (batches, inbox) = mpsc::channel(QUEUE_CAPACITY);
        let pool = Arc::new(Semaphore::new(context.settings.delegation.children.max(1)));
        (
            Self(Arc::new(DelegationState { context, pool, batches, running: Mutex::default() })),
            BatchQueue(inbox),
        )
    }

    /// Stops the batches of a session. `false`: there were none.
    pub(crate) fn stop(&self, key: &SessionKey) -> bool {
        let mut stopped = false;
        for stop in self.running().values().filter(|stop| stop.key == *key) {
            stop.ask.send_replace(true);
            stopped = true;
        }
        stopped
    }

    fn mode(&self, ctx: &SessionCtx, depth: u32) -> DispatchMode {
        if depth > 0 {
            return DispatchMode::Caller(None);
        }
        if !ctx.supports_async_delivery() {
            let note = "This channel cannot deliver anything after the answer, so the work was not detached: it ran \
                        synchronously, and its results are included here.";
            return DispatchMode::Caller(Some(note.to_owned()));
        }
        match self.0.pool.clone().try_acquire_owned() {
            Ok(permit) => DispatchMode::Background(permit),
            Err(_full_or_closed) => DispatchMode::Caller(Some(format!(
                "{} batches already run in the background (delegation.max_concurrent_children), so this one ran \
                 synchronously, and its results are included here.",
                self.0.context.settings.delegation.children
            ))),
        }
    }

    async fn start(&self, ctx: &SessionCtx, tasks: Vec<DelegatedTask>) -> Result<Value, String> {
        let rules = &self.0.context.settings.delegation;
        let depth = ChildLevel::of(&ctx.key).map_or(0, |level| level.depth);
        if depth >= rules.depth {
            return Err(format!(
                "Delegation may go no deeper than {} (delegation.max_spawn_depth). Do the work yourself.",
                rules.depth
            ));
        }
        if matches!(self.0.context.gate.state(), GateState::ShuttingDown { .. }) {
            return Err(
                "The gateway is shutting down and starts no new work. Do the work yourself.".to_owned()
            );
        }
        let mode = self.mode(ctx, depth);
        let id = DelegationId(format!("deleg_{:08x}", u32::from_be_bytes(clock::random())));
        let orchestrates = rules.orchestrators && depth + 1 < rules.depth;
        let place = |task: &DelegatedTask| ChildLevel {
            depth: depth + 1,
            role: if orchestrates { task.role } else { SubagentRole::Leaf },
        };
        let sources: Vec<Source> =
            tasks.iter().enumerate().map(|(at, task)| child::source(&id, at, place(task))).collect();
        let row =
            matches!(mode, DispatchMode::Background(_)).then(|| self.row(&id, ctx, &tasks)).transpose()?;
        let goals: Vec<String> = tasks.iter().map(|task| task.goal.clone()).collect();
        let (ask, stop) = watch::channel(false);
        self.running().insert(id.clone(), StopHandle { key: ctx.key.clone(), ask });
        let (sink, waited) = match mode {
            DispatchMode::Background(permit) => (ResultSink::Background(permit), None),
            DispatchMode::Caller(note) => {
                let (done, results) = oneshot::channel();
                (ResultSink::Caller(done), Some((results, note)))
            }
        };
        let batch = DelegationBatch {
            id: id.clone(),
            key: ctx.key.clone(),
            session: ctx.session.clone(),
            origin: ctx.source.clone(),
            tasks,
            children: vec![],
            began: clock::monotonic(),
            dispatched_at: clock::now(),
            stop,
            sink,
        };
        let this = self.clone();
        // Not cancelled with the caller: a stored batch must reach the task that follows it.
        let dispatched = tasks::uncancelled(async move { this.dispatch(batch, row, sources).await });
        let transcripts = dispatched.await.map_err(|_panicked| STOPPED.to_owned())??;
        match waited {
            None => Ok(json!({
                "status": "dispatched",
                "mode": "background",
                "count": goals.len(),
                "delegation_id": id,
                "goals": goals,
                "note": "The work continues in the background. You receive its results as a separate message when \
                         all of it has ended: do not wait for them, do not ask for them, and do not claim them earlier.",
                "live_transcripts": transcripts,
                "live_transcripts_hint": "These files grow while the work continues.",
            })),
            Some((mut results, note)) => {
                let mut heartbeat = tokio::time::interval(HEARTBEAT);
                let mut results = loop {
                    petasos_runtime::select! {
                        results = &mut results => break results.map_err(|_gone| STOPPED.to_owned())?,
                        // Keeps the stall limit of the waiting parent turn from firing.
                        _ = heartbeat.tick() => ctx.heartbeat.record(),
                    }
                };
                if let Some(note) = note {
                    results["note"] = note.into();
                }
                Ok(results)
            }
        }
    }

    fn row(
        &self,
        id: &DelegationId,
        ctx: &SessionCtx,
        tasks: &[DelegatedTask],
    ) -> Result<DelegationRow, String> {
        Ok(DelegationRow {
            id: id.clone(),
            key: ctx.key.clone(),
            session: ctx.session.clone(),
            origin: ctx.source.clone(),
            tasks: serde_json::to_string(tasks).map_err(|_| STOPPED.to_owned())?,
            started_at: clock::now(),
            status: None,
        })
    }

    /// Stores the batch and hands it to [`run`]. Returns the paths of the live transcripts.
    async fn dispatch(
        &self,
        mut batch: DelegationBatch,
        row: Option<DelegationRow>,
        sources: Vec<Source>,
    ) -> Result<Vec<String>, String> {
        match self.begin(&batch, row, sources).await {
            Ok(children) => batch.children = children,
            Err(error) => {
                self.running().remove(&batch.id);
                return Err(error);
            }
        }
        let transcripts = batch.children.iter().map(ChildSession::transcript_path).collect();
        self.0.batches.send(batch).await.map_err(|_stopping| STOPPED.to_owned())?;
        Ok(transcripts)
    }

    /// Stores the children, their messages and the row in one commit, then starts the children.
    async fn begin(
        &self,
        batch: &DelegationBatch,
        row: Option<DelegationRow>,
        sources: Vec<Source>,
    ) -> Result<Vec<ChildSession>, String> {
        let context = &self.0.context;
        let settings = context.settings.clone();
        let hint = context.hint.clone();
        let parent = batch.session.clone();
        let texts: Vec<String> = batch.tasks.iter().map(child::task_message).collect();
        let begun = context.db.write(Commit::Delegation, move |tx| {
            if let Some(row) = &row {
                tx.begin_delegation(row)?;
            }
            let now = clock::now();
            let each = sources.into_iter().zip(texts);
            each.map(|(source, text)| open_child(tx, &settings, &hint, &parent, source, text, now)).collect()
        });
        let begun: Vec<(PendingMessage, SessionId)> =
            begun.await.map_err(|error| format!("The work could not be started: {error}"))?;
        let mut children = Vec::new();
        for (at, (pending, session)) in begun.into_iter().enumerate() {
            children.push(ChildSession {
                at,
                key: pending.key.clone(),
                session,
                inbox: pending.id,
                transcript: context.folder.join(format!("{}-{at}.md", batch.id)),
            });
            context.router.deliver(pending.key.clone(), pending).await;
        }
        Ok(children)
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<DelegationId, StopHandle>> {
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Between two signs of life of a waiting parent turn.
const HEARTBEAT: Duration = Duration::from_secs(30);
const STOPPED: &str = "The work was stopped: the gateway is shutting down.";

fn open_child(
    tx: &Tx<'_>,
    settings: &Settings,
    hint: &str,
    parent: &SessionId,
    source: Source,
    text: String,
    now: Millis,
) -> Result<(PendingMessage, SessionId), StoreError> {
    let key = child::key(&source);
    let session = settings.open(tx, &key, &source, hint, ResolveMode::Continue, now)?.entry.session_id;
    tx.set_parent_session(&session, parent)?;
    let dedup = source.chat_id.clone().unwrap_or_default();
    let inbound = Inbound::internal(source, dedup, text);
    let id = tx.accept(&inbound, &key, now)?.id();
    Ok((PendingMessage { id, key, inbound, received_at: now }, session))
}

impl SubagentRunner for Delegation {
    fn max_tasks(&self) -> usize {
        self.0.context.settings.delegation.children.max(1)
    }

    fn delegate<'a>(
        &'a self,
        ctx: &'a SessionCtx,
        tasks: Vec<DelegatedTask>,
    ) -> Pin<Box<dyn Future<Output = Result<Value, String>> + Send + 'a>> {
        Box::pin(self.start(ctx, tasks))
    }
}

/// Follows the batches until the gateway stops; the next start marks batches that still ran as unknown.
pub(crate) async fn run(delegation: Delegation, mut batches: BatchQueue, shutdown: ShutdownHandle) {
    let mut running = JoinSet::new();
    loop {
        petasos_runtime::select! {
            () = shutdown.stopped() => break,
            batch = batches.0.recv() => match batch {
                Some(batch) => {
                    petasos_runtime::spawn_into(&mut running, batch.run(delegation.clone()));
                }
                None => break,
            },
            Some(ended) = running.join_next(), if !running.is_empty() => {
                if ended.is_err() {
                    // The row stays open until the next start.
                    tracing::error!("following a delegation batch panicked");
                }
            }
        }
    }
    running.shutdown().await;
}

#[cfg(test)]
mod tests {
    use petasos_agent::AsyncDelivery;
    use petasos_core::Platform;
    use petasos_core::message::ChatType;
    use petasos_store::Store;

    use super::*;
    use crate::runtime::tasks::testing::dropped_after;

    fn ctx(home: &std::path::Path) -> SessionCtx {
        SessionCtx {
            key: SessionKey("agent:main:telegram:dm:7".into()),
            session: SessionId("s".into()),
            source: Source::new(Platform::parse("telegram").unwrap(), ChatType::Dm, "7"),
            async_delivery: AsyncDelivery::Supported,
            respondent: Respondent::None,
            call: "call_1".into(),
            home: home.into(),
            workspace: home.into(),
            sent: vec![],
            results: home.into(),
            heartbeat: petasos_agent::TurnHeartbeat::default(),
            now: clock::now(),
            timezone: None,
        }
    }

    #[tokio::test]
    async fn dispatches_batch_after_the_caller_is_dropped() {
        let mut dropped_behind_commit = 0;
        for polls in 1..64 {
            let home = tempfile::tempdir().unwrap();
            let store = Store::open(home.path().join("petasos.db")).unwrap();
            let (db, _writer) = crate::storage::database::start(store, ShutdownHandle::default()).unwrap();
            let (router, _asks) = Router::new();
            let (delegation, mut batches) = Delegation::new(DelegationContext {
                db: db.clone(),
                router,
                wake: WakeSignal::default(),
                gate: AcceptGate::new(None),
                folder: home.path().into(),
                settings: Settings::new(home.path()),
                hint: String::new(),
                model: String::new(),
                window: 8_000,
            });
            let task = DelegatedTask { goal: "dig".into(), context: None, role: SubagentRole::Leaf };
            let ctx = ctx(home.path());
            let dropped = dropped_after(polls, &db, delegation.start(&ctx, vec![task])).await;
            if !db.read(|reader| reader.open_delegations()).await.unwrap().is_empty() {
                let batch = batches.0.try_recv();
                assert!(
                    batch.is_ok_and(|batch| batch.children.len() == 1),
                    "a stored batch was not handed over"
                );
                dropped_behind_commit += usize::from(dropped);
            }
            if !dropped {
                break;
            }
        }
        assert!(dropped_behind_commit > 0, "never dropped behind its commit");
    }
}
