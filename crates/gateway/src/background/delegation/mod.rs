//! Work that a turn gives to others: each of them is a session like any other, with the same machine for its turns.
//!
//! Owns the batches that run, in one task ([`run`]), and who may be told to stop them, under one short lock. A batch is
//! dispatched by one commit: a row (if nobody waits for it) and a message for each child. Its end is one commit, too: the
//! row's end and the completion that wakes the conversation. Children are never taken up after a crash; what they did
//! is in their transcripts, and the conversation is told once that the outcome is unknown.

mod batch;
mod child;
mod report;
mod told;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use petasos_agent::{Delegate, Person, Role, SessionCtx, Task};
use petasos_core::lifecycle::Door;
use petasos_core::session::Ask;
use petasos_core::{Inbound, Millis, SessionId, SessionKey, Source};
use petasos_store::{DelegationRow, Error as StoreError, Pending, Tx};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use batch::{Batch, End, Working};
pub(crate) use child::{Place, is_child};
pub(crate) use report::lose;
pub(crate) use told::told;

use crate::background::completions::Bell;
use crate::clock;
use crate::lifecycle::config::Settings;
use crate::lifecycle::gate::Gate;
use crate::lifecycle::shutdown::Stopper;
use crate::runtime::commit::Commit;
use crate::runtime::tasks;
use crate::sessions::router::Router;
use crate::storage::database::Db;

/// How much may be given away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delegating {
    /// Children of one call, and batches in the background.
    pub children: usize,
    /// How deep it goes: 1 means that children have none of their own.
    pub depth: u32,
    /// Whether a child may be asked to delegate in turn, where depth allows it.
    pub orchestrators: bool,
    /// Model answers of a child.
    pub steps: u32,
    /// How long a child may take; `None`: as long as it likes.
    pub patience: Option<Duration>,
    /// Children run commands that need a yes.
    pub auto_approve: bool,
}

impl Default for Delegating {
    fn default() -> Self {
        Self { children: 3, depth: 1, orchestrators: true, steps: 50, patience: None, auto_approve: false }
    }
}

impl Delegating {
    /// Whom a child can ask: nobody, ever.
    pub(crate) fn person(&self) -> Person {
        if self.auto_approve { Person::NobodyNeeded } else { Person::Nobody }
    }
}

/// What delegation is made from.
#[derive(Debug)]
pub(crate) struct Means {
    pub(crate) db: Db,
    pub(crate) router: Router,
    pub(crate) bell: Bell,
    pub(crate) gate: Gate,
    /// Where reports that are too long and transcripts lie.
    pub(crate) folder: PathBuf,
    pub(crate) settings: Settings,
    /// One line for a child about where it is.
    pub(crate) hint: String,
    pub(crate) model: String,
    /// Tokens that the model can hold.
    pub(crate) window: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Delegation(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    means: Means,
    /// Batches in the background.
    pool: Arc<Semaphore>,
    batches: mpsc::Sender<Batch>,
    /// Those that run, by their name: whose they are, and how they are stopped.
    running: Mutex<BTreeMap<String, Stop>>,
}

#[derive(Debug)]
struct Stop {
    key: SessionKey,
    ask: watch::Sender<bool>,
}

/// The owner's end.
#[derive(Debug)]
pub(crate) struct Batches(mpsc::Receiver<Batch>);

const DEPTH: usize = 64;

/// Whether somebody waits for a batch.
enum Mode {
    Background(tokio::sync::OwnedSemaphorePermit),
    /// The note says why, where that is not plain.
    Waited(Option<String>),
}

impl Delegation {
    pub(crate) fn new(means: Means) -> (Self, Batches) {
        let (batches, inbox) = mpsc::channel(DEPTH);
        let pool = Arc::new(Semaphore::new(means.settings.delegation.children.max(1)));
        (Self(Arc::new(Inner { means, pool, batches, running: Mutex::default() })), Batches(inbox))
    }

    /// Stops what a session has given away. `false`: there was nothing.
    pub(crate) fn stop(&self, key: &SessionKey) -> bool {
        let mut stopped = false;
        for stop in self.running().values().filter(|stop| stop.key == *key) {
            stop.ask.send_replace(true);
            stopped = true;
        }
        stopped
    }

    fn mode(&self, ctx: &SessionCtx, depth: u32) -> Mode {
        if depth > 0 {
            return Mode::Waited(None);
        }
        if !ctx.delivers_later() {
            let note = "This channel cannot deliver anything after the answer, so the work was not detached: it ran \
                        synchronously, and its results are included here.";
            return Mode::Waited(Some(note.to_owned()));
        }
        match self.0.pool.clone().try_acquire_owned() {
            Ok(permit) => Mode::Background(permit),
            Err(_full_or_closed) => Mode::Waited(Some(format!(
                "{} batches run in the background already (delegation.max_concurrent_children), so this one ran \
                 synchronously, and its results are included here.",
                self.0.means.settings.delegation.children
            ))),
        }
    }

