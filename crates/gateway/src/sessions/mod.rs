//! The task of one session: its queue, its turn, and the view of both.
//!
//! The task is the only owner of its queue and its turn. All of its state is also in the store: a session that starts, after a
//! crash or an idle hour, reads its open turn and its queued messages and continues (`turn/recover.rs`). There is no other way to
//! start.
//!
//! | module | purpose |
//! |---|---|
//! | `router` | finds or starts a session's task |
//! | `messages` | admission, files, replies without a turn, hook events |
//! | `turn` | starts and runs turns |
//! | `commands` | slash commands, and replies to open questions |
//! | `approvals`, `questions` | command approvals and questions to people |
//! | `errands` | tools that need the gateway |
//! | `view`, `handles` | what others can watch; shared dependencies |

pub(crate) mod approvals;
mod commands;
pub(crate) mod errands;
mod handles;
mod messages;
pub(crate) mod questions;
pub(crate) mod router;
mod turn;
pub(crate) mod view;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use petasos_core::admission::Arrival;
use petasos_core::command::{self as slash, Parsed};
use petasos_core::journal::{MessageOutcome, Write};
use petasos_core::message::ChatType;
use petasos_core::turn::{Event, Turn};
use petasos_core::{Inbound, InboxId, Millis, Platform, RunId, SessionKey};
use petasos_store::PendingMessage;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::api::runs::run_of;
use crate::clock;
use crate::runtime::commit::Commit;
use crate::runtime::fault_injection::{PlantedBug, planted};
use crate::sessions::router::SessionCommand;
use crate::sessions::view::SessionView;
pub(crate) use handles::{AgentHandles, Handles, PeopleHandles};
use messages::admit::AdmissionPromise;
use messages::files::{self, PendingDownloads};
use turn::RunningTurn;
use turn::work::{self, TurnWork};

