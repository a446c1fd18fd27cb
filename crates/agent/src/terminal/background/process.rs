//! One background process: its output, its input, and how its end is noticed.
//!
//! A wrapper shell ([`WRAPPER`]) writes the exit code to a file and has that file's name in its command line.
//! A later gateway can therefore find the process, verify it, and learn its exit code.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use petasos_runtime::clock;
use pty_process::{OwnedReadPty, OwnedWritePty};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin};
use tokio::sync::watch as watch_channel;

use super::log_file;
use super::record::{BackgroundProcess, ExitReason, ProcessExit, ProcessIdentity};
use crate::terminal::{group, redaction};

/// Runs the arguments after `$1` and writes their exit code to the file `$1`. `$0` is the process id.
pub(in crate::terminal) const WRAPPER: &str = r#"left=$1; shift; "$@"; code=$?; printf %s "$code" >"$left.new" && mv -f "$left.new" "$left"; exit "$code""#;

#[derive(Debug)]
pub(in crate::terminal) struct Process {
    pub(in crate::terminal) record: BackgroundProcess,
    pub(in crate::terminal) identity: ProcessIdentity,
    pub(in crate::terminal) adopted: bool,
    pub(in crate::terminal) log: PathBuf,
    pub(in crate::terminal) state: watch_channel::Sender<Option<ProcessExit>>,
    pub(in crate::terminal) end_request: Mutex<Option<ExitReason>>,
    pub(in crate::terminal) input: tokio::sync::Mutex<ProcessInput>,
}

#[derive(Debug)]
pub(in crate::terminal) enum ProcessInput {
    None,
    Pipe(ChildStdin),
    Terminal(OwnedWritePty),
}

pub(in crate::terminal) enum ProcessHandle {
    Child(Child),
    /// Not our child: a pidfd signals its end, and the exit code is in the file.
    Adopted(OwnedFd),
}

impl Process {
    pub(in crate::terminal) fn end(&self) -> Option<ProcessExit> {
        *self.state.borrow()
    }

    /// Resolves after the end of the process has been committed.
    pub(in crate::terminal) async fn wait_ended(&self) -> ProcessExit {
        loop {
            // The sender lives in `self`, so the channel stays open.
            if let Ok(end) = self.state.subscribe().wait_for(Option::is_some).await
                && let Some(end) = *end
            {
                return end;
            }
        }
    }

    /// The end of the output, as the model reads it.
    pub(in crate::terminal) async fn tail(&self, most: u64) -> String {
        let log = self.log.clone();
        let read = petasos_runtime::blocking(move || log_file::tail(&log, most)).await;
        // A missing log has no output.
        redaction::readable(&read.ok().and_then(Result::ok).unwrap_or_default())
    }

    pub(in crate::terminal) async fn write(&self, bytes: &[u8]) -> io::Result<()> {
        match &mut *self.input.lock().await {
            ProcessInput::None => Err(closed()),
            ProcessInput::Pipe(pipe) => in_time(pipe.write_all(bytes)).await,
            ProcessInput::Terminal(pty) => in_time(pty.write_all(bytes)).await,
        }
    }

    /// Signals the end of input; returns a description of what was done.
    pub(in crate::terminal) async fn close(&self) -> io::Result<&'static str> {
        let mut input = self.input.lock().await;
        match &mut *input {
            ProcessInput::None => Err(closed()),
            ProcessInput::Pipe(_) => {
                *input = ProcessInput::None;
                Ok("stdin closed")
            }
            ProcessInput::Terminal(pty) => {
                // Ctrl-D. The terminal stays open even if this fails: closing it would hang up the process.
                in_time(pty.write_all(&[4])).await?;
                Ok("EOF sent")
            }
        }
    }

    pub(in crate::terminal) fn end_request(&self) -> MutexGuard<'_, Option<ExitReason>> {
        self.end_request.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const WRITE: Duration = Duration::from_secs(5);

async fn in_time(written: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    let late = |_| Err(io::Error::new(io::ErrorKind::TimedOut, "it does not read its input"));
    tokio::time::timeout(WRITE, written).await.unwrap_or_else(late)
}

fn closed() -> io::Error {
    io::Error::other("its stdin is not available")
}

impl ProcessHandle {
    /// The exit code; `None` if it must be read from the exit file.
    pub(in crate::terminal) async fn wait(&mut self) -> Option<i32> {
        match self {
            Self::Child(child) => child.wait().await.ok().map(group::exit_code),
            Self::Adopted(process) => {
                while !has_ended(process) {
                    clock::sleep(POLL).await;
                }
                None
            }
        }
    }
}

const POLL: Duration = Duration::from_millis(200);

/// A pidfd becomes readable when its process has ended.
fn has_ended(process: &OwnedFd) -> bool {
    let mut poll = [PollFd::new(process, PollFlags::IN)];
    matches!(rustix::event::poll(&mut poll, Some(&Timespec::default())), Ok(1..))
}

/// Copies terminal output to the log until the terminal closes.
pub(in crate::terminal) async fn copy(mut terminal: OwnedReadPty, log: PathBuf) {
    let Ok(file) = log_file::create(&log) else { return };
    let mut file = tokio::fs::File::from_std(file);
    let mut buffer = vec![0; 16 << 10];
    while let Ok(count @ 1..) = terminal.read(&mut buffer).await {
        if let Err(error) = file.write_all(&buffer[..count]).await {
            tracing::warn!(%error, "cannot write process output");
        }
    }
    let _ = file.flush().await;
}

pub(in crate::terminal) fn adopt_handle(
    identity: &ProcessIdentity,
    exit_file: &Path,
) -> Option<ProcessHandle> {
    let pid = i32::try_from(identity.pid).ok().filter(|pid| *pid > 1).and_then(Pid::from_raw)?;
    // Open the pidfd before checking the identity: from then on the pid cannot be reused.
    let held = rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK).ok()?;
    is_same(identity, exit_file).then(|| ProcessHandle::Adopted(held))
}

/// Whether the pid still belongs to the recorded process: same start time, and no contradicting command line.
pub(in crate::terminal) fn is_same(identity: &ProcessIdentity, exit_file: &Path) -> bool {
    match (&identity.start_time, inspect_command_line(identity.pid, exit_file)) {
        (Some(start_time), CommandLine::Ours | CommandLine::Empty) => {
            group::start_time(identity.pid).as_ref() == Some(start_time)
        }
        (None, CommandLine::Ours) => true,
        (None, CommandLine::Empty) | (_, CommandLine::Other) => false,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommandLine {
    /// It names the exit file of this process.
    Ours,
    Other,
    /// The process is still loading, or has ended.
    Empty,
}

fn inspect_command_line(pid: u32, exit_file: &Path) -> CommandLine {
    let line = std::fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline")).unwrap_or_default();
    let exit_file = exit_file.as_os_str().as_encoded_bytes();
    match line.split(|byte| *byte == 0).nth(4) {
        Some(named) if named == exit_file => CommandLine::Ours,
        None if line.is_empty() => CommandLine::Empty,
        Some(_) | None => CommandLine::Other,
    }
}

/// Finds a process that was started but never recorded.
pub(in crate::terminal) fn find_by_command_line(exit_file: &Path) -> Option<ProcessIdentity> {
    let numbers = std::fs::read_dir("/proc").ok()?.flatten();
    let mut pids = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let pid = pids.find(|pid| inspect_command_line(*pid, exit_file) == CommandLine::Ours)?;
    Some(ProcessIdentity { pid, start_time: group::start_time(pid) })
}
