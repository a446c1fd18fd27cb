//! One conversation: its queue, its turn, and what can be seen of it.
//!
//! The task owns its queue and its turn; nobody else touches them. Everything it knows is in the store as
//! well: a session that starts, after a crash or after a quiet hour, reads its open turn and its waiting
//! messages and goes on (`recover.rs`). There is no other way to start.
//!
//! `arrive.rs` waits for their files, `admit.rs` lets messages in, `begin.rs` starts turns, `work.rs` runs what they ask
//! for (`prepare.rs`: the question to the model, `relieve.rs`: making room for it), `command.rs` obeys, `consent.rs` hears answers, `hear.rs` tells hooks, `say.rs` answers
//! without a turn, `show.rs` lets others watch.

mod admit;
mod arrive;
mod begin;
mod command;
mod compress;
mod consent;
mod hear;
mod memory;
mod platform;
mod prepare;
mod recover;
mod relieve;
mod restart;
mod say;
mod sethome;
mod show;
mod stall;
mod words;
mod work;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use petasos_agent::outcome::Room;
use petasos_agent::{Alive, Brain, Role, ToolSpec, Tools};
use petasos_core::admission::Arrival;
use petasos_core::command::{self as slash, Parsed};
use petasos_core::journal::{Outcome, Write};
use petasos_core::message::ChatType;
use petasos_core::session::platform_of;
use petasos_core::transcript::EffectState;
use petasos_core::turn::{self, Decision, Effect, Event, Limits, Phase, Progress, ToolEnd, Turn};
use petasos_core::{Fault, Inbound, InboxId, Millis, Platform, SessionId, SessionKey, Source, TurnId};
use petasos_store::Pending;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::Instant;

use crate::approvals::Approvals;
use crate::channels::Channels;
use crate::commit::Commit;
use crate::completions::Bell;
use crate::config::Settings;
use crate::counts::Counts;
use crate::db::Db;
use crate::delegation::{Delegation, Place};
use crate::deliver::Deliver;
use crate::doze::Traffic;
use crate::fetch::Fetcher;
use crate::gate::{Gate, Slot};
use crate::homes::Homes;
use crate::hooks::{self, Hooks};
use crate::lifetime::Lifetime;
use crate::marks::Marks;
use crate::questions::Questions;
use crate::router::{Router, Word};
use crate::runs::Desk;
use crate::stopper::Stopper;
use crate::supervise::LinkHandle;
use crate::view::View;
use crate::{Error, clock};
use admit::Promise;
use arrive::Arriving;
use relieve::Relieved;
use work::{Report, Work};

/// What every session needs of the world.
#[derive(Debug)]
pub(crate) struct Shell {
    pub(crate) db: Db,
    pub(crate) brain: Arc<Brain>,
    pub(crate) tools: Tools,
    /// For those who work for others.
    pub(crate) leaf: Tools,
    pub(crate) orchestrator: Tools,
    /// On these platforms there are fewer.
    pub(crate) narrowed: BTreeMap<Platform, Tools>,
    pub(crate) approvals: Arc<Approvals>,
    pub(crate) questions: Questions,
    pub(crate) delegation: Delegation,
    pub(crate) channels: Arc<Channels>,
    pub(crate) deliver: Deliver,
    pub(crate) marks: Marks,
    pub(crate) router: Router,
    pub(crate) settings: Settings,
    pub(crate) lifetime: Lifetime,
    pub(crate) homes: Arc<Homes>,
    pub(crate) hooks: Hooks,
    pub(crate) home: PathBuf,
    pub(crate) fetcher: Fetcher,
    pub(crate) stopper: Stopper,
    pub(crate) gate: Gate,
    /// When somebody wrote to us last.
    pub(crate) traffic: Traffic,
    /// Every link, once they are there.
    pub(crate) links: OnceLock<Vec<LinkHandle>>,
    /// Messages accepted before this were promised an answer by the process before us.
    pub(crate) started_at: Millis,
    /// What `.restart_failure_counts` has to follow.
    pub(crate) counts: Counts,
    /// What programs asked for.
    pub(crate) runs: Desk,
    /// Turns that the process before us left open on purpose: they did not take it down.
    pub(crate) left_open: HashSet<TurnId>,
    /// Rung when a turn has ended.
    pub(crate) ended: Bell,
    /// Model calls that may be under way at the same time.
    pub(crate) calls: Semaphore,
}

