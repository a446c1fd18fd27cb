//! One conversation: its queue, its turn, and what can be seen of it.
//!
//! The task owns its queue and its turn; nobody else touches them. Everything it knows is in the store as
//! well: a session that starts, after a crash or after a quiet hour, reads its open turn and its waiting
//! messages and goes on. There is no other way to start.

mod begin;
mod command;
mod words;
mod work;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use petasos_agent::{Brain, Tools};
use petasos_core::admission::{Ack, Activity, Admission, Arrival, admit};
use petasos_core::command::{self as slash, Parsed};
use petasos_core::journal::{Outcome, Write};
use petasos_core::message::Delivery;
use petasos_core::outbox::{Draft, Kind};
use petasos_core::transcript::{EffectState, Message};
use petasos_core::turn::{self, Decision, Effect, Event, Phase, Turn};
use petasos_core::{Fault, InboxId, Millis, SessionId, SessionKey};
use petasos_store::Pending;
use tokio::sync::{mpsc, watch};

use crate::channels::Channels;
use crate::config::Settings;
use crate::db::Db;
use crate::deliver::{Deliver, Following};
use crate::lifecycle::Stopper;
use crate::router::{Router, Word};
use crate::view::{Live, View};
use crate::{Error, clock};
use work::{Report, Work};

/// What every session needs of the world.
#[derive(Debug)]
pub(crate) struct Shell {
    pub(crate) db: Db,
    pub(crate) brain: Brain,
    pub(crate) tools: Tools,
    pub(crate) channels: Arc<Channels>,
    pub(crate) deliver: Deliver,
    pub(crate) router: Router,
    pub(crate) settings: Settings,
    pub(crate) stopper: Stopper,
    /// Whether the process before us stopped on purpose.
    pub(crate) clean_start: bool,
}

/// An idle session ends after this long.
const LINGER: Duration = Duration::from_secs(60);
/// How long to wait when the store refuses.
const STORE_RETRY: Duration = Duration::from_secs(1);
/// How long the second half of a split message may take.
const SPLIT_WAIT: Duration = Duration::from_secs(1);
/// At most one acknowledgement per session in this time.
const ACK_EVERY: Duration = Duration::from_secs(30);

pub(crate) async fn run(
    key: SessionKey,
    shell: Arc<Shell>,
    words: mpsc::Receiver<Word>,
    missed: Arc<AtomicBool>,
    show: watch::Sender<View>,
) {
    let session = Session {
        key,
        shell,
        words,
        missed,
        show: Arc::new(show),
        queue: VecDeque::new(),
        turn: None,
        work: None,
        steering: vec![],
        known_up_to: InboxId(0),
        acked_at: None,
    };
    session.run().await;
}

struct Session {
    key: SessionKey,
    shell: Arc<Shell>,
    words: mpsc::Receiver<Word>,
    /// Set when a word did not fit into the mailbox: the inbox has more than we were told.
    missed: Arc<AtomicBool>,
    show: Arc<watch::Sender<View>>,
    /// Accepted messages that wait, oldest first.
    queue: VecDeque<Waiting>,
    turn: Option<Turn>,
    /// The call or the tools under way. Dropping it ends them.
    work: Option<Work>,
    /// Messages that go to the model with the next tool result.
    steering: Vec<Pending>,
    /// Messages up to this one were read from the inbox, so a word about them is old news.
    known_up_to: InboxId,
    acked_at: Option<Millis>,
}

/// An accepted message that waits for its turn.
struct Waiting {
    pending: Pending,
    /// It wants a turn of its own (`/queue`, a message of the gateway's).
    alone: bool,
}

/// Why a session ends early: the store refuses for good, or we stop.
struct Ended;

impl Session {
    async fn run(mut self) {
        if self.recover().await.is_err() {
            return;
        }
        while let Ok(true) = self.once().await {}
    }

