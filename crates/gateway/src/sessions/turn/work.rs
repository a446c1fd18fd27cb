//! What a turn has under way: one model call, or one group of tools.
//!
//! Runs in a task of its own, so that a panic is a report like any other. Dropping [`Work`] ends it. Text
//! goes straight into the view, guarded by turn and attempt; results come back as reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::{StreamExt as _, stream};
use petasos_agent::compact::Force;
use petasos_agent::outcome::{Room, present};
use petasos_agent::{Alive, Chunk, Class, Later, Person, SessionCtx, ToolSpec, repeated};
use petasos_approval::Offer;
use petasos_core::lifecycle::Doing;
use petasos_core::message::ChatType;
use petasos_core::session::Reader;
use petasos_core::transcript::{EffectState, ToolCall};
use petasos_core::turn::{Answer, Closing, Phase, Progress, ToolEnd, Turn};
use petasos_core::{Platform, SessionId, SessionKey, Source, TurnId};
use petasos_store::Pending;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::prepare::{Asked, prepare, prepare_quietly};
use crate::api::runs::Wish;
use crate::background::delegation::Place;
use crate::inbound::downloads;
#[cfg(feature = "simulation")]
use crate::runtime::fault_injection::{Planted, planted};
use crate::sessions::questions::{Asker, Scope};
use crate::sessions::turn::compaction::{self, Relieved, relieve};
use crate::sessions::turn::{Running, Standing, notices};
use crate::sessions::view::{Live, View};
use crate::sessions::{Compressing, Handles, Session};
use crate::{Error, clock};

#[derive(Debug)]
pub(in crate::sessions) struct Work {
    attempt: u32,
    /// Tools without a result yet; empty for a model call.
    open: Vec<String>,
    /// Room is being made in the conversation: whoever writes now waits.
    relieving: Arc<AtomicBool>,
    task: JoinHandle<()>,
    reports: mpsc::Receiver<Report>,
}

impl Drop for Work {
    fn drop(&mut self) {
        #[cfg(feature = "simulation")]
        if planted(Planted::HearsOldWork) && self.open.is_empty() {
            return abandoned::keep(&mut self.reports);
        }
        self.task.abort();
    }
}

#[derive(Debug)]
pub(in crate::sessions) enum Report {
    Answered {
        attempt: u32,
        answer: Answer,
    },
    /// The conversation was too long for the model; this makes room.
    Relieved {
        attempt: u32,
        relieved: Relieved,
    },
    /// It is too long, and nothing more can go.
    Exhausted {
        attempt: u32,
    },
    /// What `/compress` found; `None`: nothing can go.
    Compressed {
        session: SessionId,
        relieved: Option<Relieved>,
    },
    Failed {
        attempt: u32,
        notice: String,
    },
    ToolEnded {
        attempt: u32,
        call: String,
        end: ToolEnd,
    },
    ToolsEnded,
    Panicked {
        attempt: u32,
        open: Vec<String>,
    },
}

impl Work {
    pub(in crate::sessions) fn is_relieving(&self) -> bool {
        self.relieving.load(Ordering::Relaxed)
    }
}

/// The next thing the work has to say; never, if there is none.
pub(in crate::sessions) async fn next(work: Option<&mut Work>) -> Report {
    let Some(current) = work else {
        return std::future::pending().await;
    };
    match current.reports.recv().await {
        Some(Report::ToolEnded { attempt, call, end }) => {
            current.open.retain(|id| *id != call);
            Report::ToolEnded { attempt, call, end }
        }
        Some(report) => report,
        None => {
            let (attempt, open) = (current.attempt, std::mem::take(&mut current.open));
            Report::Panicked { attempt, open }
        }
    }
}

/// Reports that may wait for the session.
const REPORTS: usize = 8;
/// Tools that run at the same time.
const PARALLEL: usize = 8;

impl Running {
    fn doing(&self, doing: Doing) {
        if let Standing::AtWork(slot) = &self.standing {
            slot.doing(doing);
        }
    }
}

