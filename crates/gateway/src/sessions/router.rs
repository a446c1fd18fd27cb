//! The router task: finds or starts the task of a session.
//!
//! Owns the map from session key to mailbox. An idle session retires; its state is in the store, so the next message starts it
//! again.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use petasos_core::{InboxId, SessionKey};
use petasos_store::PendingMessage;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::clock;
use crate::sessions::view::SessionView;
use crate::sessions::{self, Handles, SessionSeed, TaskExit, TaskHistory};

#[derive(Debug, Clone)]
pub(crate) struct Router(mpsc::Sender<RouterRequest>);

#[derive(Debug)]
enum RouterRequest {
    Deliver {
        key: SessionKey,
        pending: Box<PendingMessage>,
    },
    /// The inbox may contain messages that the session has not seen.
    Wake {
        key: SessionKey,
    },
    /// The interrupted turn may be resumed.
    Resume {
        key: SessionKey,
    },
    View {
        key: SessionKey,
        reply: oneshot::Sender<watch::Receiver<SessionView>>,
    },
    StopTurn {
        key: SessionKey,
        reply: oneshot::Sender<bool>,
    },
    Cancel {
        key: SessionKey,
        inbox: InboxId,
        reply: oneshot::Sender<bool>,
    },
    /// An idle session asks to be removed from the map.
    Retire {
        key: SessionKey,
        done: oneshot::Sender<()>,
    },
    Count {
        reply: oneshot::Sender<usize>,
    },
}

#[derive(Debug)]
pub(crate) enum SessionCommand {
    Message(Box<PendingMessage>),
    ReloadInbox,
    Resume,
    StopTurn(oneshot::Sender<bool>),
    /// Cancel the turn or the queued message with this id.
    Cancel(InboxId, oneshot::Sender<bool>),
}

struct SessionEntry {
    commands: mpsc::Sender<SessionCommand>,
    /// The mailbox was full: the session must reload its inbox.
    overflowed: Arc<AtomicBool>,
    view: watch::Receiver<SessionView>,
}

const ROUTER_DEPTH: usize = 1024;
/// Mailbox size of one session. Overflow is read from the inbox.
const SESSION_DEPTH: usize = 64;

impl Router {
    /// Returns the handle and the mailbox, which is passed to [`run`].
    pub(crate) fn new() -> (Self, RouterInbox) {
        let (requests, inbox) = mpsc::channel(ROUTER_DEPTH);
        (Self(requests), RouterInbox(inbox))
    }

    pub(crate) async fn deliver(&self, key: SessionKey, pending: PendingMessage) {
        self.send(RouterRequest::Deliver { key, pending: Box::new(pending) }).await;
    }

    pub(crate) async fn wake(&self, key: SessionKey) {
        self.send(RouterRequest::Wake { key }).await;
    }

    pub(crate) async fn resume(&self, key: SessionKey) {
        self.send(RouterRequest::Resume { key }).await;
    }

    pub(crate) async fn view(&self, key: SessionKey) -> Option<watch::Receiver<SessionView>> {
        let (reply, response) = oneshot::channel();
        self.send(RouterRequest::View { key, reply }).await;
        response.await.ok()
    }

    /// False if no turn was running.
    pub(crate) async fn stop_turn(&self, key: SessionKey) -> bool {
        let (reply, response) = oneshot::channel();
        self.send(RouterRequest::StopTurn { key, reply }).await;
        response.await.unwrap_or(false)
    }

    /// False if the message was already settled.
    pub(crate) async fn cancel(&self, key: SessionKey, inbox: InboxId) -> bool {
        let (reply, response) = oneshot::channel();
        self.send(RouterRequest::Cancel { key, inbox, reply }).await;
        response.await.unwrap_or(false)
    }

    pub(crate) async fn retire(&self, key: SessionKey) {
        let (done, response) = oneshot::channel();
        self.send(RouterRequest::Retire { key, done }).await;
        // The session ends either way.
        let _ = response.await;
    }