    async fn start(&self, ctx: &SessionCtx, tasks: Vec<Task>) -> Result<Value, String> {
        let rules = &self.0.means.settings.delegation;
        let depth = Place::of(&ctx.key).map_or(0, |place| place.depth);
        if depth >= rules.depth {
            return Err(format!(
                "Delegation may go no deeper than {} (delegation.max_spawn_depth). Do the work yourself.",
                rules.depth
            ));
        }
        if matches!(self.0.means.gate.door(), Door::Leaving { .. }) {
            return Err(
                "Nobody begins anything new: the gateway is going down. Do the work yourself.".to_owned()
            );
        }
        let mode = self.mode(ctx, depth);
        let id = format!("deleg_{:08x}", u32::from_be_bytes(clock::random()));
        let orchestrates = rules.orchestrators && depth + 1 < rules.depth;
        let place =
            |task: &Task| Place { depth: depth + 1, role: if orchestrates { task.role } else { Role::Leaf } };
        let sources: Vec<Source> =
            tasks.iter().enumerate().map(|(at, task)| child::source(&id, at, place(task))).collect();
        let row = matches!(mode, Mode::Background(_)).then(|| self.row(&id, ctx, &tasks)).transpose()?;
        let goals: Vec<String> = tasks.iter().map(|task| task.goal.clone()).collect();
        let (ask, stop) = watch::channel(false);
        self.running().insert(id.clone(), Stop { key: ctx.key.clone(), ask });
        let (end, waited) = match mode {
            Mode::Background(permit) => (End::Owed(permit), None),
            Mode::Waited(note) => {
                let (done, results) = oneshot::channel();
                (End::Waited(done), Some((results, note)))
            }
        };
        let batch = Batch {
            id: id.clone(),
            key: ctx.key.clone(),
            session: ctx.session.clone(),
            origin: ctx.source.clone(),
            tasks,
            children: vec![],
            began: Instant::now(),
            dispatched_at: clock::now(),
            stop,
            end,
        };
        let this = self.clone();
        // Whoever asked may be stopped meanwhile: what is on disk has somebody who looks after it all the same.
        let dispatched = tasks::uncancelled(async move { this.dispatch(batch, row, sources).await });
        let transcripts = dispatched.await.map_err(|_panicked| STOPPED.to_owned())??;
        match waited {
            None => Ok(json!({
                "status": "dispatched",
                "mode": "background",
                "count": goals.len(),
                "delegation_id": id,
                "goals": goals,
                "note": "The work goes on in the background. Its results come as a message of their own when all of it \
                         has ended: do not wait or ask for them, and do not claim them before.",
                "live_transcripts": transcripts,
                "live_transcripts_hint": "These files grow while the work goes on.",
            })),
            Some((mut results, note)) => {
                let mut pulse = tokio::time::interval(PULSE);
                let mut results = loop {
                    petasos_runtime::select! {
                        results = &mut results => break results.map_err(|_gone| STOPPED.to_owned())?,
                        // What the children do is a sign of life of whoever waits for them.
                        _ = pulse.tick() => ctx.alive.sign(),
                    }
                };
                if let Some(note) = note {
                    results["note"] = note.into();
                }
                Ok(results)
            }
        }
    }

    fn row(&self, id: &str, ctx: &SessionCtx, tasks: &[Task]) -> Result<DelegationRow, String> {
        Ok(DelegationRow {
            id: id.to_owned(),
            key: ctx.key.clone(),
            session: ctx.session.clone(),
            origin: ctx.source.clone(),
            tasks: serde_json::to_string(tasks).map_err(|_| STOPPED.to_owned())?,
            started_at: clock::now(),
            status: None,
        })
    }

    /// Begins the work and hands it to whoever looks after it; gives the files that grow with it.
    async fn dispatch(
        &self,
        mut batch: Batch,
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
        let transcripts = batch.children.iter().map(Working::transcript_path).collect();
        self.0.batches.send(batch).await.map_err(|_stopping| STOPPED.to_owned())?;
        Ok(transcripts)
    }