impl Session {
    pub(in crate::sessions) fn call_model(&mut self, attempt: u32, closing: Option<Closing>) {
        let Some(running) = &mut self.running else { return };
        let (handles, show, resumed) = (self.handles.clone(), self.show.clone(), running.resumed);
        running.doing(Doing::Thinking);
        running.sign_of_life();
        let (turn, alive) = (running.turn.clone(), running.alive.clone());
        let offered =
            running.offered.get_or_insert_with(|| handles.agent.tools_of(&turn.key).specs()).clone();
        let channel = running.author.as_ref().map_or(turn.route.platform, |author| author.platform);
        let later = Later::from(self.handles.channels.capabilities(channel).async_delivery);
        show.send_modify(|view| {
            view.live = Some(Live {
                turn: turn.id,
                step: turn.step,
                attempt,
                text: String::new(),
                tools: Vec::new(),
            });
        });
        let (reports, inbox) = mpsc::channel(REPORTS);
        let relieving = Arc::new(AtomicBool::new(false));
        let busy = relieving.clone();
        #[cfg(feature = "simulation")]
        abandoned::hear(attempt, &reports);
        let task = petasos_runtime::spawn(async move {
            let asked = Asked { attempt, closing, resumed, later };
            let report = think(&handles, &show, &turn, (asked, offered), &busy, &alive).await;
            // A session that has moved on does not want to know.
            let _ = reports.send(report).await;
        });
        running.work = Some(Work { attempt, open: vec![], relieving, task, reports: inbox });
    }

    pub(in crate::sessions) fn run_tools(&mut self, attempt: u32, calls: Vec<ToolCall>) {
        let Some(running) = &mut self.running else { return };
        running.doing(Doing::Acting(calls.iter().map(|call| call.name.clone()).collect()));
        running.sign_of_life();
        let turn = &running.turn;
        let (asking, author, alive) = (turn.clone(), running.author.clone(), running.alive.clone());
        // One that repeats a call of an earlier group is not run either.
        let all = match &turn.phase {
            Phase::Acting { calls, .. } => calls.clone(),
            Phase::Thinking | Phase::Over => calls.clone(),
        };
        let (handles, show, id) = (self.handles.clone(), self.show.clone(), turn.id);
        show.send_modify(|view| {
            let tools = calls.iter().map(|call| call.name.clone()).collect();
            view.live = Some(Live { turn: id, step: turn.step, attempt, text: String::new(), tools });
        });
        let open = calls.iter().map(|call| call.id.clone()).collect();
        let window = self.handles.agent.brain.window().context;
        let room = running.room.get_or_insert_with(|| Arc::new(Room::of(window))).clone();
        let (reports, inbox) = mpsc::channel(REPORTS);
        let task = petasos_runtime::spawn(async move {
            let ctx = context(&handles, &asking, author.as_ref(), &show, alive).await;
            // One that is alone minds its own time.
            let patience = handles.settings.tools_patience.filter(|_| calls.len() > 1);
            let until = patience.map(|patience| Instant::now() + patience);
            let each: Vec<_> =
                calls.iter().map(|call| run_one(&handles, &ctx, &room, &all, call, until)).collect();
            // At the same time, and heard of in their order.
            let mut ended = stream::iter(each).buffered(PARALLEL);
            while let Some((call, end)) = ended.next().await {
                // A session that has moved on does not want to know.
                let _ = reports.send(Report::ToolEnded { attempt, call, end }).await;
            }
            let _ = reports.send(Report::ToolsEnded).await;
        });
        let relieving = Arc::default();
        running.work = Some(Work { attempt, open, relieving, task, reports: inbox });
    }
}

impl Session {
    /// Sums the conversation up because somebody asked for it. The command stays in the inbox until that is done.
    pub(in crate::sessions) fn start_compressing(
        &mut self,
        asked: Pending,
        session: SessionId,
        focus: Option<String>,
    ) {
        let (handles, key) = (self.handles.clone(), self.key.clone());
        let (reports, inbox) = mpsc::channel(REPORTS);
        let task = petasos_runtime::spawn(async move {
            let report = match compress(&handles, key, session.clone(), focus.as_deref()).await {
                Ok(relieved) => Report::Compressed { session, relieved },
                Err(error) => Report::Failed { attempt: 0, notice: format!("⚠️ {error}") },
            };
            // A session that has moved on does not want to know.
            let _ = reports.send(report).await;
        });
        let relieving = Arc::new(AtomicBool::new(true));
        let work = Work { attempt: 0, open: vec![], relieving, task, reports: inbox };
        self.compressing = Some(Compressing { asked, work });
    }
}

async fn compress(
    handles: &Handles,
    key: SessionKey,
    session: SessionId,
    focus: Option<&str>,
) -> Result<Option<Relieved>, Error> {
    let prepared = prepare_quietly(handles, key, session).await?;
    // Closed only if the handles are gone, and then nobody is here to ask.
    let Ok(_permit) = handles.agent.calls.acquire().await else { return Ok(None) };
    Ok(relieve(handles, &prepared, Force::Yes, focus).await)
}

