//! The background processes: each has a supervising task and a row in the ledger.
//!
//! Owns the process table (one lock, never held across an await), the inputs and the output files. A process
//! writes its output to one file and its exit code to another, so it survives the gateway; the next gateway
//! finds it by pid and start time, or by its exit file.
//!
//! A crash leaves one of: a row without a pid (the process is found by its command line), a row of a running
//! process (it is adopted), or a row of an ended process (its end is recorded at start).

mod log_file;
pub(super) mod notification;
pub(super) mod process;
pub(super) mod record;
pub(super) mod tool;
pub(super) mod watch;

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use petasos_core::SessionKey;
use petasos_runtime::clock;
use pty_process::OwnedReadPty;
use rustix::process::Signal;
use tokio::process::Child;
use tokio::sync::watch as watch_channel;
use tokio::task::JoinHandle;

use super::foreground::PtyMode;
use super::shell::Launch;
use super::{group, redaction};
use process::{
    Process, ProcessHandle, ProcessInput, WRAPPER, adopt_handle, copy, find_by_command_line, is_same,
};
use record::{
    BackgroundProcess, ExitReason, Ledger, NotifyMode, ProcessEvent, ProcessExit, ProcessIdentity,
    RecordedProcess,
};
use watch::{Admission, GlobalWatchLimit, ScanResult, Watch, WatchLimits};

const MAX_RUNNING: usize = 64;
/// Ended processes kept per session, and how long.
const MAX_ENDED: usize = 64;
const RETENTION: Duration = Duration::from_secs(30 * 60);
const POLL: Duration = Duration::from_millis(500);
const MAX_SEARCHED: u64 = 1 << 20;
/// Characters of output in a completion notification.
const QUOTED: usize = 2000;
const STORE_RETRY: Duration = Duration::from_secs(1);
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Cheap handle to the process table.
#[derive(Debug, Clone)]
pub(super) struct Processes(Arc<ProcessTable>);

#[derive(Debug)]
struct ProcessTable {
    ledger: Arc<dyn Ledger>,
    output: PathBuf,
    grace: Duration,
    limits: WatchLimits,
    table: Mutex<BTreeMap<String, Arc<Process>>>,
    global_limit: Mutex<GlobalWatchLimit>,
}

impl Processes {
    pub(super) fn new(
        ledger: Arc<dyn Ledger>,
        output: PathBuf,
        grace: Duration,
        limits: WatchLimits,
    ) -> Self {
        let table = Mutex::default();
        let global_limit = Mutex::new(GlobalWatchLimit::new(limits));
        Self(Arc::new(ProcessTable { ledger, output, grace, limits, table, global_limit }))
    }

    /// Starts a process in a task of its own: a dropped call cannot leave a process without a row.
    pub(super) async fn start(
        &self,
        record: BackgroundProcess,
        launch: Launch,
        pty: PtyMode,
    ) -> io::Result<Arc<Process>> {
        let inner = self.0.clone();
        let started = petasos_runtime::spawn(async move { inner.start(record, launch, pty).await });
        started.await.map_err(|_panicked| io::Error::other("starting the process failed"))?
    }

    pub(super) fn find(&self, key: &SessionKey, id: &str) -> Option<Arc<Process>> {
        self.0.table().get(id).filter(|process| process.record.key == *key).cloned()
    }

    /// The session's processes, oldest first.
    pub(super) fn of(&self, key: &SessionKey) -> Vec<Arc<Process>> {
        let mut own: Vec<_> = self.0.table().values().filter(|it| it.record.key == *key).cloned().collect();
        own.sort_by_key(|process| process.record.started_at);
        own
    }

    /// Records that the session has seen the end, so that no notification follows.
    pub(super) async fn mark_consumed(&self, process: &Process) {
        if let Err(error) = self.0.ledger.consumed(&process.record.id).await {
            tracing::warn!(
                process = process.record.id,
                error,
                "cannot mark end as seen; a notification follows"
            );
        }
    }

    /// Ends a process and its group. `false`: it did not end in time.
    pub(super) async fn kill(&self, process: &Process, why: ExitReason) -> bool {
        process.end_request().get_or_insert(why);
        self.0.signal(process, Signal::TERM);
        if tokio::time::timeout(self.0.grace, process.wait_ended()).await.is_ok() {
            return true;
        }
        self.0.signal(process, Signal::KILL);
        tokio::time::timeout(KILL_TIMEOUT, process.wait_ended()).await.is_ok()
    }