    /// Waits for one thing and deals with it. `false`: nothing left to do here.
    async fn once(&mut self) -> Result<bool, Ended> {
        if self.missed.swap(false, Ordering::AcqRel) {
            self.reload().await?;
        }
        let ready_at = self.ready_at();
        let now = clock::now();
        if ready_at.is_some_and(|at| at <= now) {
            self.begin().await?;
            return Ok(true);
        }
        let idle = self.turn.is_none() && self.queue.is_empty();
        let wait = ready_at.unwrap_or(now.after(LINGER));
        tokio::select! {
            word = self.words.recv() => match word {
                Some(Word::Arrived(pending)) => self.arrived(*pending).await?,
                Some(Word::StopTurn(reply)) => {
                    let stopped = self.interrupt().await?;
                    let _ = reply.send(stopped);
                }
                None => return Ok(false),
            },
            report = work::next(&mut self.work) => self.report(report).await?,
            () = clock::sleep_until(wait), if self.turn.is_none() => {
                if idle && self.show.receiver_count() <= 1 {
                    self.leave().await;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Reads what the store knows of us and goes on from there.
    async fn recover(&mut self) -> Result<(), Ended> {
        self.reload().await?;
        let found = loop {
            let key = self.key.clone();
            let read = self.shell.db.read(move |reader| {
                let session = reader.entry(&key)?.map(|entry| entry.session_id);
                let row = session.as_ref().map_or(Ok(None), |session| reader.last_row(session))?;
                Ok((reader.open_turn_of(&key)?, session, row))
            });
            match read.await {
                Ok(found) => break found,
                Err(error) => self.refused(&error).await?,
            }
        };
        let (open, session, row) = found;
        self.show.send_modify(|view| {
            view.session = session;
            view.rows = row;
            view.ready = open.is_none();
        });
        let Some(turn) = open else { return Ok(()) };
        tracing::info!(turn = %turn.id, clean = self.shell.clean_start, "resuming an interrupted turn");
        let repeatable = match &turn.phase {
            Phase::Acting { calls, .. } => {
                let harmless = calls.iter().filter(|call| self.shell.tools.read_only(&call.name));
                harmless.map(|call| call.id.clone()).collect()
            }
            Phase::Thinking | Phase::Over => vec![],
        };
        self.turn = Some(turn);
        self.go_live().await;
        self.feed(Event::Recovered { clean: self.shell.clean_start, repeatable }).await
    }

    async fn reload(&mut self) -> Result<(), Ended> {
        let queued = loop {
            let key = self.key.clone();
            match self.shell.db.read(move |reader| Ok((reader.queued(&key)?, reader.newest()?))).await {
                Ok((queued, newest)) => {
                    self.known_up_to = newest;
                    break queued;
                }
                Err(error) => self.refused(&error).await?,
            }
        };
        self.queue.clear();
        // Commands that were waiting are obeyed now, not fed to the model.
        let held = |id: InboxId| self.steering.iter().any(|pending| pending.id == id);
        let queued: Vec<_> = queued.into_iter().filter(|pending| !held(pending.id)).collect();
        let (commands, texts): (Vec<_>, Vec<_>) = queued.into_iter().partition(is_command);
        for pending in texts {
            let alone = pending.inbound.internal;
            self.enqueue(pending, alone);
        }
        for command in commands {
            self.command(command).await?;
        }
        Ok(())
    }

    /// A message that is on disk.
    async fn arrived(&mut self, pending: Pending) -> Result<(), Ended> {
        if pending.id <= self.known_up_to {
            return Ok(());
        }
        if is_command(&pending) {
            return self.command(pending).await;
        }
        let arrival = if pending.inbound.internal { Arrival::Internal } else { Arrival::Text };
        self.admit(pending, arrival).await
    }

    async fn admit(&mut self, pending: Pending, arrival: Arrival) -> Result<(), Ended> {
        let activity = match self.turn.as_ref().map(|turn| &turn.phase) {
            None => Activity::Idle,
            Some(_) if self.work.is_none() => Activity::Starting,
            Some(Phase::Acting { .. }) => Activity::Acting,
            Some(Phase::Thinking | Phase::Over) => Activity::Thinking,
        };
        let waiting = self.queue.len() + self.steering.len();
        let admission = admit(self.shell.settings.busy, activity, arrival, waiting);
        let alone = arrival != Arrival::Text;
        match admission {
            Admission::Start | Admission::Wait(_) => self.enqueue(pending.clone(), alone),
            Admission::Interrupt(_) => {
                self.enqueue(pending.clone(), alone);
                self.interrupt().await?;
            }
            Admission::Steer(_) => self.steering.push(pending.clone()),
            Admission::Refuse => {
                return self.answer(&pending, words::QUEUE_FULL.into(), Outcome::Refused).await;
            }
        }
        match admission {
            Admission::Wait(ack) | Admission::Interrupt(ack) | Admission::Steer(ack) => {
                self.acknowledge(&pending, ack, arrival).await
            }
            Admission::Start | Admission::Refuse => Ok(()),
        }
    }

    fn enqueue(&mut self, pending: Pending, alone: bool) {
        let at = self.queue.partition_point(|waiting| waiting.pending.id < pending.id);
        self.queue.insert(at, Waiting { pending, alone });
        self.publish_queue();
    }

    /// Tells the author what has become of a message. True by the time it is said: the message is on disk.
    async fn acknowledge(&mut self, pending: &Pending, ack: Ack, arrival: Arrival) -> Result<(), Ended> {
        let now = clock::now();
        let Some(text) = ack.text() else { return Ok(()) };
        // Whoever asked for the queue wants to hear that it worked, every time.
        let recent = self.acked_at.is_some_and(|at| now.since(at) < ACK_EVERY) && arrival != Arrival::Queued;
        if !self.shell.settings.busy_ack || recent {
            return Ok(());
        }
        self.acked_at = Some(now);
        let text = match arrival {
            Arrival::Queued => format!("{text} ({} queued)", self.queue.len()),
            Arrival::Text | Arrival::Internal => text.to_owned(),
        };
        self.notice(pending, text, vec![]).await
    }

    /// Ends the running turn. `false`: there was none.
    async fn interrupt(&mut self) -> Result<bool, Ended> {
        if self.turn.is_none() {
            return Ok(false);
        }
        self.work = None;
        let shown = self.show.borrow().live.as_ref().map(|live| live.text.clone()).unwrap_or_default();
        self.feed(Event::Interrupted { shown }).await?;
        Ok(true)
    }

    async fn report(&mut self, report: Report) -> Result<(), Ended> {
        match report {
            Report::Answered { attempt, answer } => {
                self.work = None;
                self.feed(Event::Answered { attempt, answer }).await
            }
            Report::Failed { attempt, notice } => {
                self.work = None;
                self.feed(Event::CallFailed { attempt, notice }).await
            }
            Report::ToolEnded { attempt, call, content, effect } => {
                let steering = std::mem::take(&mut self.steering);
                let steer =
                    steering.iter().map(|pending| (pending.id, begin::said(&pending.inbound))).collect();
                self.feed(Event::ToolEnded { attempt, call, content, effect, steer }).await
            }
            Report::ToolsEnded => {
                // All results are in, so the next model call has replaced this work by now.
                Ok(())
            }
            Report::Panicked { attempt, open } => {
                tracing::error!("the work of a turn panicked");
                self.work = None;
                if open.is_empty() {
                    return self.feed(Event::CallFailed { attempt, notice: words::PANICKED.into() }).await;
                }
                for call in open {
                    let (content, effect) = (words::TOOL_PANICKED.into(), EffectState::Unknown);
                    self.feed(Event::ToolEnded { attempt, call, content, effect, steer: vec![] }).await?;
                }
                Ok(())
            }
        }
    }

    /// Feeds the turn: what it decides is committed, then started.
    async fn feed(&mut self, event: Event) -> Result<(), Ended> {
        let Some(turn) = self.turn.take() else { return Ok(()) };
        let (turn, Decision { writes, effects }) =
            turn::step(turn, self.shell.settings.limits, clock::now(), event);
        self.keep(&turn.session, writes).await?;
        self.turn = Some(turn);
        self.start(effects).await
    }

    /// Commits, and waits for a store that refuses for the moment.
    async fn keep(&mut self, session: &SessionId, writes: Vec<Write>) -> Result<(), Ended> {
        if writes.is_empty() {
            return Ok(());
        }
        loop {
            let (these, session, now) = (writes.clone(), session.clone(), clock::now());
            let kept = self.shell.db.write(move |tx| {
                tx.apply(&these, now)?;
                tx.last_row(&session)
            });
            match kept.await {
                Ok(row) => {
                    self.show.send_modify(|view| view.rows = row);
                    return Ok(());
                }
                Err(error) => self.refused(&error).await?,
            }
        }
    }

    /// After the commit.
    async fn start(&mut self, effects: Vec<Effect>) -> Result<(), Ended> {
        for effect in effects {
            match effect {
                Effect::CallModel { attempt, last } => self.call_model(attempt, last),
                Effect::RunTools { attempt, calls } => self.run_tools(attempt, calls),
                Effect::Deliver { lane } => self.shell.deliver.due(lane).await,
                Effect::Finished { outcome } => self.finished(outcome),
            }
        }
        Ok(())
    }

    fn finished(&mut self, outcome: Outcome) {
        if let Some(turn) = self.turn.take() {
            let took = clock::now().since(turn.started_at).as_millis();
            tracing::info!(turn = %turn.id, outcome = outcome.as_str(), steps = turn.step, ms = took, "turn ended");
        }
        self.work = None;
        // Nothing took these along: they are the next turn.
        for pending in std::mem::take(&mut self.steering) {
            self.enqueue(pending, false);
        }
        self.show.send_modify(|view| view.live = None);
    }

    /// A turn has begun: let it be seen, and let its chat follow.
    async fn go_live(&mut self) {
        let Some(turn) = &self.turn else { return };
        let live = Live {
            turn: turn.id,
            step: turn.step,
            attempt: turn.attempt,
            text: String::new(),
            tools: vec![],
        };
        let session = turn.session.clone();
        self.show.send_modify(|view| {
            view.ready = true;
            view.session = Some(session);
            view.live = Some(live);
        });
        if turn.route.delivery == Delivery::Push {
            let (gap, view) = (self.shell.settings.streaming.gap, self.show.subscribe());
            let following =
                Following::new(turn.id, turn.key.clone(), turn.route.clone(), view, gap, clock::now());
            self.shell.deliver.follow(turn.route.lane(), following).await;
        }
    }

    fn publish_queue(&self) {
        self.show.send_if_modified(|view| {
            let changed = view.queued != self.queue.len();
            view.queued = self.queue.len();
            changed
        });
    }

    /// A text from the gateway to the author of `pending`, together with further writes.
    async fn notice(&mut self, pending: &Pending, text: String, mut writes: Vec<Write>) -> Result<(), Ended> {
        let route = self.shell.channels.way_back(&pending.inbound.source);
        let session = self.session_for(pending).await?;
        let lane = route.lane();
        let pushed = route.delivery == Delivery::Push;
        if pushed {
            let session_key = Some(self.key.clone());
            writes.push(Write::Owe(Draft {
                route,
                session_key,
                turn: None,
                kind: Kind::Notice,
                text,
                buttons: vec![],
            }));
        } else {
            writes.push(Write::Append {
                session: session.clone(),
                message: Message::notice(text, clock::now()),
            });
        }
        self.keep(&session, writes).await?;
        if pushed {
            self.shell.deliver.due(lane).await;
        }
        Ok(())
    }

    /// Answers a message without a turn, and settles it.
    async fn answer(&mut self, pending: &Pending, text: String, outcome: Outcome) -> Result<(), Ended> {
        let settle = Write::SettleInbox { inbox: vec![pending.id], outcome, at: clock::now() };
        self.notice(pending, text, vec![settle]).await
    }

    /// The store refused. Waits if time may help; otherwise the session ends and says so.
    async fn refused(&self, error: &Error) -> Result<(), Ended> {
        let fault = match error {
            Error::Stopping => return Err(Ended),
            Error::Store(error) => error.fault(),
            Error::Io(_) | Error::NotFound(_) => Fault::Later { after: None },
        };
        match fault {
            Fault::Later { .. } | Fault::Fatal => {
                tokio::time::sleep(STORE_RETRY).await;
                Ok(())
            }
            Fault::Refused => {
                tracing::error!(key = %self.key, %error, "the store refused a decision; this session ends");
                Err(Ended)
            }
        }
    }

    /// Goes off the map, handing back what came in meanwhile.
    async fn leave(&mut self) {
        self.shell.router.leave(self.key.clone()).await;
        let mut more = self.missed.load(Ordering::Acquire);
        while let Ok(word) = self.words.try_recv() {
            more = true;
            drop(word);
        }
        if more {
            // Everything is in the inbox; the session that starts next reads it there.
            self.shell.router.wake(self.key.clone()).await;
        }
    }
}

fn is_command(pending: &Pending) -> bool {
    !pending.inbound.internal && slash::parse(&pending.inbound.text) != Parsed::Text
}
