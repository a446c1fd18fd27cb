//! A command whose end is waited for.

use std::io;
use std::time::Duration;

use pty_process::Pty;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::time::Instant;

use super::capture::Capture;
use super::group::{GRACE, Leader};
use super::shell::Launch;

/// What came of it.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) output: String,
    pub(super) exit_code: i32,
}

/// Whether the command gets a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Screen {
    None,
    Terminal,
}

/// How long output may trail behind the end of its command.
const TRAIL: Duration = Duration::from_millis(100);
/// Bytes that are read at once.
const PIECE: usize = 64 << 10;

/// Dropping the future ends the command and everything it started in its group.
pub(super) async fn run(
    launch: Launch,
    screen: Screen,
    limit: Duration,
    mut capture: Capture,
) -> io::Result<Ran> {
    let (child, mut output) = match screen {
        Screen::None => launch.piped().map(|(child, pipe)| (child, Output::Pipe(pipe)))?,
        Screen::Terminal => launch.on_terminal().map(|(child, pty)| (child, Output::Terminal(pty)))?,
    };
    let mut leader = Leader::new(child);
    let deadline = Instant::now() + limit;
    let mut buffer = vec![0; PIECE];
    let mut open = true;
    let ended = loop {
        tokio::select! {
            read = output.read(&mut buffer), if open => match read {
                0 => open = false,
                count => capture.take(&buffer[..count]).await,
            },
            code = leader.wait() => break code,
            () = tokio::time::sleep_until(deadline) => break None,
        }
    };
    let exit_code = match ended {
        Some(code) => code,
        None => {
            leader.end(GRACE).await;
            TIMED_OUT
        }
    };
    // Something that lives on may hold the pipe; what the command itself said is there at once.
    while open && let Ok(count @ 1..) = tokio::time::timeout(TRAIL, output.read(&mut buffer)).await {
        capture.take(&buffer[..count]).await;
        open = Instant::now() < deadline + GRACE * 2;
    }
    let mut output = capture.finish().await;
    if ended.is_none() {
        output.push_str(&format!("\n[Command timed out after {}s]", limit.as_secs()));
        output = output.trim_start().to_owned();
    }
    Ok(Ran { output, exit_code })
}

/// What `timeout` says, too.
const TIMED_OUT: i32 = 124;

enum Output {
    Pipe(pipe::Receiver),
    Terminal(Pty),
}

impl Output {
    /// Zero at the end. A terminal whose last user has gone reports an error, which is its end.
    async fn read(&mut self, buffer: &mut [u8]) -> usize {
        let read = match self {
            Self::Pipe(pipe) => pipe.read(buffer).await,
            Self::Terminal(pty) => pty.read(buffer).await,
        };
        read.unwrap_or(0)
    }
}