    pub(super) async fn kill_all(&self) {
        let running: Vec<_> = self.0.table().values().filter(|it| it.end().is_none()).cloned().collect();
        let mut ends = tokio::task::JoinSet::new();
        for process in running {
            let processes = self.clone();
            petasos_runtime::spawn_into(&mut ends, async move {
                processes.kill(&process, ExitReason::KilledWithAll).await
            });
        }
        while ends.join_next().await.is_some() {}
    }

    /// Adopts the processes of an earlier gateway: running ones are supervised, the end of others is
    /// recorded.
    pub(super) async fn adopt(&self, known: Vec<RecordedProcess>) {
        let ids: HashSet<String> = known.iter().map(|it| it.record.id.clone()).collect();
        self.0.remove_unknown_files(&ids);
        for known in known {
            self.0.adopt(known).await;
        }
    }
}

impl ProcessTable {
    async fn start(
        self: Arc<Self>,
        record: BackgroundProcess,
        launch: Launch,
        pty: PtyMode,
    ) -> io::Result<Arc<Process>> {
        self.reserve(&record.key)?;
        self.ledger.begin(record.clone()).await.map_err(io::Error::other)?;
        let log = self.log(&record.id);
        let spawned = self.spawn(&record, launch, pty);
        let (child, input, terminal) = match spawned {
            Ok(spawned) => spawned,
            Err(error) => {
                let end = ProcessExit { exit_code: None, reason: ExitReason::FailedStart, at: clock::now() };
                write_to_ledger(|| self.ledger.ended(&record, end, None)).await;
                return Err(error);
            }
        };
        let pid = child.id().unwrap_or_default();
        let identity = ProcessIdentity { pid, start_time: group::start_time(pid) };
        write_to_ledger(|| self.ledger.started(&record.id, identity.clone())).await;
        let process = Arc::new(Process {
            record,
            identity,
            adopted: false,
            log: log.clone(),
            state: watch_channel::Sender::new(None),
            end_request: Mutex::default(),
            input: tokio::sync::Mutex::new(input),
        });
        self.table().insert(process.record.id.clone(), process.clone());
        let copying = terminal.map(|terminal| petasos_runtime::spawn(copy(terminal, log)));
        petasos_runtime::spawn(self.supervise(process.clone(), ProcessHandle::Child(child), copying));
        Ok(process)
    }

    fn spawn(
        &self,
        record: &BackgroundProcess,
        launch: Launch,
        pty: PtyMode,
    ) -> io::Result<(Child, ProcessInput, Option<OwnedReadPty>)> {
        let Launch { program, args, cwd, env } = launch;
        let exit_file = self.exit_file(&record.id).into_os_string();
        let mut kept = vec!["-c".into(), WRAPPER.into(), record.id.clone().into(), exit_file, program];
        kept.extend(args);
        let launch = Launch { program: "/bin/sh".into(), args: kept, cwd, env };
        let file = log_file::create(&self.log(&record.id))?;
        Ok(match pty {
            PtyMode::Off => {
                let mut child = launch.into_file(file)?;
                let input = child.stdin.take().map_or(ProcessInput::None, ProcessInput::Pipe);
                (child, input, None)
            }
            PtyMode::On => {
                let (child, master) = launch.on_terminal()?;
                let (read, write) = master.into_split();
                (child, ProcessInput::Terminal(write), Some(read))
            }
        })
    }

    /// Supervises a process until its end: searches its output, bounds its log and records its end.
    async fn supervise(
        self: Arc<Self>,
        process: Arc<Process>,
        mut handle: ProcessHandle,
        copying: Option<JoinHandle<()>>,
    ) {
        let mut watch_state = OutputWatch::new(&process.record, self.limits);
        let code = loop {
            tokio::select! {
                code = handle.wait() => break code,
                () = clock::sleep(POLL) => self.poll_output(&process, &mut watch_state).await,
            }
        };
        let requested = *process.end_request();
        if requested.is_some() {
            group::signal(process.identity.pid, Signal::KILL);
        }
        if let Some(copying) = copying {
            // Buffered terminal output arrives at once; another process may keep the terminal open.
            let _ = tokio::time::timeout(POLL, copying).await;
        }
        *process.input.lock().await = ProcessInput::None;
        let code = code.or_else(|| self.read_exit_code(&process.record.id));
        let reason = match (requested, code) {
            (Some(reason), _) => reason,
            (None, Some(_)) => ExitReason::Exited,
            (None, None) => ExitReason::Lost,
        };
        let code = code.or(requested.map(|_| KILLED));
        // A session with suppressed matches is at least notified of the end.
        let missed = watch_state.watch.as_ref().is_some_and(Watch::has_suppressed);
        let notify = if missed { NotifyMode::Completion } else { watch_state.notify };
        self.record_end(&process, &notify, ProcessExit { exit_code: code, reason, at: clock::now() }).await;
    }

