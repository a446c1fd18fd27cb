//! Background processes: every one has a task that looks after it, and a row in the ledger.
//!
//! Owns the table of processes (one short lock, never held across a wait), their inputs and their output files. A
//! process is its own leader, writes into a file and leaves its exit code in another, so it needs us for nothing: if
//! we die, it goes on, and the next gateway finds it by its number and its birth, or by what it left.
//!
//! What a crash leaves: a row that was begun and names no process (it is looked for by its command line), a row whose
//! process runs (it is adopted), or one whose process is gone (its end is recorded then).

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use petasos_core::{Millis, SessionKey};
use pty_process::OwnedReadPty;
use rustix::process::Signal;
use tokio::process::Child;
use tokio::sync::watch as news;
use tokio::task::JoinHandle;

use super::foreground::Screen;
use super::live::{Input, KEEPER, Life, Process, adopted_life, copy, find_by_command_line, is_same};
use super::record::{End, Event, Identity, Known, Ledger, Promise, Reason, Record};
use super::shell::Launch;
use super::watch::{Breaker, Heard, Pace, Seen, Watch};
use super::{group, spool, text};

/// Processes that run for one session at the same time.
const RUNNING: usize = 64;
/// Ended ones that are remembered for one session, and for how long.
const ENDED: usize = 64;
const REMEMBERED: Duration = Duration::from_secs(30 * 60);
/// How often a process's output is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// New output that is searched at once.
const SEARCHED: u64 = 1 << 20;
/// Output that is told with the end.
const TOLD: usize = 2000;
/// How long the store may take to recover.
const STORE_RETRY: Duration = Duration::from_secs(1);
/// How long a killed process may take to be gone.
const GONE: Duration = Duration::from_secs(5);

/// The way to all of them; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Processes(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    ledger: Arc<dyn Ledger>,
    output: PathBuf,
    grace: Duration,
    pace: Pace,
    table: Mutex<BTreeMap<String, Arc<Process>>>,
    breaker: Mutex<Breaker>,
}

impl Processes {
    pub(super) fn new(ledger: Arc<dyn Ledger>, output: PathBuf, grace: Duration, pace: Pace) -> Self {
        let (table, breaker) = (Mutex::default(), Mutex::new(Breaker::new(pace)));
        Self(Arc::new(Inner { ledger, output, grace, pace, table, breaker }))
    }

    /// Starts a process that outlives the call, also one that is given up half way: it is never without its row.
    pub(super) async fn start(
        &self,
        record: Record,
        launch: Launch,
        screen: Screen,
    ) -> io::Result<Arc<Process>> {
        let inner = self.0.clone();
        let started = tokio::spawn(async move { inner.start(record, launch, screen).await });
        started.await.map_err(|_panicked| io::Error::other("starting it failed"))?
    }

    /// A process of this session.
    pub(super) fn find(&self, key: &SessionKey, id: &str) -> Option<Arc<Process>> {
        self.0.table().get(id).filter(|process| process.record.key == *key).cloned()
    }

    /// The processes of this session, oldest first.
    pub(super) fn of(&self, key: &SessionKey) -> Vec<Arc<Process>> {
        let mut own: Vec<_> = self.0.table().values().filter(|it| it.record.key == *key).cloned().collect();
        own.sort_by_key(|process| process.record.started_at);
        own
    }

    /// The session knows how it ended.
    pub(super) async fn consumed(&self, process: &Process) {
        if let Err(error) = self.0.ledger.consumed(&process.record.id).await {
            tracing::warn!(process = process.record.id, error, "its end will be told although it is known");
        }
    }

    /// Ends a process and all it started in its group. `false`: it does not end.
    pub(super) async fn kill(&self, process: &Process, why: Reason) -> bool {
        process.asked().get_or_insert(why);
        self.0.signal(process, Signal::TERM);
        if tokio::time::timeout(self.0.grace, process.ended()).await.is_ok() {
            return true;
        }
        self.0.signal(process, Signal::KILL);
        tokio::time::timeout(GONE, process.ended()).await.is_ok()
    }

