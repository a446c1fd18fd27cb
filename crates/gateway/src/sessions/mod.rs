//! One conversation: its queue, its turn, and what can be seen of it.
//!
//! The task owns its queue and its turn; nobody else touches them. Everything it knows is in the store as
//! well: a session that starts, after a crash or after a quiet hour, reads its open turn and its waiting
//! messages and goes on (`recover.rs`). There is no other way to start.
//!
//! `messages` lets messages in and answers without a turn, `turn` starts turns and runs them, `commands` obeys slash
//! commands, `approvals` and `questions` wait for people, `errands` does what tools ask of the gateway. `router.rs` finds or
//! starts a session's task, `view.rs` is what others may watch, `handles.rs` is the world around all of it.

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
use petasos_core::journal::{Outcome, Write};
use petasos_core::message::ChatType;
use petasos_core::turn::{Event, Turn};
use petasos_core::{Inbound, InboxId, Millis, Platform, SessionKey};
use petasos_store::Pending;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::clock;
use crate::runtime::commit::Commit;
use crate::runtime::fault_injection::{Planted, planted};
use crate::sessions::router::Word;
use crate::sessions::view::View;
pub(crate) use handles::{Agent, Handles, People};
use messages::admit::Promise;
use messages::files::{self, Arriving};
use turn::Running;
use turn::work::{self, Work};

/// An idle session ends after this long.
const LINGER: Duration = Duration::from_secs(60);
/// One whose channel ends with the answer: whoever comes back may come days later, and thousands do not.
const BRIEF_LINGER: Duration = Duration::from_millis(100);
/// At most one acknowledgement per session in this time.
const ACK_EVERY: Duration = Duration::from_secs(30);

/// What a session is made from.
#[derive(Debug)]
pub(crate) struct Seed {
    pub(crate) key: SessionKey,
    pub(crate) handles: Arc<Handles>,
    pub(crate) words: mpsc::Receiver<Word>,
    /// Set when a word did not fit into the mailbox: the inbox has more than we were told.
    pub(crate) missed: Arc<AtomicBool>,
    pub(crate) show: watch::Sender<View>,
    pub(crate) past: Past,
}

/// How the task that had this session before us, in this process, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Past {
    /// Well, or there was none.
    Fresh,
    /// It failed.
    Failed,
    /// It failed several times in a row.
    Hopeless,
}

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Nothing left to do, or the gateway stops.
    Left,
    /// The store refused a decision: what is open must be taken up again.
    Failed,
}

pub(crate) async fn run(seed: Seed) -> Fate {
    let Seed { key, handles, words, missed, show, past } = seed;
    let session = Session {
        key,
        handles,
        words,
        missed,
        show: Arc::new(show),
        queue: VecDeque::new(),
        arriving: Arriving::default(),
        running: None,
        compressing: None,
        reader: None,
        barred: None,
        known_up_to: InboxId(0),
        acked_at: None,
        handling: None,
    };
    session.run(past).await
}

struct Session {
    key: SessionKey,
    handles: Arc<Handles>,
    words: mpsc::Receiver<Word>,
    missed: Arc<AtomicBool>,
    show: Arc<watch::Sender<View>>,
    /// Accepted messages that wait, oldest first.
    queue: VecDeque<Waiting>,
    /// Accepted messages whose files are on their way.
    arriving: Arriving,
    /// The open turn, and everything that lives as long as it does.
    running: Option<Running>,
    /// The `/compress` under way; no turn runs meanwhile.
    compressing: Option<Compressing>,
    /// Where the author of the last turn reads its answer.
    reader: Option<Platform>,
    /// No turn may start: wait for the gate to change.
    barred: Option<watch::Receiver<u64>>,
    /// Messages up to this one were read from the inbox, so a word about them is old news.
    known_up_to: InboxId,
    acked_at: Option<Millis>,
    /// The message being dealt with. If the store refuses it for good, it is given up, not tried for ever.
    handling: Option<Pending>,
}

/// A `/compress`, and the work on it.
struct Compressing {
    asked: Pending,
    work: Work,
}

/// An accepted message that waits for its turn.
struct Waiting {
    pending: Pending,
    /// It wants a turn of its own (`/queue`, a message of the gateway's).
    alone: bool,
    /// Its author counts on it: it is held, not turned away, while no turn may start.
    promised: bool,
    /// Its second half may still be on the way until then.
    ready: Instant,
}

/// Why a session ends early.
enum Ended {
    Stopping,
    /// The store will never take what we decided.
    Refused,
}

impl Session {
    async fn run(mut self, past: Past) -> Fate {
        let mut going = Box::pin(self.recover(past)).await.map(|()| true);
        while let Ok(true) = going {
            going = self.once().await;
        }
        match going {
            Ok(_) | Err(Ended::Stopping) => Fate::Left,
            Err(Ended::Refused) => {
                Box::pin(self.condemn()).await;
                Fate::Failed
            }
        }
    }