    async fn record_end(&self, process: &Process, notify: &NotifyMode, end: ProcessExit) {
        let event = match notify {
            NotifyMode::Completion => Some(self.completion(process, end).await),
            NotifyMode::Nothing | NotifyMode::Lines { .. } => None,
        };
        write_to_ledger(|| self.ledger.ended(&process.record, end, event.clone())).await;
        process.state.send_replace(Some(end));
    }

    async fn completion(&self, process: &Process, end: ProcessExit) -> ProcessEvent {
        let output = process.tail(QUOTED as u64 * 4).await;
        let quoted = redaction::tail(&output, QUOTED);
        let cut = if quoted.len() < output.len() { "[earlier output left out]\n" } else { "" };
        ProcessEvent::Completion {
            session_id: process.record.id.clone(),
            command: redaction::redact(&process.record.command).into_owned(),
            exit_code: end.exit_code,
            completion_reason: end.reason.as_str().into(),
            termination_source: end.reason.source().into(),
            output: format!("{cut}{quoted}"),
            started_at: process.record.started_at.0,
        }
    }

    async fn poll_output(&self, process: &Process, watch_state: &mut OutputWatch) {
        let log = process.log.clone();
        let from = watch_state.watch.as_ref().map(|_| watch_state.read);
        let looked = petasos_runtime::blocking(move || {
            log_file::trim(&log)?;
            from.map(|from| log_file::lines_after(&log, from, MAX_SEARCHED)).transpose()
        });
        let new = match looked.await {
            Ok(Ok(new)) => new,
            Ok(Err(error)) => {
                tracing::warn!(process = process.record.id, %error, "cannot read process output");
                return;
            }
            Err(_panicked) => return,
        };
        let (Some((bytes, read)), Some(watch)) = (new, &mut watch_state.watch) else { return };
        let at = std::mem::replace(&mut watch_state.read, read);
        let scan = watch.scan(clock::now(), &redaction::strip_control(&String::from_utf8_lossy(&bytes)));
        let session_id = process.record.id.clone();
        let command = redaction::redact(&process.record.command).into_owned();
        let event = match scan {
            ScanResult::Nothing if watch.has_suppressed() && !self.global_limit().is_paused(clock::now()) => {
                ProcessEvent::WatchOverflowReleased {
                    session_id,
                    command,
                    suppressed: watch.take_suppressed(),
                    at,
                }
            }
            ScanResult::Nothing => return,
            ScanResult::Match { pattern, output, suppressed } => {
                match self.global_limit().admit(clock::now()) {
                    Admission::Reported => {
                        ProcessEvent::WatchMatch { session_id, command, pattern, output, suppressed, at }
                    }
                    Admission::Tripped => {
                        watch.suppress(suppressed);
                        ProcessEvent::WatchOverflowTripped {
                            session_id,
                            command,
                            rest: self.limits.pause.as_secs(),
                            at,
                        }
                    }
                    Admission::Suppressed => return watch.suppress(suppressed),
                }
            }
            ScanResult::TooMany { suppressed } => {
                watch_state.watch = None;
                watch_state.notify = NotifyMode::Completion;
                ProcessEvent::WatchDisabled { session_id, command, suppressed }
            }
        };
        // Committed with the event, so that an adopting gateway continues after it.
        if let NotifyMode::Lines { reported, .. } = &mut watch_state.notify {
            *reported = read;
        }
        let record = BackgroundProcess { notify: watch_state.notify.clone(), ..process.record.clone() };
        write_to_ledger(|| self.ledger.happened(&record, event.clone())).await;
    }