    /// Ends all that run: the gateway leaves.
    pub(super) async fn kill_all(&self) {
        let running: Vec<_> = self.0.table().values().filter(|it| it.end().is_none()).cloned().collect();
        let mut ends = tokio::task::JoinSet::new();
        for process in running {
            let processes = self.clone();
            ends.spawn(async move { processes.kill(&process, Reason::KilledWithAll).await });
        }
        while ends.join_next().await.is_some() {}
    }

    /// Takes over what an earlier gateway started: who lives is looked after, who died meanwhile is recorded.
    pub(super) async fn adopt(&self, known: Vec<Known>) {
        let ids: HashSet<String> = known.iter().map(|it| it.record.id.clone()).collect();
        self.0.forget_files(&ids);
        for known in known {
            self.0.adopt(known).await;
        }
    }
}

impl Inner {
    async fn start(
        self: Arc<Self>,
        record: Record,
        launch: Launch,
        screen: Screen,
    ) -> io::Result<Arc<Process>> {
        self.make_room(&record.key)?;
        self.ledger.begin(record.clone()).await.map_err(io::Error::other)?;
        let log = self.log(&record.id);
        let spawned = self.spawn(&record, launch, screen);
        let (child, input, screen) = match spawned {
            Ok(spawned) => spawned,
            Err(error) => {
                let end = End { exit_code: None, reason: Reason::FailedStart, at: now() };
                keep(|| self.ledger.ended(&record, end, None)).await;
                return Err(error);
            }
        };
        let pid = child.id().unwrap_or_default();
        let who = Identity { pid, born: group::born(pid) };
        keep(|| self.ledger.started(&record.id, who.clone())).await;
        let process = Arc::new(Process {
            record,
            who,
            adopted: false,
            log: log.clone(),
            state: news::Sender::new(None),
            asked: Mutex::default(),
            input: tokio::sync::Mutex::new(input),
        });
        self.table().insert(process.record.id.clone(), process.clone());
        let copying = screen.map(|screen| tokio::spawn(copy(screen, log)));
        tokio::spawn(self.look_after(process.clone(), Life::Own(child), copying));
        Ok(process)
    }

    fn spawn(
        &self,
        record: &Record,
        launch: Launch,
        screen: Screen,
    ) -> io::Result<(Child, Input, Option<OwnedReadPty>)> {
        let Launch { program, args, cwd, env } = launch;
        let left = self.left(&record.id).into_os_string();
        let mut kept = vec!["-c".into(), KEEPER.into(), record.id.clone().into(), left, program];
        kept.extend(args);
        let launch = Launch { program: "/bin/sh".into(), args: kept, cwd, env };
        let file = spool::create(&self.log(&record.id))?;
        Ok(match screen {
            Screen::None => {
                let mut child = launch.into_file(file)?;
                let input = child.stdin.take().map_or(Input::None, Input::Pipe);
                (child, input, None)
            }
            Screen::Terminal => {
                let (child, pty) = launch.on_terminal()?;
                let (read, write) = pty.into_split();
                (child, Input::Terminal(write), Some(read))
            }
        })
    }

    /// Until it is over: searches what it prints, bounds what it leaves, and records its end.
    async fn look_after(
        self: Arc<Self>,
        process: Arc<Process>,
        mut life: Life,
        copying: Option<JoinHandle<()>>,
    ) {
        let mut listener = Listener::new(&process.record, self.pace);
        let code = loop {
            tokio::select! {
                code = life.ended() => break code,
                () = tokio::time::sleep(LOOK) => self.listen(&process, &mut listener).await,
            }
        };
        let asked = *process.asked();
        if asked.is_some() {
            // Those of its group that did not listen.
            group::signal(process.who.pid, Signal::KILL);
        }
        if let Some(copying) = copying {
            // What a terminal still holds is there at once; somebody else may hold it open.
            let _ = tokio::time::timeout(LOOK, copying).await;
        }
        *process.input.lock().await = Input::None;
        let code = code.or_else(|| self.left_code(&process.record.id));
        let reason = match (asked, code) {
            (Some(reason), _) => reason,
            (None, Some(_)) => Reason::Exited,
            (None, None) => Reason::Lost,
        };
        let code = code.or(asked.map(|_| KILLED));
        // Whoever missed a line hears at least of the end.
        let missed = listener.watch.as_ref().is_some_and(Watch::holds);
        let promise = if missed { Promise::Completion } else { listener.promise };
        self.record_end(&process, &promise, End { exit_code: code, reason, at: now() }).await;
    }