    pub(crate) async fn count(&self) -> usize {
        let (reply, response) = oneshot::channel();
        self.send(RouterRequest::Count { reply }).await;
        response.await.unwrap_or(0)
    }

    async fn send(&self, request: RouterRequest) {
        // Closed only during shutdown; accepted messages stay in the inbox.
        let _ = self.0.send(request).await;
    }
}

#[derive(Debug)]
pub(crate) struct RouterInbox(mpsc::Receiver<RouterRequest>);

/// Runs until shutdown, which aborts the running turns: the next start resumes them from their journal.
pub(crate) async fn run(handles: Arc<Handles>, mut inbox: RouterInbox) {
    let tasks = JoinSet::new();
    let mut router = RouterTask { handles, sessions: HashMap::new(), tasks, failures: HashMap::new() };
    loop {
        petasos_runtime::select! {
            request = inbox.0.recv() => match request {
                Some(request) => router.handle(request),
                None => break,
            },
            Some(ended) = router.tasks.join_next(), if !router.tasks.is_empty() => router.on_task_end(ended.ok()),
            () = router.handles.lifecycle.shutdown.stopped() => break,
        }
    }
    router.tasks.shutdown().await;
}

struct RouterTask {
    handles: Arc<Handles>,
    sessions: HashMap<SessionKey, SessionEntry>,
    tasks: JoinSet<TaskOutcome>,
    failures: HashMap<SessionKey, FailureState>,
}

#[derive(Default)]
struct FailureState {
    count: u32,
    restarting: bool,
}

enum TaskOutcome {
    Done,
    SessionFinished(SessionKey),
    /// Panicked or failed: restarted after a delay.
    SessionFailed(SessionKey),
    RestartDue(SessionKey),
    /// The turn to be stopped is open, or may be.
    OpenTurnFound(SessionKey, oneshot::Sender<bool>),
}

const RESTART_DELAY: Duration = Duration::from_secs(5);
/// Consecutive failures after which the session gives up its first queued message.
const GIVE_UP_AFTER: u32 = 3;

impl RouterTask {
    fn handle(&mut self, request: RouterRequest) {
        match request {
            RouterRequest::Deliver { key, pending } => self.forward(key, SessionCommand::Message(pending)),
            RouterRequest::Wake { key } => self.forward(key, SessionCommand::ReloadInbox),
            RouterRequest::Resume { key } => self.resume(key),
            RouterRequest::View { key, reply } => {
                let view = self.entry(key).view.clone();
                // The caller may have gone.
                let _ = reply.send(view);
            }
            RouterRequest::StopTurn { key, reply } => match self.sessions.get(&key) {
                Some(entry) if !entry.commands.is_closed() => self.stop_turn(key, reply),
                Some(_) | None => self.stop_open_turn(key, reply),
            },
            RouterRequest::Cancel { key, inbox, reply } => {
                let commands = self.entry(key).commands.clone();
                petasos_runtime::spawn_into(&mut self.tasks, async move {
                    let _ = commands.send(SessionCommand::Cancel(inbox, reply)).await;
                    TaskOutcome::Done
                });
            }
            RouterRequest::Retire { key, done } => {
                self.sessions.remove(&key);
                let _ = done.send(());
            }
            RouterRequest::Count { reply } => {
                let _ = reply.send(self.sessions.len());
            }
        }
    }

    /// A starting session reads its inbox anyway, and one with a full mailbox reloads it. A session that waits for its restart is left
    /// alone.
    fn forward(&mut self, key: SessionKey, command: SessionCommand) {
        if self.failures.get(&key).is_some_and(|failures| failures.restarting) {
            return;
        }
        let fresh = self.sessions.get(&key).is_none_or(|entry| entry.commands.is_closed());
        let entry = self.entry(key);
        if !fresh && entry.commands.try_send(command).is_err() {
            entry.overflowed.store(true, Ordering::Release);
        }
    }