    async fn adopt(self: &Arc<Self>, RecordedProcess { record, identity, end }: RecordedProcess) {
        let exit_file = self.exit_file(&record.id);
        let identity = identity.or_else(|| find_by_command_line(&exit_file));
        let handle = match (&identity, end) {
            (Some(identity), None) => adopt_handle(identity, &exit_file),
            (Some(_), Some(_)) | (None, _) => None,
        };
        let process = Arc::new(Process {
            identity: identity.unwrap_or(ProcessIdentity { pid: 0, start_time: None }),
            adopted: true,
            log: self.log(&record.id),
            state: watch_channel::Sender::new(end),
            end_request: Mutex::default(),
            input: tokio::sync::Mutex::new(ProcessInput::None),
            record,
        });
        self.table().insert(process.record.id.clone(), process.clone());
        match (handle, end) {
            (Some(handle), _) => {
                tracing::info!(
                    process = process.record.id,
                    pid = process.identity.pid,
                    "adopted background process"
                );
                petasos_runtime::spawn(self.clone().supervise(process, handle, None));
            }
            (None, Some(_)) => {}
            (None, None) => {
                let code = self.read_exit_code(&process.record.id);
                let reason = if code.is_some() { ExitReason::Exited } else { ExitReason::Lost };
                let notify = match &process.record.notify {
                    NotifyMode::Nothing => NotifyMode::Nothing,
                    // Watched lines may have been missed, so the end is reported.
                    NotifyMode::Completion | NotifyMode::Lines { .. } => NotifyMode::Completion,
                };
                self.record_end(&process, &notify, ProcessExit { exit_code: code, reason, at: clock::now() })
                    .await;
            }
        }
    }

    /// Never signals a process that reused the pid: pids of our own children stay reserved until they are
    /// reaped, adopted processes are verified.
    fn signal(&self, process: &Process, signal: Signal) {
        if !process.adopted || is_same(&process.identity, &self.exit_file(&process.record.id)) {
            group::signal(process.identity.pid, signal);
        }
    }

    /// Enforces the limit of running processes and forgets old ended ones.
    fn reserve(&self, key: &SessionKey) -> io::Result<()> {
        let mut forgotten = Vec::new();
        let mut table = self.table();
        let long_ago = clock::now().before(RETENTION);
        let own = |process: &&Arc<Process>| process.record.key == *key;
        if table.values().filter(own).filter(|process| process.end().is_none()).count() >= MAX_RUNNING {
            return Err(io::Error::other(format!(
                "{MAX_RUNNING} background processes of this conversation are already running"
            )));
        }
        let mut ended: Vec<_> = table.values().filter(own).filter(|it| it.end().is_some()).cloned().collect();
        ended.sort_by_key(|process| process.record.started_at);
        let excess = (ended.len() + 1).saturating_sub(MAX_ENDED);
        for (at, process) in ended.iter().enumerate() {
            if at < excess || process.record.started_at < long_ago {
                forgotten.extend(table.remove(&process.record.id));
            }
        }
        drop(table);
        for process in forgotten {
            remove(&process.log);
            remove(&self.exit_file(&process.record.id));
        }
        Ok(())
    }

    fn remove_unknown_files(&self, known: &HashSet<String>) {
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

    fn exit_file(&self, id: &str) -> PathBuf {
        self.output.join(format!("{id}.exit"))
    }

    fn read_exit_code(&self, id: &str) -> Option<i32> {
        std::fs::read_to_string(self.exit_file(id)).ok()?.trim().parse().ok()
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Process>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn global_limit(&self) -> MutexGuard<'_, GlobalWatchLimit> {
        self.global_limit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Exit code recorded for a killed process that left none.
const KILLED: i32 = -15;

/// Watch state of a process, and how far its output was read.
struct OutputWatch {
    watch: Option<Watch>,
    read: u64,
    notify: NotifyMode,
}

impl OutputWatch {
    fn new(record: &BackgroundProcess, limits: WatchLimits) -> Self {
        let (watch, read) = match &record.notify {
            NotifyMode::Lines { patterns, reported } => {
                (Some(Watch::new(patterns.clone(), limits.window)), *reported)
            }
            NotifyMode::Nothing | NotifyMode::Completion => (None, 0),
        };
        Self { watch, read, notify: record.notify.clone() }
    }
}

/// Retries until the ledger accepts the write: process events must survive a full disk.
async fn write_to_ledger<F: Future<Output = Result<(), String>>>(write: impl Fn() -> F) {
    while let Err(error) = write().await {
        tracing::warn!(error, "cannot record background process, retrying");
        clock::sleep(STORE_RETRY).await;
    }
}

fn remove(path: &Path) {
    match std::fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(%error, "cannot remove old process output"),
    }
}