/// Idle time after which a session retires.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Idle time on channels that end with the answer: clients may return days later, and there may be thousands.
const BRIEF_IDLE_TIMEOUT: Duration = Duration::from_millis(100);
/// Minimum interval between two acknowledgements of a session.
const ACK_INTERVAL: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct SessionSeed {
    pub(crate) key: SessionKey,
    pub(crate) handles: Arc<Handles>,
    pub(crate) commands: mpsc::Receiver<SessionCommand>,
    /// Set when a command did not fit into the mailbox: reload the inbox.
    pub(crate) overflowed: Arc<AtomicBool>,
    pub(crate) view_tx: watch::Sender<SessionView>,
    pub(crate) history: TaskHistory,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskHistory {
    /// Normally, or there was none.
    Clean,
    Failed,
    FailedRepeatedly,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskExit {
    /// Idle, or shutdown.
    Finished,
    /// The store refused a decision: the session must be restarted.
    Failed,
}

pub(crate) async fn run(seed: SessionSeed) -> TaskExit {
    let SessionSeed { key, handles, commands, overflowed, view_tx, history } = seed;
    let session = SessionTask {
        key,
        handles,
        commands,
        overflowed,
        view_tx: Arc::new(view_tx),
        queue: VecDeque::new(),
        downloads: PendingDownloads::default(),
        running: None,
        compaction: None,
        reader: None,
        gate_changes: None,
        known_up_to: InboxId(0),
        acked_at: None,
        current: None,
    };
    session.run(history).await
}

struct SessionTask {
    key: SessionKey,
    handles: Arc<Handles>,
    commands: mpsc::Receiver<SessionCommand>,
    overflowed: Arc<AtomicBool>,
    view_tx: Arc<watch::Sender<SessionView>>,
    /// Accepted messages, oldest first.
    queue: VecDeque<QueuedMessage>,
    /// Accepted messages whose files are being downloaded.
    downloads: PendingDownloads,
    running: Option<RunningTurn>,
    compaction: Option<ManualCompaction>,
    /// The platform of the last turn's author.
    reader: Option<Platform>,
    /// Set while no turn may start: wakes the session when the gate changes.
    gate_changes: Option<watch::Receiver<u64>>,
    /// Messages up to this id were read from the inbox; commands about them are ignored.
    known_up_to: InboxId,
    acked_at: Option<Millis>,
    /// The message being processed. If the store refuses it permanently, it is given up.
    current: Option<PendingMessage>,
}

struct ManualCompaction {
    command: PendingMessage,
    work: TurnWork,
}

struct QueuedMessage {
    pending: PendingMessage,
    /// Gets a turn of its own (`/queue`, internal messages).
    alone: bool,
    /// Already acknowledged: it is held, not refused, while no turn may start.
    promised: bool,
    /// Earliest start: the second half of a split message may still arrive.
    ready: Instant,
}

enum SessionError {
    Stopping,
    /// The store refused a decision permanently.
    StoreRefused,
}

impl SessionTask {
    async fn run(mut self, history: TaskHistory) -> TaskExit {
        let mut result = Box::pin(self.recover(history)).await.map(|()| true);
        while let Ok(true) = result {
            result = self.step().await;
        }
        match result {
            Ok(_) | Err(SessionError::Stopping) => TaskExit::Finished,
            Err(SessionError::StoreRefused) => {
                Box::pin(self.give_up_current()).await;
                TaskExit::Failed
            }
        }
    }

    /// Waits for one event and handles it. `false`: the session retires. Handlers are boxed, so that a session that only waits, as
    /// most do, is small.
    async fn step(&mut self) -> Result<bool, SessionError> {
        self.current = None;
        if self.overflowed.swap(false, Ordering::AcqRel) {
            Box::pin(self.reload()).await?;
        }
        let ready = if self.gate_changes.is_none() { self.next_start_at() } else { None };
        if ready.is_some_and(|ready| ready <= clock::monotonic()) {
            Box::pin(self.begin_turn()).await?;
            return Ok(true);
        }
        let turn_idle = self.running.is_none();
        let idle =
            turn_idle && self.queue.is_empty() && self.downloads.is_empty() && self.compaction.is_none();
        let wait = ready.unwrap_or_else(|| clock::monotonic() + self.idle_timeout());
        let stalls_at = self.stalls_at();
        let preview_at = self.running.as_ref().and_then(|running| running.preview_at);
        let work = match (&mut self.running, &mut self.compaction) {
            (Some(running), _) => running.work.as_mut(),
            (None, compaction) => compaction.as_mut().map(|it| &mut it.work),
        };
        petasos_runtime::select! {
            command = self.commands.recv() => match command {
                Some(SessionCommand::Message(pending)) => Box::pin(self.on_message(*pending)).await?,
                Some(SessionCommand::ReloadInbox) => Box::pin(self.reload()).await?,
                Some(SessionCommand::Resume) => Box::pin(self.resume_turn()).await?,
                Some(SessionCommand::Cancel(inbox, reply)) => {
                    let cancelled = Box::pin(self.cancel(inbox)).await?;
                    let _ = reply.send(cancelled);
                }
                Some(SessionCommand::StopTurn(reply)) => {
                    let stopped = Box::pin(self.interrupt()).await?;
                    // The caller may have gone.
                    let _ = reply.send(stopped);
                }
                None => return Ok(false),
            },
            inbound = files::next_downloaded(&mut self.downloads) => Box::pin(self.on_files_fetched(inbound)).await?,
            report = work::next_report(work) => Box::pin(self.on_report(report)).await?,
            () = sleep_until(preview_at) => self.start_preview().await,
            () = sleep_until(stalls_at) => Box::pin(self.on_stall()).await?,
            () = gate_changed(&mut self.gate_changes) => {
                self.gate_changes = None;
                if planted(PlantedBug::DropsHeldQueue) {
                    self.queue.clear();
                }
            }
            () = tokio::time::sleep_until(wait), if turn_idle => {
                if idle && self.view_tx.receiver_count() <= 1 {
                    self.retire().await;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Handles a committed message, unless it was already read from the inbox.
    async fn on_message(&mut self, pending: PendingMessage) -> Result<(), SessionError> {
        if pending.id <= self.known_up_to {
            return Ok(());
        }
        self.process_message(pending).await
    }

    async fn process_message(&mut self, pending: PendingMessage) -> Result<(), SessionError> {
        if let Some(reply) = self.as_question_reply(&pending)
            && Box::pin(self.handle_question_reply(&pending, reply)).await?
        {
            return Ok(());
        }
        if is_command(&pending) {
            return Box::pin(self.command(pending)).await;
        }
        let arrival = if pending.inbound.internal { Arrival::Internal } else { Arrival::Text };
        if self.must_wait_for_files(&pending) {
            return self.enqueue_download(pending, arrival, AdmissionPromise::NotYet).await;
        }
        Box::pin(self.resume_turn()).await?;
        self.admit(pending, arrival).await
    }

    fn turn(&self) -> Option<&Turn> {
        self.running.as_ref().map(|running| &running.turn)
    }

    fn steering(&self) -> &[PendingMessage] {
        self.running.as_ref().map(|running| running.steering.as_slice()).unwrap_or_default()
    }

    /// Ends the running turn. `false`: none was running.
    async fn interrupt(&mut self) -> Result<bool, SessionError> {
        let Some(running) = &mut self.running else { return self.stop_compaction().await };
        running.work = None;
        let unstarted = self.end_open_questions().await?;
        let shown = self.text_shown();
        self.feed(Event::Interrupted { shown, unstarted }).await?;
        Ok(true)
    }

    /// Cancels the turn or the queued message with this id. `false`: neither was found.
    async fn cancel(&mut self, inbox: InboxId) -> Result<bool, SessionError> {
        if self.turn().is_some_and(|turn| turn.id == inbox.into()) {
            return self.interrupt().await;
        }
        let Some(position) = self.queue.iter().position(|waiting| waiting.pending.id == inbox) else {
            return Ok(false);
        };
        self.write(Commit::Reply, move |tx| {
            let at = clock::now();
            let outcome = MessageOutcome::Cancelled;
            tx.apply(&[Write::SettleInbox { inbox: vec![inbox], outcome, at }], at)
        })
        .await?;
        if let Some(waiting) = self.queue.remove(position) {
            let source = &waiting.pending.inbound.source;
            self.notify_run_ended(run_of(source.platform, source.message_id.as_ref()));
        }
        self.publish_queue();
        Ok(true)
    }

    /// Called after the commit that settles an API run.
    fn notify_run_ended(&self, run: Option<RunId>) {
        if let Some(run) = run {
            self.handles.runs.mark_ended(&run);
        }
    }

    fn idle_timeout(&self) -> Duration {
        let stays = |platform| self.handles.channels.capabilities(platform).async_delivery;
        if self.reader.is_none_or(stays) { IDLE_TIMEOUT } else { BRIEF_IDLE_TIMEOUT }
    }

    /// Leaves the router's map. Commands that arrived meanwhile wake a new task.
    async fn retire(&mut self) {
        self.handles.router.retire(self.key.clone()).await;
        let mut missed = self.overflowed.load(Ordering::Acquire);
        while let Ok(command) = self.commands.try_recv() {
            missed = true;
            drop(command);
        }
        if missed {
            // The next task reads the messages from the inbox.
            self.handles.router.wake(self.key.clone()).await;
        }
    }
}

/// Never resolves for `None`.
async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Never resolves for `None`.
async fn gate_changed(changes: &mut Option<watch::Receiver<u64>>) {
    match changes {
        // The sender lives as long as the handles.
        Some(changes) => drop(changes.changed().await),
        None => std::future::pending().await,
    }
}

fn is_command(pending: &PendingMessage) -> bool {
    !pending.inbound.internal && parsed(&pending.inbound) != Parsed::Text
}

/// Commands come from people only: a program's text is never a command.
fn parsed(inbound: &Inbound) -> Parsed {
    match inbound.source.chat_type {
        ChatType::Webhook => Parsed::Text,
        ChatType::Dm | ChatType::Group | ChatType::Channel | ChatType::Thread | ChatType::Forum => {
            slash::parse(&inbound.text)
        }
    }
}
