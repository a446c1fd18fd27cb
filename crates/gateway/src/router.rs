//! Finds a session's task, or starts it.
//!
//! Owns the map from key to mailbox. A session that has nothing to do leaves after a while; its state is in
//! the store, so the next message simply starts it again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use petasos_core::SessionKey;
use petasos_store::Pending;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::session::{self, Shell};
use crate::view::View;

/// The way to the sessions.
#[derive(Debug, Clone)]
pub(crate) struct Router(mpsc::Sender<Ask>);

#[derive(Debug)]
enum Ask {
    /// A message is on disk.
    Arrived {
        key: SessionKey,
        pending: Box<Pending>,
    },
    /// There may be work from before: an open turn, queued messages.
    Wake {
        key: SessionKey,
    },
    View {
        key: SessionKey,
        reply: oneshot::Sender<watch::Receiver<View>>,
    },
    StopTurn {
        key: SessionKey,
        reply: oneshot::Sender<bool>,
    },
    /// An idle session wants to end.
    Leave {
        key: SessionKey,
        granted: oneshot::Sender<()>,
    },
    Count {
        reply: oneshot::Sender<usize>,
    },
}

/// What a session hears.
#[derive(Debug)]
pub(crate) enum Word {
    Arrived(Box<Pending>),
    StopTurn(oneshot::Sender<bool>),
}

struct Seat {
    words: mpsc::Sender<Word>,
    /// A word did not fit: the session must look into its inbox.
    missed: Arc<AtomicBool>,
    view: watch::Receiver<View>,
}

const DEPTH: usize = 1024;
/// Words that may wait at one session. What does not fit stays in the inbox and is found there.
const SESSION_DEPTH: usize = 64;

impl Router {
    /// Makes the channel; call [`run`] with the other end.
    pub(crate) fn new() -> (Self, Asks) {
        let (asks, inbox) = mpsc::channel(DEPTH);
        (Self(asks), Asks(inbox))
    }

    pub(crate) async fn arrived(&self, key: SessionKey, pending: Pending) {
        self.ask(Ask::Arrived { key, pending: Box::new(pending) }).await;
    }

    pub(crate) async fn wake(&self, key: SessionKey) {
        self.ask(Ask::Wake { key }).await;
    }

    pub(crate) async fn view(&self, key: SessionKey) -> Option<watch::Receiver<View>> {
        let (reply, answer) = oneshot::channel();
        self.ask(Ask::View { key, reply }).await;
        answer.await.ok()
    }

    /// Whether there was a turn to stop.
    pub(crate) async fn stop_turn(&self, key: SessionKey) -> bool {
        let (reply, answer) = oneshot::channel();
        self.ask(Ask::StopTurn { key, reply }).await;
        answer.await.unwrap_or(false)
    }

    pub(crate) async fn leave(&self, key: SessionKey) {
        let (granted, answer) = oneshot::channel();
        self.ask(Ask::Leave { key, granted }).await;
        // Either way the session ends.
        let _ = answer.await;
    }

    /// Sessions awake now.
    pub(crate) async fn count(&self) -> usize {
        let (reply, answer) = oneshot::channel();
        self.ask(Ask::Count { reply }).await;
        answer.await.unwrap_or(0)
    }

    async fn ask(&self, ask: Ask) {
        // Closed only while stopping; the inbox keeps what was accepted.
        let _ = self.0.send(ask).await;
    }
}

/// The owner's end of the channel.
#[derive(Debug)]
pub(crate) struct Asks(mpsc::Receiver<Ask>);

/// Runs until stopping begins. Turns under way end with it: their journal is what the next start resumes.
pub(crate) async fn run(shell: Arc<Shell>, mut asks: Asks) {
    let mut seats: HashMap<SessionKey, Seat> = HashMap::new();
    let mut tasks = JoinSet::new();
    loop {
        let ask = tokio::select! {
            ask = asks.0.recv() => ask,
            Some(ended) = tasks.join_next(), if !tasks.is_empty() => {
                if ended.is_err() {
                    tracing::error!("a session panicked; its turn is resumed with its next message");
                    seats.retain(|_, seat| !seat.words.is_closed());
                }
                continue;
            }
            () = shell.stopper.stopped() => break,
        };
        let Some(ask) = ask else { break };
        match ask {
            Ask::Arrived { key, pending } => {
                let fresh = !seats.contains_key(&key);
                let seat = seated(&mut seats, &mut tasks, &shell, key);
                // A session that is just starting reads its inbox anyway.
                if !fresh && seat.words.try_send(Word::Arrived(pending)).is_err() {
                    seat.missed.store(true, Ordering::Release);
                }
            }
            Ask::Wake { key } => {
                seated(&mut seats, &mut tasks, &shell, key);
            }
            Ask::View { key, reply } => {
                let view = seated(&mut seats, &mut tasks, &shell, key).view.clone();
                let _ = reply.send(view);
            }
            Ask::StopTurn { key, reply } => {
                if let Some(seat) = seats.get(&key) {
                    let _ = seat.words.try_send(Word::StopTurn(reply));
                }
            }
            Ask::Leave { key, granted } => {
                seats.remove(&key);
                let _ = granted.send(());
            }
            Ask::Count { reply } => {
                let _ = reply.send(seats.len());
            }
        }
    }
    tasks.shutdown().await;
}

fn seated<'a>(
    seats: &'a mut HashMap<SessionKey, Seat>,
    tasks: &mut JoinSet<()>,
    shell: &Arc<Shell>,
    key: SessionKey,
) -> &'a mut Seat {
    seats.entry(key).or_insert_with_key(|key| {
        let (words, mailbox) = mpsc::channel(SESSION_DEPTH);
        let (show, view) = watch::channel(View::default());
        let missed = Arc::new(AtomicBool::new(false));
        tasks.spawn(session::run(key.clone(), shell.clone(), mailbox, missed.clone(), show));
        Seat { words, missed, view }
    })
}
