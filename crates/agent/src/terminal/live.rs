//! One background process: its output, its input, and by what its end is noticed.
//!
//! It runs behind a shell that leaves its exit code in a file ([`KEEPER`]), under a command line that names that file:
//! so its end is known to whoever comes later, and so is which process it is.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pty_process::{OwnedReadPty, OwnedWritePty};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin};
use tokio::sync::watch as news;

use super::record::{End, Identity, Reason, Record};
use super::{group, spool, text};

/// Runs what it is given, and leaves its exit code beside its output. Its own name is the process's id.
pub(super) const KEEPER: &str = r#"left=$1; shift; "$@"; code=$?; printf %s "$code" >"$left.new" && mv -f "$left.new" "$left"; exit "$code""#;

#[derive(Debug)]
pub(super) struct Process {
    pub(super) record: Record,
    pub(super) who: Identity,
    /// An earlier gateway started it.
    pub(super) adopted: bool,
    pub(super) log: PathBuf,
    pub(super) state: news::Sender<Option<End>>,
    /// Who asked it to end.
    pub(super) asked: Mutex<Option<Reason>>,
    pub(super) input: tokio::sync::Mutex<Input>,
}

#[derive(Debug)]
pub(super) enum Input {
    None,
    Pipe(ChildStdin),
    Terminal(OwnedWritePty),
}

/// By what its end is noticed.
pub(super) enum Life {
    Own(Child),
    /// Not our child: the kernel tells its end, and it left its code.
    Adopted(OwnedFd),
}

impl Process {
    pub(super) fn end(&self) -> Option<End> {
        *self.state.borrow()
    }

    /// Resolves when it is over, and that is on disk.
    pub(super) async fn ended(&self) -> End {
        loop {
            // The sender lives in `self`.
            if let Ok(end) = self.state.subscribe().wait_for(Option::is_some).await
                && let Some(end) = *end
            {
                return end;
            }
        }
    }

    /// What it printed last, as the model reads it.
    pub(super) async fn tail(&self, most: u64) -> String {
        let log = self.log.clone();
        let read = tokio::task::spawn_blocking(move || spool::tail(&log, most)).await;
        // What is gone, or never came, is nothing.
        text::readable(&read.ok().and_then(Result::ok).unwrap_or_default())
    }

    pub(super) async fn write(&self, bytes: &[u8]) -> io::Result<()> {
        match &mut *self.input.lock().await {
            Input::None => Err(closed()),
            Input::Pipe(pipe) => in_time(pipe.write_all(bytes)).await,
            Input::Terminal(pty) => in_time(pty.write_all(bytes)).await,
        }
    }

    /// Tells it that nothing more comes; gives what was done.
    pub(super) async fn close(&self) -> io::Result<&'static str> {
        let mut input = self.input.lock().await;
        match &mut *input {
            Input::None => Err(closed()),
            Input::Pipe(_) => {
                *input = Input::None;
                Ok("stdin closed")
            }
            Input::Terminal(pty) => {
                // What a person would type. The terminal stays, whatever comes of it: without it the process would be
                // hung up.
                in_time(pty.write_all(&[4])).await?;
                Ok("EOF sent")
            }
        }
    }

    pub(super) fn asked(&self) -> MutexGuard<'_, Option<Reason>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a process may take to read what is written to it.
const WRITE: Duration = Duration::from_secs(5);

async fn in_time(written: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    let late = |_| Err(io::Error::new(io::ErrorKind::TimedOut, "it does not read its input"));
    tokio::time::timeout(WRITE, written).await.unwrap_or_else(late)
}

fn closed() -> io::Error {
    io::Error::other("its stdin is not available")
}

impl Life {
    /// Its exit code; `None`: it must be looked for.
    pub(super) async fn ended(&mut self) -> Option<i32> {
        match self {
            Self::Own(child) => child.wait().await.ok().map(group::code),
            Self::Adopted(process) => {
                while !is_over(process) {
                    tokio::time::sleep(GLANCE).await;
                }
                None
            }
        }
    }
}

/// How often an adopted process is looked at: it reports to somebody else.
const GLANCE: Duration = Duration::from_millis(200);

/// The descriptor of a process becomes readable when it is gone.
fn is_over(process: &OwnedFd) -> bool {
    let mut asked = [PollFd::new(process, PollFlags::IN)];
    matches!(rustix::event::poll(&mut asked, Some(&Timespec::default())), Ok(1..))
}

/// From a terminal into the file. Ends with the terminal.
pub(super) async fn copy(mut screen: OwnedReadPty, log: PathBuf) {
    let Ok(file) = spool::create(&log) else { return };
    let mut file = tokio::fs::File::from_std(file);
    let mut buffer = vec![0; 16 << 10];
    while let Ok(count @ 1..) = screen.read(&mut buffer).await {
        if let Err(error) = file.write_all(&buffer[..count]).await {
            tracing::warn!(%error, "the output of a process cannot be kept");
        }
    }
    // A write error was reported above.
    let _ = file.flush().await;
}

/// The very process that was recorded, if it still runs.
pub(super) fn adopted_life(who: &Identity, left: &Path) -> Option<Life> {
    let pid = i32::try_from(who.pid).ok().filter(|pid| *pid > 1).and_then(Pid::from_raw)?;
    // First hold it, then look who it is: from here on the number means nobody else.
    let held = rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK).ok()?;
    is_same(who, left).then(|| Life::Adopted(held))
}

/// Whether the number still means the process that was recorded: it was born then, and nothing speaks against it.
pub(super) fn is_same(who: &Identity, left: &Path) -> bool {
    match (&who.born, line(who.pid, left)) {
        (Some(born), Line::Ours | Line::Empty) => group::born(who.pid).as_ref() == Some(born),
        (None, Line::Ours) => true,
        (None, Line::Empty) | (_, Line::Another) => false,
    }
}

/// What a command line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// It was started as the one that leaves its code there.
    Ours,
    Another,
    /// Nothing: it is being loaded, or over.
    Empty,
}

fn line(pid: u32, left: &Path) -> Line {
    let line = std::fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline")).unwrap_or_default();
    let left = left.as_os_str().as_encoded_bytes();
    match line.split(|byte| *byte == 0).nth(4) {
        Some(named) if named == left => Line::Ours,
        None if line.is_empty() => Line::Empty,
        Some(_) | None => Line::Another,
    }
}

/// For a process that was started and never written down.
pub(super) fn find_by_command_line(left: &Path) -> Option<Identity> {
    let numbers = std::fs::read_dir("/proc").ok()?.flatten();
    let mut pids = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let pid = pids.find(|pid| line(*pid, left) == Line::Ours)?;
    Some(Identity { pid, born: group::born(pid) })
}