    /// Unlike other commands, this one also reaches a session that is starting.
    fn resume(&mut self, key: SessionKey) {
        if self.failures.get(&key).is_some_and(|failures| failures.restarting) {
            return;
        }
        let commands = self.entry(key).commands.clone();
        if commands.try_send(SessionCommand::Resume).is_err() {
            petasos_runtime::spawn_into(&mut self.tasks, async move {
                // If the session ends meanwhile, its next command starts it again.
                let _ = commands.send(SessionCommand::Resume).await;
                TaskOutcome::Done
            });
        }
    }

    fn stop_turn(&mut self, key: SessionKey, reply: oneshot::Sender<bool>) {
        let commands = self.entry(key).commands.clone();
        petasos_runtime::spawn_into(&mut self.tasks, async move {
            let _ = commands.send(SessionCommand::StopTurn(reply)).await;
            TaskOutcome::Done
        });
    }

    /// Starts a session only if an open turn exists, such as a held suspect.
    fn stop_open_turn(&mut self, key: SessionKey, reply: oneshot::Sender<bool>) {
        let handles = self.handles.clone();
        petasos_runtime::spawn_into(&mut self.tasks, async move {
            let wanted = key.clone();
            match handles.db.read(move |reader| reader.open_turn_of(&wanted)).await {
                Ok(None) => {
                    let _ = reply.send(false);
                    TaskOutcome::Done
                }
                // The session handles a store that cannot be read.
                Ok(Some(_)) | Err(_) => TaskOutcome::OpenTurnFound(key, reply),
            }
        });
    }

    fn entry(&mut self, key: SessionKey) -> &mut SessionEntry {
        if self.sessions.get(&key).is_some_and(|entry| entry.commands.is_closed()) {
            self.sessions.remove(&key);
        }
        let history = match self.failures.get(&key).map(|failures| failures.count) {
            Some(GIVE_UP_AFTER..) => TaskHistory::FailedRepeatedly,
            Some(_) => TaskHistory::Failed,
            None => TaskHistory::Clean,
        };
        let Self { handles, tasks, sessions, .. } = self;
        sessions.entry(key).or_insert_with_key(|key| {
            let (commands, command_rx) = mpsc::channel(SESSION_DEPTH);
            let (view_tx, view) = watch::channel(SessionView::default());
            let overflowed = Arc::new(AtomicBool::new(false));
            let key = key.clone();
            let handles = handles.clone();
            let seed = SessionSeed {
                key: key.clone(),
                handles,
                commands: command_rx,
                overflowed: overflowed.clone(),
                view_tx,
                history,
            };
            petasos_runtime::spawn_into(tasks, async move {
                match AssertUnwindSafe(sessions::run(seed)).catch_unwind().await {
                    Ok(TaskExit::Finished) => TaskOutcome::SessionFinished(key),
                    Ok(TaskExit::Failed) | Err(_) => TaskOutcome::SessionFailed(key),
                }
            });
            SessionEntry { commands, overflowed, view }
        })
    }

    fn on_task_end(&mut self, outcome: Option<TaskOutcome>) {
        match outcome {
            Some(TaskOutcome::Done) | None => {}
            Some(TaskOutcome::OpenTurnFound(key, reply)) => self.stop_turn(key, reply),
            Some(TaskOutcome::SessionFinished(key)) => {
                self.failures.remove(&key);
            }
            Some(TaskOutcome::SessionFailed(key)) => {
                tracing::error!(%key, "session failed; restarting it");
                let failures = self.failures.entry(key.clone()).or_default();
                failures.count += 1;
                failures.restarting = true;
                petasos_runtime::spawn_into(&mut self.tasks, async move {
                    clock::sleep(RESTART_DELAY).await;
                    TaskOutcome::RestartDue(key)
                });
            }
            Some(TaskOutcome::RestartDue(key)) => {
                if let Some(failures) = self.failures.get_mut(&key) {
                    failures.restarting = false;
                }
                self.resume(key);
            }
        }
    }
}