impl Shell {
    /// The tools of a conversation; those who work for another one have their own. Asked of its key, which the next process
    /// knows, too.
    pub(crate) fn tools_of(&self, key: &SessionKey) -> &Tools {
        match Place::of(key).map(|place| place.role) {
            Some(Role::Leaf) => &self.leaf,
            Some(Role::Orchestrator) => &self.orchestrator,
            None => platform_of(key).and_then(|platform| self.narrowed.get(&platform)).unwrap_or(&self.tools),
        }
    }

    /// How long this process has been at it.
    pub(crate) fn age(&self) -> Duration {
        clock::now().since(self.started_at)
    }
}

/// An idle session ends after this long.
const LINGER: Duration = Duration::from_secs(60);
/// One whose channel ends with the answer: whoever comes back may come days later.
const BRIEF_LINGER: Duration = Duration::from_secs(1);
/// How long to wait when the store refuses.
const STORE_RETRY: Duration = Duration::from_secs(1);
/// At most one acknowledgement per session in this time.
const ACK_EVERY: Duration = Duration::from_secs(30);

/// What a session is made from.
#[derive(Debug)]
pub(crate) struct Seed {
    pub(crate) key: SessionKey,
    pub(crate) shell: Arc<Shell>,
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
    let Seed { key, shell, words, missed, show, past } = seed;
    let session = Session {
        key,
        shell,
        words,
        missed,
        show: Arc::new(show),
        queue: VecDeque::new(),
        arriving: Arriving::default(),
        turn: None,
        author: None,
        asked: String::new(),
        answered: String::new(),
        slot: None,
        parked: None,
        barred: None,
        work: None,
        room: None,
        alive: Alive::default(),
        warned: false,
        compressing: None,
        steering: vec![],
        known_up_to: InboxId(0),
        acked_at: None,
        follow_at: None,
        offered: None,
        resumed: false,
        handling: None,
    };
    session.run(past).await
}

