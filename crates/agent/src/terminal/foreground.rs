//! Runs a foreground command and waits for its end.

use std::io;
use std::time::Duration;

use petasos_runtime::clock;
use pty_process::Pty;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

use super::capture::OutputCapture;
use super::group::{GRACE, GroupLeader};
use super::shell::Launch;

#[derive(Debug)]
pub(super) struct CommandResult {
    pub(super) output: String,
    pub(super) exit_code: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PtyMode {
    Off,
    On,
}

/// Wait for output that trails behind the end of the command.
const TRAILING_OUTPUT: Duration = Duration::from_millis(100);
const BUFFER: usize = 64 << 10;

/// Runs a command. Dropping the future ends its whole process group.
pub(super) async fn run(
    launch: Launch,
    pty: PtyMode,
    limit: Duration,
    mut capture: OutputCapture,
) -> io::Result<CommandResult> {
    let (child, mut output) = match pty {
        PtyMode::Off => launch.piped().map(|(child, pipe)| (child, CommandOutput::Pipe(pipe)))?,
        PtyMode::On => {
            launch.on_terminal().map(|(child, master)| (child, CommandOutput::Terminal(master)))?
        }
    };
    let mut leader = GroupLeader::new(child);
    let deadline = clock::monotonic() + limit;
    let mut buffer = vec![0; BUFFER];
    let mut open = true;
    let ended = loop {
        tokio::select! {
            read = output.read(&mut buffer), if open => match read {
                0 => open = false,
                count => capture.push(&buffer[..count]).await,
            },
            code = leader.wait() => break code,
            () = tokio::time::sleep_until(deadline) => break None,
        }
    };
    let exit_code = match ended {
        Some(code) => code,
        None => {
            leader.terminate(GRACE).await;
            TIMED_OUT
        }
    };
    // A child that lives on may hold the pipe open; the command's own output is available at once.
    while open && let Ok(count @ 1..) = tokio::time::timeout(TRAILING_OUTPUT, output.read(&mut buffer)).await
    {
        capture.push(&buffer[..count]).await;
        open = clock::monotonic() < deadline + GRACE * 2;
    }
    let mut output = capture.finish().await;
    if ended.is_none() {
        output.push_str(&format!("\n[Command timed out after {}s]", limit.as_secs()));
        output = output.trim_start().to_owned();
    }
    Ok(CommandResult { output, exit_code })
}

/// The exit code of `timeout(1)`.
const TIMED_OUT: i32 = 124;

enum CommandOutput {
    Pipe(pipe::Receiver),
    Terminal(Pty),
}

impl CommandOutput {
    /// Returns 0 at the end. A terminal without users reports an error, which counts as its end.
    async fn read(&mut self, buffer: &mut [u8]) -> usize {
        let read = match self {
            Self::Pipe(pipe) => pipe.read(buffer).await,
            Self::Terminal(pty) => pty.read(buffer).await,
        };
        read.unwrap_or(0)
    }
}