/// `all`: the calls of the same answer.
async fn run_one(
    handles: &Handles,
    ctx: &SessionCtx,
    room: &Room,
    all: &[ToolCall],
    call: &ToolCall,
    until: Option<Instant>,
) -> (String, ToolEnd) {
    let known = |content, progress| ToolEnd { content, effect: EffectState::Known, progress };
    let id = call.id.clone();
    if let Some(result) = repeated(all, call) {
        return (id, known(result.content, Progress::None));
    }
    let tools = handles.agent.tools_of(&ctx.key);
    let run = tools.run(ctx, call);
    let result = match until {
        Some(until) => tokio::time::timeout_at(until, run).await,
        None => Ok(run.await),
    };
    let Ok(result) = result else {
        let content = notices::TOO_SLOW.into();
        return (id, ToolEnd { content, effect: EffectState::Unknown, progress: Progress::Failed });
    };
    let progress = match result.failed {
        true => Progress::Failed,
        false if tools.read_only(&call.name) => Progress::Read,
        false => Progress::Changed,
    };
    let effect = if result.unknown { EffectState::Unknown } else { EffectState::Known };
    (id, ToolEnd { content: present(ctx, room, call, result.content).await, effect, progress })
}

/// Asks the model. A conversation that is too long for it is made shorter instead: the turn then asks again.
async fn think(
    handles: &Handles,
    show: &Arc<watch::Sender<View>>,
    turn: &Turn,
    (asked, offered): (Asked, Arc<[ToolSpec]>),
    relieving: &AtomicBool,
    alive: &Alive,
) -> Report {
    let (id, attempt) = (turn.id, asked.attempt);
    let failed = |notice: String| Report::Failed { attempt, notice };
    let mut prepared = match prepare(handles, turn, asked, offered).await {
        Ok(prepared) => prepared,
        Err(error) => {
            return failed(format!(
                "⚠️ I could not read our conversation ({error}). Your message is kept; send /retry to try again."
            ));
        }
    };
    // Closed only if the handles are gone, and then nobody is here to ask.
    let Ok(_permit) = handles.agent.calls.acquire().await else {
        return failed(notices::PANICKED.to_owned());
    };
    let may_relieve = handles.settings.compression.enabled && turn.relieved < handles.settings.limits.reliefs;
    let long =
        prepared.conversation().is_long(compaction::room(handles)) && prepared.pace.allows(clock::now());
    if may_relieve && long {
        relieving.store(true, Ordering::Relaxed);
        if let Some(relieved) = relieve(handles, &prepared, Force::No, None).await {
            return Report::Relieved { attempt, relieved };
        }
        relieving.store(false, Ordering::Relaxed);
    }
    prepared.speak();
    let mut on_chunk = |chunk| {
        alive.sign();
        show_chunk(show, id, attempt, chunk);
    };
    let failure = match handles.agent.brain.answer(&prepared.request, &mut on_chunk).await {
        Ok(answer) => return Report::Answered { attempt, answer: said(handles, &turn.key, answer) },
        Err(failure) => failure,
    };
    prepared.fall_silent();
    tracing::warn!(turn = %id, class = failure.class.as_str(), "the model could not answer");
    match failure.class {
        Class::ContextOverflow | Class::PayloadTooLarge if !handles.settings.compression.enabled => {
            failed(notices::TOO_LONG.into())
        }
        Class::ContextOverflow | Class::PayloadTooLarge => {
            relieving.store(true, Ordering::Relaxed);
            let relieved = match may_relieve {
                true => relieve(handles, &prepared, Force::Yes, None).await,
                false => None,
            };
            match relieved {
                Some(relieved) => Report::Relieved { attempt, relieved },
                None if prepared.is_first() => failed(notices::TOO_LONG_MESSAGE.into()),
                None => Report::Exhausted { attempt },
            }
        }
        _ => failed(format!("⚠️ {}", failure.message)),
    }
}

fn said(handles: &Handles, key: &SessionKey, answer: petasos_agent::Answer) -> Answer {
    let petasos_agent::Answer { mut text, calls, bill, partial, .. } = answer;
    if partial {
        text.push_str(notices::CUT_OFF);
    }
    let tools = handles.agent.tools_of(key);
    let groups = tools.groups(&handles.settings.workspace, &calls);
    let astray = !calls.is_empty() && !calls.iter().any(|call| tools.knows(&call.name));
    Answer { text, calls, groups, astray, bill, partial }
}

