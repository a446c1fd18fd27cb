//! Finds a session's task, or starts it.
//!
//! Owns the map from key to mailbox. A session that has nothing to do leaves after a while; its state is in
//! the store, so the next message simply starts it again.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use petasos_core::{InboxId, SessionKey};
use petasos_store::Pending;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::sessions::view::View;
use crate::sessions::{self, Fate, Handles, Past, Seed};

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
    /// There may be messages that it has not heard of.
    Wake {
        key: SessionKey,
    },
    /// What was interrupted may go on.
    Resume {
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
    Cancel {
        key: SessionKey,
        inbox: InboxId,
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
    /// Look into the inbox.
    Look,
    /// Go on with the turn that was found open.
    Resume,
    StopTurn(oneshot::Sender<bool>),
    /// End what this message asks for.
    Cancel(InboxId, oneshot::Sender<bool>),
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

    pub(crate) async fn resume(&self, key: SessionKey) {
        self.ask(Ask::Resume { key }).await;
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

    /// Whether the message was still worked on, or waited.
    pub(crate) async fn cancel(&self, key: SessionKey, inbox: InboxId) -> bool {
        let (reply, answer) = oneshot::channel();
        self.ask(Ask::Cancel { key, inbox, reply }).await;
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
pub(crate) async fn run(handles: Arc<Handles>, mut asks: Asks) {
    let tasks = JoinSet::new();
    let mut desk = Desk { handles, seats: HashMap::new(), tasks, failures: HashMap::new() };
    loop {
        petasos_runtime::select! {
            ask = asks.0.recv() => match ask {
                Some(ask) => desk.hear(ask),
                None => break,
            },
            Some(ended) = desk.tasks.join_next(), if !desk.tasks.is_empty() => desk.ended(ended.ok()),
            () = desk.handles.lifecycle.stopper.stopped() => break,
        }
    }
    desk.tasks.shutdown().await;
}

struct Desk {
    handles: Arc<Handles>,
    seats: HashMap<SessionKey, Seat>,
    tasks: JoinSet<Ended>,
    /// Sessions that failed, how often in a row, and whether they rest.
    failures: HashMap<SessionKey, Failures>,
}

#[derive(Default)]
struct Failures {
    count: u32,
    resting: bool,
}

/// What a task of the desk reports at its end.
enum Ended {
    /// An errand.
    Done,
    Left(SessionKey),
    /// Panicked, or gave up: what it left open is taken up after a rest.
    Failed(SessionKey),
    /// The rest is over.
    Again(SessionKey),
    /// A turn that is to be stopped is open, or may be.
    Found(SessionKey, oneshot::Sender<bool>),
}

/// How long a session that failed rests.
const REST: Duration = Duration::from_secs(5);
/// Failures in a row after which the first message that waits is given up.
const HOPELESS: u32 = 3;

impl Desk {
    fn hear(&mut self, ask: Ask) {
        match ask {
            Ask::Arrived { key, pending } => self.tell(key, Word::Arrived(pending)),
            Ask::Wake { key } => self.tell(key, Word::Look),
            Ask::Resume { key } => self.resume(key),
            Ask::View { key, reply } => {
                let view = self.seat(key).view.clone();
                // Whoever asked may have gone; so may those below.
                let _ = reply.send(view);
            }
            Ask::StopTurn { key, reply } => match self.seats.get(&key) {
                Some(seat) if !seat.words.is_closed() => self.stop_turn(key, reply),
                Some(_) | None => self.find_turn(key, reply),
            },
            Ask::Cancel { key, inbox, reply } => {
                let words = self.seat(key).words.clone();
                self.tasks.spawn(petasos_runtime::scheduled(async move {
                    let _ = words.send(Word::Cancel(inbox, reply)).await;
                    Ended::Done
                }));
            }
            Ask::Leave { key, granted } => {
                self.seats.remove(&key);
                let _ = granted.send(());
            }
            Ask::Count { reply } => {
                let _ = reply.send(self.seats.len());
            }
        }
    }

    /// A session that is just starting reads its inbox anyway; one whose mailbox is full is told to; one that rests
    /// is left alone.
    fn tell(&mut self, key: SessionKey, word: Word) {
        if self.failures.get(&key).is_some_and(|failures| failures.resting) {
            return;
        }
        let fresh = self.seats.get(&key).is_none_or(|seat| seat.words.is_closed());
        let seat = self.seat(key);
        if !fresh && seat.words.try_send(word).is_err() {
            seat.missed.store(true, Ordering::Release);
        }
    }

    /// Unlike other words, this one is for a session that is just starting, too.
    fn resume(&mut self, key: SessionKey) {
        if self.failures.get(&key).is_some_and(|failures| failures.resting) {
            return;
        }
        let words = self.seat(key).words.clone();
        if words.try_send(Word::Resume).is_err() {
            self.tasks.spawn(petasos_runtime::scheduled(async move {
                // A session that ends meanwhile is started again by whoever has work for it.
                let _ = words.send(Word::Resume).await;
                Ended::Done
            }));
        }
    }

    fn stop_turn(&mut self, key: SessionKey, reply: oneshot::Sender<bool>) {
        let words = self.seat(key).words.clone();
        self.tasks.spawn(petasos_runtime::scheduled(async move {
            let _ = words.send(Word::StopTurn(reply)).await;
            Ended::Done
        }));
    }

    /// An open turn may wait without a session, such as a held suspect. Without one no session is started.
    fn find_turn(&mut self, key: SessionKey, reply: oneshot::Sender<bool>) {
        let handles = self.handles.clone();
        self.tasks.spawn(petasos_runtime::scheduled(async move {
            let wanted = key.clone();
            match handles.db.read(move |reader| reader.open_turn_of(&wanted)).await {
                Ok(None) => {
                    let _ = reply.send(false);
                    Ended::Done
                }
                // A store that cannot be read is the session's to deal with.
                Ok(Some(_)) | Err(_) => Ended::Found(key, reply),
            }
        }));
    }

    fn seat(&mut self, key: SessionKey) -> &mut Seat {
        if self.seats.get(&key).is_some_and(|seat| seat.words.is_closed()) {
            self.seats.remove(&key);
        }
        let past = match self.failures.get(&key).map(|failures| failures.count) {
            Some(HOPELESS..) => Past::Hopeless,
            Some(_) => Past::Failed,
            None => Past::Fresh,
        };
        let Self { handles, tasks, seats, .. } = self;
        seats.entry(key).or_insert_with_key(|key| {
            let (words, mailbox) = mpsc::channel(SESSION_DEPTH);
            let (show, view) = watch::channel(View::default());
            let missed = Arc::new(AtomicBool::new(false));
            let (key, handles) = (key.clone(), handles.clone());
            let seed = Seed { key: key.clone(), handles, words: mailbox, missed: missed.clone(), show, past };
            tasks.spawn(petasos_runtime::scheduled(async move {
                match AssertUnwindSafe(sessions::run(seed)).catch_unwind().await {
                    Ok(Fate::Left) => Ended::Left(key),
                    Ok(Fate::Failed) | Err(_) => Ended::Failed(key),
                }
            }));
            Seat { words, missed, view }
        })
    }

    fn ended(&mut self, ended: Option<Ended>) {
        match ended {
            Some(Ended::Done) | None => {}
            Some(Ended::Found(key, reply)) => self.stop_turn(key, reply),
            Some(Ended::Left(key)) => {
                self.failures.remove(&key);
            }
            Some(Ended::Failed(key)) => {
                tracing::error!(%key, "a session failed; it is taken up again in a moment");
                let failures = self.failures.entry(key.clone()).or_default();
                failures.count += 1;
                failures.resting = true;
                self.tasks.spawn(petasos_runtime::scheduled(async move {
                    tokio::time::sleep(REST).await;
                    Ended::Again(key)
                }));
            }
            Some(Ended::Again(key)) => {
                if let Some(failures) = self.failures.get_mut(&key) {
                    failures.resting = false;
                }
                self.resume(key);
            }
        }
    }
}