struct Session {
    key: SessionKey,
    shell: Arc<Shell>,
    words: mpsc::Receiver<Word>,
    missed: Arc<AtomicBool>,
    show: Arc<watch::Sender<View>>,
    /// Accepted messages that wait, oldest first.
    queue: VecDeque<Waiting>,
    /// Accepted messages whose files are on their way.
    arriving: Arriving,
    turn: Option<Turn>,
    /// Who asked for it, and where.
    author: Option<Source>,
    /// What was asked, and answered so far, as much as hooks are told.
    asked: String,
    answered: String,
    /// The place of the running turn among all that run.
    slot: Option<Slot>,
    /// The turn was found open and nobody has taken it up yet.
    parked: Option<Past>,
    /// No turn may start: wait for the gate to change.
    barred: Option<watch::Receiver<u64>>,
    /// The call or the tools under way. Dropping it ends them.
    work: Option<Work>,
    /// What the results of the model's last answer may still put before it.
    room: Option<Arc<Room>>,
    /// Signs of life of the running turn, and whether its author was told that there are none.
    alive: Alive,
    warned: bool,
    /// The `/compress` that the work belongs to; no turn runs meanwhile.
    compressing: Option<Pending>,
    /// Messages that go to the model with the next tool result.
    steering: Vec<Pending>,
    /// Messages up to this one were read from the inbox, so a word about them is old news.
    known_up_to: InboxId,
    acked_at: Option<Millis>,
    /// When the chat begins to follow the running turn; most turns are over by then.
    follow_at: Option<Instant>,
    /// The tools that the running turn is offered, from its first question to its last.
    offered: Option<Arc<Vec<ToolSpec>>>,
    /// The running turn takes up what was interrupted.
    resumed: bool,
    /// The message being dealt with. If the store refuses it for good, it is given up, not tried for ever.
    handling: Option<Pending>,
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
        let idle = self.turn.is_none()
            && self.queue.is_empty()
            && self.arriving.is_empty()
            && self.compressing.is_none();
        let wait = ready.unwrap_or_else(|| Instant::now() + self.linger());
        let stalls_at = self.stalls_at();
        tokio::select! {
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
            inbound = arrive::fetched(&mut self.arriving) => Box::pin(self.files_are_here(inbound)).await?,
            report = work::next(&mut self.work) => Box::pin(self.report(report)).await?,
            () = at(self.follow_at) => self.follow().await,
            () = at(stalls_at) => Box::pin(self.stalled()).await?,
            () = changed(&mut self.barred) => self.barred = None,
            () = tokio::time::sleep_until(wait), if self.turn.is_none() => {
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

    /// Ends the running turn. `false`: there was none.
    async fn interrupt(&mut self) -> Result<bool, Ended> {
        if self.turn.is_none() {
            return self.stop_compressing().await;
        }
        self.work = None;
        let unstarted = self.unanswered().await?;
        let shown = self.shown();
        self.feed(Event::Interrupted { shown, unstarted }).await?;
        Ok(true)
    }

    /// Ends what one message asks for, whether it works or waits. `false`: neither.
    async fn cancel(&mut self, inbox: InboxId) -> Result<bool, Ended> {
        if self.turn.as_ref().is_some_and(|turn| turn.id == inbox.into()) {
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
            self.shell.runs.ended(run);
        }
    }

    /// How long it is worth waiting for the next message.
    fn linger(&self) -> Duration {
        let stays = |author: &Source| self.shell.channels.capabilities(author.platform).async_delivery;
        if self.author.as_ref().is_none_or(stays) { LINGER } else { BRIEF_LINGER }
    }

    async fn report(&mut self, report: Report) -> Result<(), Ended> {
        self.sign_of_life();
        match report {
            Report::Answered { attempt, answer } => {
                self.work = None;
                self.room = None;
                self.answered = hooks::shown(&answer.text).to_owned();
                self.feed(Event::Answered { attempt, answer }).await
            }
            Report::Relieved { attempt, relieved } => {
                self.work = None;
                let Relieved { relief, bill, .. } = relieved;
                self.feed(Event::Relieved { attempt, relief, bill }).await
            }
            Report::Exhausted { attempt } => self.start_over(attempt).await,
            Report::Compressed { session, relieved } => self.compressed(session, relieved).await,
            Report::Failed { notice, .. } if self.compressing.is_some() => self.not_compressed(notice).await,
            Report::Failed { attempt, notice } => {
                self.work = None;
                self.answered = hooks::shown(&notice).to_owned();
                self.feed(Event::CallFailed { attempt, notice }).await
            }
            Report::ToolEnded { attempt, call, end } => {
                let steering = if self.is_last(&call) { std::mem::take(&mut self.steering) } else { vec![] };
                let steer =
                    steering.iter().map(|pending| (pending.id, begin::said(&pending.inbound))).collect();
                self.feed(Event::ToolEnded { attempt, call, end, steer }).await
            }
            Report::ToolsEnded => {
                // All results are in, so what comes next has replaced this work by now.
                Ok(())
            }
            Report::Panicked { attempt, open } => {
                tracing::error!("the work of a turn panicked");
                self.work = None;
                if self.compressing.is_some() {
                    return self.not_compressed(words::PANICKED.into()).await;
                }
                if open.is_empty() {
                    return self.feed(Event::CallFailed { attempt, notice: words::PANICKED.into() }).await;
                }
                for call in open {
                    let (content, effect) = (words::TOOL_PANICKED.into(), EffectState::Unknown);
                    let end = ToolEnd { content, effect, progress: Progress::Failed };
                    self.feed(Event::ToolEnded { attempt, call, end, steer: vec![] }).await?;
                }
                Ok(())
            }
        }
    }

    /// Whether the model is asked again as soon as this call has its result.
    fn is_last(&self, call: &String) -> bool {
        match self.turn.as_ref().map(|turn| &turn.phase) {
            Some(Phase::Acting { open, .. }) => open.as_slice() == std::slice::from_ref(call),
            Some(Phase::Thinking | Phase::Over) | None => false,
        }
    }

    fn sign_of_life(&mut self) {
        self.alive.sign();
        self.warned = false;
    }

    fn limits(&self) -> Limits {
        let limits = self.shell.settings.limits;
        match Place::of(&self.key) {
            Some(_) => Limits { steps: self.shell.settings.delegation.steps, ..limits },
            None => limits,
        }
    }

    /// Feeds the turn: what it decides is committed, then started.
    async fn feed(&mut self, event: Event) -> Result<(), Ended> {
        let Some(turn) = self.turn.take() else { return Ok(()) };
        let (turn, Decision { writes, effects }) = turn::step(turn, self.limits(), clock::now(), event);
        self.keep(&turn.session, writes).await?;
        self.turn = Some(turn);
        self.start(effects).await;
        Ok(())
    }

    /// Commits, and waits for a store that refuses for the moment.
    async fn keep(&mut self, session: &SessionId, writes: Vec<Write>) -> Result<(), Ended> {
        if writes.is_empty() {
            return Ok(());
        }
        loop {
            let (these, session, now) = (writes.clone(), session.clone(), clock::now());
            let kept = self.shell.db.write(Commit::Step, move |tx| {
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
    async fn start(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::CallModel { attempt, closing } => self.call_model(attempt, closing),
                Effect::RunTools { attempt, calls } => {
                    self.hooks_hear_a_step(&calls);
                    self.run_tools(attempt, calls);
                }
                Effect::Deliver { lane } => self.shell.deliver.due(lane).await,
                Effect::Finished { outcome } => self.finished(outcome),
            }
        }
    }

    fn finished(&mut self, outcome: Outcome) {
        self.hooks_hear_the_end(outcome);
        if let Some(turn) = self.turn.take() {
            self.settled(turn.route.reply_to.as_ref());
            self.shell.marks.ended(&turn.route, outcome);
            let took = clock::now().since(turn.started_at).as_millis();
            tracing::info!(turn = %turn.id, outcome = outcome.as_str(), steps = turn.step, ms = took, "turn ended");
        }
        if outcome == Outcome::Answered {
            self.shell.counts.may_have_changed();
        }
        self.shell.ended.ring();
        self.work = None;
        self.room = None;
        self.slot = None;
        self.parked = None;
        self.follow_at = None;
        self.offered = None;
        self.resumed = false;
        // Nothing took these along: they are the next turn.
        for pending in std::mem::take(&mut self.steering) {
            self.enqueue(pending, Arrival::Text, Promise::Given);
        }
        self.show.send_modify(|view| view.live = None);
    }

    /// The store refused. Waits if time may help; otherwise the session ends and says so.
    async fn refused(&self, error: &Error) -> Result<(), Ended> {
        let fault = match error {
            Error::Stopping => return Err(Ended::Stopping),
            Error::Store(error) => error.fault(),
            Error::Io(_) | Error::NotFound(_) | Error::Unbuilt(_) | Error::NoHome(_) | Error::Closed(_) => {
                Fault::Later { after: None }
            }
        };
        match fault {
            Fault::Later { .. } | Fault::Fatal => {
                tokio::time::sleep(STORE_RETRY).await;
                Ok(())
            }
            Fault::Refused => {
                tracing::error!(key = %self.key, %error, "the store refused a decision; this session ends");
                Err(Ended::Refused)
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
        // The gate lives as long as the shell.
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