    async fn record_end(&self, process: &Process, promise: &Promise, end: End) {
        let event = match promise {
            Promise::Completion => Some(self.completion(process, end).await),
            Promise::Nothing | Promise::Lines { .. } => None,
        };
        keep(|| self.ledger.ended(&process.record, end, event.clone())).await;
        process.state.send_replace(Some(end));
    }

    async fn completion(&self, process: &Process, end: End) -> Event {
        let output = process.tail(TOLD as u64 * 4).await;
        let told = text::tail(&output, TOLD);
        let cut = if told.len() < output.len() { "[earlier output left out]\n" } else { "" };
        Event::Completion {
            session_id: process.record.id.clone(),
            command: text::redact(&process.record.command).into_owned(),
            exit_code: end.exit_code,
            completion_reason: end.reason.as_str().into(),
            termination_source: end.reason.source().into(),
            output: format!("{cut}{told}"),
            started_at: process.record.started_at.0,
        }
    }

    async fn listen(&self, process: &Process, listener: &mut Listener) {
        let log = process.log.clone();
        let from = listener.watch.as_ref().map(|_| listener.read);
        let looked = tokio::task::spawn_blocking(move || {
            spool::trim(&log)?;
            from.map(|from| spool::lines_after(&log, from, SEARCHED)).transpose()
        });
        let new = match looked.await {
            Ok(Ok(new)) => new,
            Ok(Err(error)) => {
                tracing::warn!(process = process.record.id, %error, "its output cannot be read");
                return;
            }
            Err(_panicked) => return,
        };
        let (Some((bytes, read)), Some(watch)) = (new, &mut listener.watch) else { return };
        let at = std::mem::replace(&mut listener.read, read);
        let seen = watch.look(now(), &text::strip_control(&String::from_utf8_lossy(&bytes)));
        let session_id = process.record.id.clone();
        let command = text::redact(&process.record.command).into_owned();
        let event = match seen {
            Seen::Nothing if watch.holds() && !self.breaker().rests(now()) => {
                Event::WatchOverflowReleased { session_id, command, suppressed: watch.release(), at }
            }
            Seen::Nothing => return,
            Seen::Match { pattern, output, suppressed } => match self.breaker().hear(now()) {
                Heard::Told => Event::WatchMatch { session_id, command, pattern, output, suppressed, at },
                Heard::Trips => {
                    watch.hold(suppressed);
                    Event::WatchOverflowTripped { session_id, command, rest: self.pace.rest.as_secs(), at }
                }
                Heard::Held => return watch.hold(suppressed),
            },
            Seen::TooMuch { suppressed } => {
                listener.watch = None;
                listener.promise = Promise::Completion;
                Event::WatchDisabled { session_id, command, suppressed }
            }
        };
        // In the commit that tells of it: whoever adopts the process goes on behind it.
        if let Promise::Lines { told, .. } = &mut listener.promise {
            *told = read;
        }
        let record = Record { promise: listener.promise.clone(), ..process.record.clone() };
        keep(|| self.ledger.happened(&record, event.clone())).await;
    }

