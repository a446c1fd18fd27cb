//! Outbound delivery: one lane task per chat that has something to send.
//!
//! Owns the map of lanes. A lane task (`lane.rs`) starts on demand and retires after a minute without work; everything it must
//! deliver is in the outbox, so ending a lane loses nothing. A lane that panics is restarted after a pause and treats the send
//! it was making as one with an unknown outcome.

mod attachments;
mod credentials;
mod lane;
mod owner;
mod preview;
mod preview_stream;
pub(crate) mod reactions;
mod send;
mod topic;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use petasos_core::{LaneId, Redactor};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

use crate::clock;
use crate::lifecycle::shutdown::ShutdownHandle;
use crate::links::channels::Channels;
use crate::storage::database::Db;

pub use attachments::{AttachmentPolicy, FileAccess};
pub(crate) use owner::Owners;
pub(crate) use preview_stream::PreviewStream;
use reactions::ReactionQueues;

#[derive(Debug, Clone)]
pub struct Streaming {
    pub enabled: bool,
    pub transport: Transport,
    /// Minimum interval between two previews of one answer.
    pub gap: Duration,
    /// Shown at the end of an unfinished text.
    pub cursor: String,
}

impl Default for Streaming {
    fn default() -> Self {
        Self {
            enabled: false,
            transport: Transport::default(),
            gap: Duration::from_millis(800),
            cursor: " ▉".into(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// As a draft where the platform supports drafts; after a refusal, as an edited message.
    Draft,
    #[default]
    Edit,
}

#[derive(Debug)]
pub(crate) struct DeliveryHandles {
    pub(crate) lanes: LaneDispatcher,
    pub(crate) reactions: ReactionQueues,
}

#[derive(Debug)]
pub(crate) struct LaneContext {
    pub(crate) db: Db,
    pub(crate) channels: Arc<Channels>,
    pub(crate) streaming: Streaming,
    pub(crate) shutdown: ShutdownHandle,
    pub(crate) policy: AttachmentPolicy,
    pub(crate) owners: Owners,
    /// Hides secrets in every message.
    pub(crate) redactor: Redactor,
    /// Bounds concurrent platform requests over all chats.
    pub(crate) send_permits: Semaphore,
}

/// Above every platform's own limit.
const MAX_CONCURRENT_SENDS: usize = 32;

impl LaneContext {
    pub(crate) fn new(
        db: Db,
        channels: Arc<Channels>,
        streaming: Streaming,
        policy: AttachmentPolicy,
        owners: Owners,
        redactor: Redactor,
        shutdown: ShutdownHandle,
    ) -> Self {
        Self {
            db,
            channels,
            streaming,
            shutdown,
            policy,
            owners,
            redactor,
            send_permits: Semaphore::new(MAX_CONCURRENT_SENDS),
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct LaneDispatcher(mpsc::Sender<DispatchCommand>);

#[derive(Debug)]
enum DispatchCommand {
    /// An item became due in this lane.
    Wake { lane: LaneId },
    /// A streamed answer has started in this chat.
    Preview { lane: LaneId, stream: Box<PreviewStream> },
    /// An idle lane asks to be removed from the map.
    Retire { lane: LaneId, done: oneshot::Sender<()> },
}

/// Message to a lane. Every event makes it read the outbox.
#[derive(Debug)]
enum LaneEvent {
    Wake,
    Preview(Box<PreviewStream>),
}

const LANE_DEPTH: usize = 32;
const DEPTH: usize = 1024;
/// Pause before a panicked lane is restarted.
const AFTER_PANIC: Duration = Duration::from_secs(5);

impl LaneDispatcher {
    /// Returns the handle and the dispatcher task, which the caller spawns.
    pub(crate) fn new(context: LaneContext) -> (Self, impl Future<Output = ()>) {
        let (commands, inbox) = mpsc::channel(DEPTH);
        let dispatcher = Self(commands);
        let task = run(Arc::new(context), dispatcher.clone(), inbox);
        (dispatcher, task)
    }

    /// Without lanes: the second value yields the lanes that were woken.
    #[cfg(test)]
    pub(crate) fn recorded() -> (Self, impl FnMut() -> Option<LaneId>) {
        let (commands, mut inbox) = mpsc::channel(DEPTH);
        let due = move || match inbox.try_recv().ok()? {
            DispatchCommand::Wake { lane }
            | DispatchCommand::Preview { lane, .. }
            | DispatchCommand::Retire { lane, .. } => Some(lane),
        };
        (Self(commands), due)
    }

    pub(crate) async fn wake(&self, lane: LaneId) {
        self.send(DispatchCommand::Wake { lane }).await;
    }

    pub(crate) async fn preview(&self, lane: LaneId, stream: PreviewStream) {
        self.send(DispatchCommand::Preview { lane, stream: Box::new(stream) }).await;
    }

    async fn send(&self, command: DispatchCommand) {
        // Closed only during shutdown; the item stays in the outbox.
        let _ = self.0.send(command).await;
    }
}

/// Runs until shutdown, then until the sends in progress have finished.
async fn run(
    context: Arc<LaneContext>,
    dispatcher: LaneDispatcher,
    mut commands: mpsc::Receiver<DispatchCommand>,
) {
    let mut lanes: HashMap<LaneId, mpsc::Sender<LaneEvent>> = HashMap::new();
    let mut tasks = JoinSet::new();
    loop {
        let command = petasos_runtime::select! {
            command = commands.recv() => command,
            Some(_ended) = tasks.join_next(), if !tasks.is_empty() => continue,
            () = context.shutdown.stopped() => break,
        };
        let Some(command) = command else { break };
        let (lane, event) = match command {
            DispatchCommand::Wake { lane } => (lane, LaneEvent::Wake),
            DispatchCommand::Preview { lane, stream } => (lane, LaneEvent::Preview(stream)),
            DispatchCommand::Retire { lane, done } => {
                lanes.remove(&lane);
                // The lane may have been aborted meanwhile.
                let _ = done.send(());
                continue;
            }
        };
        let mailbox = match lanes.entry(lane) {
            Entry::Occupied(known) if !known.get().is_closed() => known.into_mut(),
            entry => {
                let (mailbox, events) = mpsc::channel(LANE_DEPTH);
                let name = entry.key().clone();
                let lane = restart_on_panic(name, context.clone(), dispatcher.clone(), events);
                petasos_runtime::spawn_into(&mut tasks, lane);
                entry.insert_entry(mailbox).into_mut()
            }
        };
        // A full mailbox already makes the lane read the outbox; at most a preview is lost.
        let _ = mailbox.try_send(event);
    }
    // Unblocks lanes that wait for the reply to `Retire`.
    drop(commands);
    lanes.clear();
    while tasks.join_next().await.is_some() {}
}

async fn restart_on_panic(
    name: LaneId,
    context: Arc<LaneContext>,
    dispatcher: LaneDispatcher,
    events: mpsc::Receiver<LaneEvent>,
) {
    let lane = lane::run(name.clone(), context.clone(), dispatcher.clone(), events);
    if AssertUnwindSafe(lane).catch_unwind().await.is_ok() {
        return;
    }
    tracing::error!(lane = %name, "lane panicked; restarting it");
    petasos_runtime::select! {
        () = context.shutdown.stopped() => {}
        () = clock::sleep(AFTER_PANIC) => dispatcher.wake(name).await,
    }
}