    /// Waits for one thing and deals with it. `false`: nothing left to do here. Whatever deals with it is boxed, so
    /// that a session that only waits, as most do, is small.
    async fn once(&mut self) -> Result<bool, Ended> {
        self.handling = None;
        if self.missed.swap(false, Ordering::AcqRel) {
            Box::pin(self.reload()).await?;
        }
        let ready = if self.barred.is_none() { self.ready() } else { None };
        if ready.is_some_and(|ready| ready <= Instant::now()) {
            Box::pin(self.begin()).await?;
            return Ok(true);
        }
        let resting = self.running.is_none();
        let idle = resting && self.queue.is_empty() && self.arriving.is_empty() && self.compressing.is_none();
        let wait = ready.unwrap_or_else(|| Instant::now() + self.linger());
        let stalls_at = self.stalls_at();
        let follow_at = self.running.as_ref().and_then(|running| running.follow_at);
        let work = match (&mut self.running, &mut self.compressing) {
            (Some(running), _) => running.work.as_mut(),
            (None, compressing) => compressing.as_mut().map(|it| &mut it.work),
        };
        petasos_runtime::select! {
            word = self.words.recv() => match word {
                Some(Word::Arrived(pending)) => Box::pin(self.arrived(*pending)).await?,
                Some(Word::Look) => Box::pin(self.reload()).await?,
                Some(Word::Resume) => Box::pin(self.take_up()).await?,
                Some(Word::Cancel(inbox, reply)) => {
                    let cancelled = Box::pin(self.cancel(inbox)).await?;
                    let _ = reply.send(cancelled);
                }
                Some(Word::StopTurn(reply)) => {
                    let stopped = Box::pin(self.interrupt()).await?;
                    // Whoever asked may have gone.
                    let _ = reply.send(stopped);
                }
                None => return Ok(false),
            },
            inbound = files::fetched(&mut self.arriving) => Box::pin(self.files_are_here(inbound)).await?,
            report = work::next(work) => Box::pin(self.report(report)).await?,
            () = at(follow_at) => self.follow().await,
            () = at(stalls_at) => Box::pin(self.stalled()).await?,
            () = changed(&mut self.barred) => {
                self.barred = None;
                if planted(Planted::ForgetsHeld) {
                    self.queue.clear();
                }
            }
            () = tokio::time::sleep_until(wait), if resting => {
                if idle && self.show.receiver_count() <= 1 {
                    self.leave().await;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// A message that is on disk.
    async fn arrived(&mut self, pending: Pending) -> Result<(), Ended> {
        if pending.id <= self.known_up_to {
            return Ok(());
        }
        self.take_in(pending).await
    }

    async fn take_in(&mut self, pending: Pending) -> Result<(), Ended> {
        if let Some(word) = self.as_word(&pending)
            && Box::pin(self.hear_word(&pending, word)).await?
        {
            return Ok(());
        }
        if is_command(&pending) {
            return Box::pin(self.command(pending)).await;
        }
        let arrival = if pending.inbound.internal { Arrival::Internal } else { Arrival::Text };
        if self.waits_for_files(&pending) {
            return self.await_files(pending, arrival, Promise::NotYet).await;
        }
        Box::pin(self.take_up()).await?;
        self.admit(pending, arrival).await
    }

    fn turn(&self) -> Option<&Turn> {
        self.running.as_ref().map(|running| &running.turn)
    }

    fn steering(&self) -> &[Pending] {
        self.running.as_ref().map(|running| running.steering.as_slice()).unwrap_or_default()
    }

    /// Ends the running turn. `false`: there was none.
    async fn interrupt(&mut self) -> Result<bool, Ended> {
        let Some(running) = &mut self.running else { return self.stop_compressing().await };
        running.work = None;
        let unstarted = self.unanswered().await?;
        let shown = self.shown();
        self.feed(Event::Interrupted { shown, unstarted }).await?;
        Ok(true)
    }

    /// Ends what one message asks for, whether it works or waits. `false`: neither.
    async fn cancel(&mut self, inbox: InboxId) -> Result<bool, Ended> {
        if self.turn().is_some_and(|turn| turn.id == inbox.into()) {
            return self.interrupt().await;
        }
        let Some(at) = self.queue.iter().position(|waiting| waiting.pending.id == inbox) else {
            return Ok(false);
        };
        self.change(Commit::Say, move |tx| {
            let at = clock::now();
            let outcome = Outcome::Cancelled;
            tx.apply(&[Write::SettleInbox { inbox: vec![inbox], outcome, at }], at)
        })
        .await?;
        if let Some(waiting) = self.queue.remove(at) {
            self.settled(waiting.pending.inbound.source.message_id.as_ref());
        }
        self.publish_queue();
        Ok(true)
    }

    /// After the commit: whoever waits for the end of a run learns of it.
    fn settled(&self, run: Option<&String>) {
        if let Some(run) = run {
            self.handles.runs.ended(run);
        }
    }

    /// How long it is worth waiting for the next message.
    fn linger(&self) -> Duration {
        let stays = |platform| self.handles.channels.capabilities(platform).async_delivery;
        if self.reader.is_none_or(stays) { LINGER } else { BRIEF_LINGER }
    }

    /// Goes off the map, handing back what came in meanwhile.
    async fn leave(&mut self) {
        self.handles.router.leave(self.key.clone()).await;
        let mut more = self.missed.load(Ordering::Acquire);
        while let Ok(word) = self.words.try_recv() {
            more = true;
            drop(word);
        }
        if more {
            // Everything is in the inbox; the session that starts next reads it there.
            self.handles.router.wake(self.key.clone()).await;
        }
    }
}

/// Resolves at that moment; never, if there is none.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Resolves at the next change; never, if nothing is watched.
async fn changed(news: &mut Option<watch::Receiver<u64>>) {
    match news {
        // The gate lives as long as its handles.
        Some(news) => drop(news.changed().await),
        None => std::future::pending().await,
    }
}

fn is_command(pending: &Pending) -> bool {
    !pending.inbound.internal && parsed(&pending.inbound) != Parsed::Text
}

/// Only people give commands: what a program sends is text, whatever it begins with.
fn parsed(inbound: &Inbound) -> Parsed {
    match inbound.source.chat_type {
        ChatType::Webhook => Parsed::Text,
        ChatType::Dm | ChatType::Group | ChatType::Channel | ChatType::Thread | ChatType::Forum => {
            slash::parse(&inbound.text)
        }
    }
}