    async fn adopt(self: &Arc<Self>, Known { record, who, end }: Known) {
        let left = self.left(&record.id);
        let who = who.or_else(|| find_by_command_line(&left));
        let life = match (&who, end) {
            (Some(who), None) => adopted_life(who, &left),
            (Some(_), Some(_)) | (None, _) => None,
        };
        let process = Arc::new(Process {
            who: who.unwrap_or(Identity { pid: 0, born: None }),
            adopted: true,
            log: self.log(&record.id),
            state: news::Sender::new(end),
            asked: Mutex::default(),
            input: tokio::sync::Mutex::new(Input::None),
            record,
        });
        self.table().insert(process.record.id.clone(), process.clone());
        match (life, end) {
            (Some(life), _) => {
                tracing::info!(
                    process = process.record.id,
                    pid = process.who.pid,
                    "a background process goes on"
                );
                tokio::spawn(self.clone().look_after(process, life, None));
            }
            (None, Some(_)) => {}
            (None, None) => {
                let code = self.left_code(&process.record.id);
                let reason = if code.is_some() { Reason::Exited } else { Reason::Lost };
                let promise = match &process.record.promise {
                    Promise::Nothing => Promise::Nothing,
                    // Nobody listened: its end is what is left to tell.
                    Promise::Completion | Promise::Lines { .. } => Promise::Completion,
                };
                self.record_end(&process, &promise, End { exit_code: code, reason, at: now() }).await;
            }
        }
    }

    /// Never to a stranger who got the number of one that is gone: our own children keep theirs until their end is
    /// noticed, adopted ones are looked at.
    fn signal(&self, process: &Process, signal: Signal) {
        if !process.adopted || is_same(&process.who, &self.left(&process.record.id)) {
            group::signal(process.who.pid, signal);
        }
    }

    /// Refuses one too many, and forgets those that ended long ago.
    fn make_room(&self, key: &SessionKey) -> io::Result<()> {
        let mut forgotten = Vec::new();
        let mut table = self.table();
        let long_ago = now().before(REMEMBERED);
        let own = |process: &&Arc<Process>| process.record.key == *key;
        if table.values().filter(own).filter(|process| process.end().is_none()).count() >= RUNNING {
            return Err(io::Error::other(format!("{RUNNING} processes of this conversation run already")));
        }
        let mut ended: Vec<_> = table.values().filter(own).filter(|it| it.end().is_some()).cloned().collect();
        ended.sort_by_key(|process| process.record.started_at);
        let excess = (ended.len() + 1).saturating_sub(ENDED);
        for (at, process) in ended.iter().enumerate() {
            if at < excess || process.record.started_at < long_ago {
                forgotten.extend(table.remove(&process.record.id));
            }
        }
        drop(table);
        for process in forgotten {
            remove(&process.log);
            remove(&self.left(&process.record.id));
        }
        Ok(())
    }

    /// Files of processes that nobody knows any more.
    fn forget_files(&self, known: &HashSet<String>) {
        let Ok(entries) = std::fs::read_dir(&self.output) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let id = name.split('.').next().unwrap_or_default();
            if id.starts_with("proc_") && !known.contains(id) {
                remove(&entry.path());
            }
        }
    }

    fn log(&self, id: &str) -> PathBuf {
        self.output.join(format!("{id}.log"))
    }

    /// Where its exit code is left.
    fn left(&self, id: &str) -> PathBuf {
        self.output.join(format!("{id}.exit"))
    }

    fn left_code(&self, id: &str) -> Option<i32> {
        std::fs::read_to_string(self.left(id)).ok()?.trim().parse().ok()
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Process>>> {
        // Nothing in here can panic half way through a change.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is recorded of a process that was asked to end and left no code of its own.
const KILLED: i32 = -15;

/// What is searched of a process's output, and how far that has come.
struct Listener {
    watch: Option<Watch>,
    read: u64,
    promise: Promise,
}

impl Listener {
    fn new(record: &Record, pace: Pace) -> Self {
        let (watch, read) = match &record.promise {
            Promise::Lines { patterns, told } => (Some(Watch::new(patterns.clone(), pace.window)), *told),
            Promise::Nothing | Promise::Completion => (None, 0),
        };
        Self { watch, read, promise: record.promise.clone() }
    }
}

/// Tries until the store takes it: what happened is not forgotten because of a full disk.
async fn keep<F: Future<Output = Result<(), String>>>(write: impl Fn() -> F) {
    while let Err(error) = write().await {
        tracing::warn!(error, "a background process cannot be recorded; trying again");
        tokio::time::sleep(STORE_RETRY).await;
    }
}

fn remove(path: &Path) {
    match std::fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(%error, "the output of an old process cannot be removed"),
    }
}

/// The wall clock: what happens here happens by itself, and nobody hands in a time.
pub(super) fn now() -> Millis {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