    /// The children and their messages, and the row: one commit. Then they begin.
    async fn begin(
        &self,
        batch: &Batch,
        row: Option<DelegationRow>,
        sources: Vec<Source>,
    ) -> Result<Vec<Working>, String> {
        let means = &self.0.means;
        let (settings, hint, parent) = (means.settings.clone(), means.hint.clone(), batch.session.clone());
        let texts: Vec<String> = batch.tasks.iter().map(child::words).collect();
        let begun = means.db.write(Commit::Delegation, move |tx| {
            if let Some(row) = &row {
                tx.begin_delegation(row)?;
            }
            let now = clock::now();
            let each = sources.into_iter().zip(texts);
            each.map(|(source, text)| adopt(tx, &settings, &hint, &parent, source, text, now)).collect()
        });
        let begun: Vec<(Pending, SessionId)> =
            begun.await.map_err(|error| format!("The work could not be begun: {error}"))?;
        let mut children = Vec::new();
        for (at, (pending, session)) in begun.into_iter().enumerate() {
            children.push(Working {
                at,
                key: pending.key.clone(),
                session,
                inbox: pending.id,
                transcript: means.folder.join(format!("{}-{at}.md", batch.id)),
            });
            means.router.arrived(pending.key.clone(), pending).await;
        }
        Ok(children)
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<String, Stop>> {
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often whoever waits says so.
const PULSE: Duration = Duration::from_secs(30);
const STOPPED: &str = "The work was stopped: the gateway is going down.";

fn adopt(
    tx: &Tx<'_>,
    settings: &Settings,
    hint: &str,
    parent: &SessionId,
    source: Source,
    text: String,
    now: Millis,
) -> Result<(Pending, SessionId), StoreError> {
    let key = child::key(&source);
    let session = settings.open(tx, &key, &source, hint, Ask::Continue, now)?.entry.session_id;
    tx.work_for(&session, parent)?;
    let dedup = source.chat_id.clone().unwrap_or_default();
    let inbound = Inbound::internal(source, dedup, text);
    let id = tx.accept(&inbound, &key, now)?.id();
    Ok((Pending { id, key, inbound, received_at: now }, session))
}

impl Delegate for Delegation {
    fn most(&self) -> usize {
        self.0.means.settings.delegation.children.max(1)
    }

    fn delegate<'a>(
        &'a self,
        ctx: &'a SessionCtx,
        tasks: Vec<Task>,
    ) -> Pin<Box<dyn Future<Output = Result<Value, String>> + Send + 'a>> {
        Box::pin(self.start(ctx, tasks))
    }
}

/// Looks after the batches until the gateway stops; what runs then is found as unknown by the next start.
pub(crate) async fn run(delegation: Delegation, mut batches: Batches, stopper: Stopper) {
    let mut running = JoinSet::new();
    loop {
        petasos_runtime::select! {
            () = stopper.stopped() => break,
            batch = batches.0.recv() => match batch {
                Some(batch) => {
                    running.spawn(petasos_runtime::scheduled(batch.run(delegation.clone())));
                }
                None => break,
            },
            Some(ended) = running.join_next(), if !running.is_empty() => {
                if ended.is_err() {
                    // Its row is open: the next start ends it.
                    tracing::error!("looking after delegated work panicked");
                }
            }
        }
    }
    running.shutdown().await;
}

#[cfg(test)]
mod tests {
    use petasos_agent::Later;
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
            later: Later::Supported,
            person: Person::Nobody,
            call: "call_1".into(),
            home: home.into(),
            workspace: home.into(),
            sent: vec![],
            results: home.into(),
            alive: petasos_agent::Alive::default(),
            now: clock::now(),
            timezone: None,
        }
    }

    #[tokio::test]
    async fn dispatch_goes_on_after_the_caller_is_dropped() {
        let mut dropped_behind_commit = 0;
        for polls in 1..64 {
            let home = tempfile::tempdir().unwrap();
            let store = Store::open(home.path().join("petasos.db")).unwrap();
            let (db, _writer) = crate::storage::database::start(store, Stopper::default()).unwrap();
            let (router, _asks) = Router::new();
            let (delegation, mut batches) = Delegation::new(Means {
                db: db.clone(),
                router,
                bell: Bell::default(),
                gate: Gate::new(None),
                folder: home.path().into(),
                settings: Settings::new(home.path()),
                hint: String::new(),
                model: String::new(),
                window: 8_000,
            });
            let task = Task { goal: "dig".into(), context: None, role: Role::Leaf };
            let ctx = ctx(home.path());
            let dropped = dropped_after(polls, &db, delegation.start(&ctx, vec![task])).await;
            if !db.read(|reader| reader.open_delegations()).await.unwrap().is_empty() {
                let batch = batches.0.try_recv();
                assert!(batch.is_ok_and(|batch| batch.children.len() == 1), "stored, and nobody works on it");
                dropped_behind_commit += usize::from(dropped);
            }
            if !dropped {
                break;
            }
        }
        assert!(dropped_behind_commit > 0, "never dropped behind its commit");
    }
}