fn show_chunk(show: &watch::Sender<View>, turn: TurnId, attempt: u32, chunk: Chunk) {
    show.send_if_modified(|view| {
        let current = view.live.as_mut().filter(|live| live.turn == turn && live.attempt == attempt);
        let Some(live) = current else { return false };
        match chunk {
            Chunk::Text(text) => live.text.push_str(&text),
            Chunk::Restart => live.text.clear(),
            Chunk::Reasoning => return false,
        }
        true
    });
}

/// The only place where a tool call gets its context: what the channel can do is read off the one that the
/// question came over, wherever the answer goes.
async fn context(
    handles: &Handles,
    turn: &Turn,
    author: Option<&Source>,
    show: &Arc<watch::Sender<View>>,
    alive: Alive,
) -> SessionCtx {
    let route = &turn.route;
    let source = author.cloned().unwrap_or_else(|| {
        let room = Source::new(route.platform, ChatType::default(), route.chat_id.clone());
        Source { thread_id: route.thread_id.clone(), ..room }
    });
    let later = Later::from(handles.channels.capabilities(source.platform).async_delivery);
    // Whoever is there to read an answer can also give one.
    let person = match (handles.channels.reader(source.platform), later) {
        _ if Place::of(&turn.key).is_some() => handles.settings.delegation.person(),
        _ if handles.channels.is_scheduled(source.platform) && handles.settings.consent.unattended => {
            Person::NobodyNeeded
        }
        (Reader::Interactive, Later::Supported) => {
            let offer = match handles.may_decide_lastingly(&source).await {
                true => Offer::Every,
                false => Offer::OnlyThisCommand,
            };
            Person::There(Arc::new(Asker::new(
                &handles.people.questions,
                turn,
                &source,
                show,
                Scope::Anything,
                offer,
            )))
        }
        (Reader::Machine, _) if answers(handles, turn, &source).await => {
            let (scope, offer) = (Scope::Consent, Offer::Every);
            Person::There(Arc::new(Asker::new(&handles.people.questions, turn, &source, show, scope, offer)))
        }
        (Reader::Machine, _) | (_, Later::Unsupported) => Person::Nobody,
    };
    SessionCtx {
        key: turn.key.clone(),
        session: turn.session.clone(),
        later,
        person,
        call: String::new(),
        source,
        home: handles.home.clone(),
        workspace: handles.settings.workspace.clone(),
        sent: downloads::folders(&handles.home, &turn.key),
        results: downloads::results(&handles.home, &turn.key),
        alive,
        now: clock::now(),
        timezone: handles.settings.cron.timezone.clone(),
    }
}

/// Whether a program said that it would answer questions.
async fn answers(handles: &Handles, turn: &Turn, source: &Source) -> bool {
    if source.platform != Platform::API_SERVER {
        return false;
    }
    let inbox = turn.id.into();
    match handles.db.read(move |reader| reader.run_of(inbox)).await {
        Ok(run) => run.and_then(|run| Wish::read(&run.wish)).is_some_and(|wish| wish.answers),
        Err(error) => {
            tracing::warn!(turn = %turn.id, %error, "whether a program answers questions is not known: nobody is asked");
            false
        }
    }
}

/// For a planted bug: calls that nobody waits for any more.
#[cfg(feature = "simulation")]
mod abandoned {
    use std::cell::RefCell;

    use tokio::sync::mpsc;

    use super::{REPORTS, Report};

    thread_local! {
        static CALL: RefCell<Option<mpsc::Receiver<Report>>> = const { RefCell::new(None) };
    }

    pub(super) fn keep(reports: &mut mpsc::Receiver<Report>) {
        let (_closed, nothing) = mpsc::channel(REPORTS);
        CALL.set(Some(std::mem::replace(reports, nothing)));
    }

    /// Its answer counts as that of the call that begins now.
    pub(super) fn hear(attempt: u32, reports: &mpsc::Sender<Report>) {
        let (Some(mut old), reports) = (CALL.take(), reports.clone()) else { return };
        petasos_runtime::spawn(async move {
            while let Some(report) = old.recv().await {
                if let Report::Answered { answer, .. } = report {
                    let _ = reports.send(Report::Answered { attempt, answer }).await;
                }
            }
        });
    }
}
