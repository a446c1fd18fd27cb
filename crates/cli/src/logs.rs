//! The log, written to stderr. No level logs message text or secrets; known secrets are redacted by value as well, because
//! libraries log, too.
//!
//! A separate thread writes the lines from a bounded queue. When stderr is slow or closed, lines are dropped;
//! no task waits for the log. A crash loses at most the queue.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{OnceLock, PoisonError, RwLock};
use std::time::Duration;

use petasos_core::Redactor;
use tracing_subscriber::EnvFilter;

const QUEUE_CAPACITY: usize = 1024;
const FLUSH_TIMEOUT: Duration = Duration::from_millis(500);

/// Logs URLs and messages of MCP servers. `petasos_agent` logs its failures without them.
const SILENT: &str = "rmcp";

static QUEUE: OnceLock<SyncSender<LogMessage>> = OnceLock::new();
static REDACTOR: RwLock<Option<Redactor>> = RwLock::new(None);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verbosity {
    Quiet,
    Normal,
    Verbose,
    Trace,
}

enum LogMessage {
    Text(Vec<u8>),
    /// Acknowledged once everything before it is written.
    Flush(SyncSender<()>),
}

/// Redacts these secrets in all later lines of the log and of standard error.
pub fn redact(redactor: Redactor) {
    *REDACTOR.write().unwrap_or_else(PoisonError::into_inner) = Some(redactor);
}

pub(crate) fn redactor() -> Redactor {
    REDACTOR.read().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default()
}

/// Installs the subscriber and the panic hook. `RUST_LOG` overrides the verbosity.
#[expect(clippy::disallowed_methods, reason = "log lines are written by a thread, so that no task blocks")]
pub fn start(verbosity: Verbosity) {
    let from_environment = std::env::var("RUST_LOG").ok().filter(|text| !text.trim().is_empty());
    let directives = match (verbosity, from_environment) {
        (_, Some(from_environment)) => from_environment,
        (Verbosity::Quiet, None) => format!("error,{SILENT}=off"),
        (Verbosity::Normal, None) => directives("warn", "info"),
        (Verbosity::Verbose, None) => directives("info", "debug"),
        (Verbosity::Trace, None) => directives("debug", "trace"),
    };
    let filter = EnvFilter::builder().parse_lossy(directives);
    let plain = anstream::AutoStream::choice(&io::stderr()) == anstream::ColorChoice::Never;
    let (lines, queue) = sync_channel(QUEUE_CAPACITY);
    let writer = std::thread::Builder::new().name("petasos-log".into()).spawn(move || write(&queue));
    if writer.is_err() || QUEUE.set(lines).is_err() {
        return; // no thread, or the log has been started already
    }
    let log = tracing_subscriber::fmt()
        .compact()
        .with_writer(|| QueueWriter)
        .with_ansi(!plain)
        .with_target(false)
        .with_env_filter(filter);
    // A panic message may quote user text; its location never does.
    std::panic::set_hook(Box::new(|panic| {
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(location, "panic");
    }));
    // Fails only in tests, where a subscriber exists already.
    let _ = log.try_init();
}

/// Waits until the queue is written, at most `FLUSH_TIMEOUT`.
pub fn flush() {
    let Some(lines) = QUEUE.get() else { return };
    let (done, written) = sync_channel(1);
    if lines.try_send(LogMessage::Flush(done)).is_ok() {
        let _too_late = written.recv_timeout(FLUSH_TIMEOUT);
    }
}

fn write(queue: &Receiver<LogMessage>) {
    for line in queue {
        match line {
            LogMessage::Text(text) => {
                let _reader_gone = io::stderr().write_all(&text);
            }
            LogMessage::Flush(done) => {
                let _waiter_gone = done.send(());
            }
        }
    }
}

struct QueueWriter;

impl Write for QueueWriter {
    /// Called with a whole line.
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if let Some(lines) = QUEUE.get() {
            let line = redactor().redact_owned(String::from_utf8_lossy(text).into_owned());
            let _full = lines.try_send(LogMessage::Text(line.into_bytes()));
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn directives(other_level: &str, level: &str) -> String {
    let crates = [
        "petasos",
        "petasos_cli",
        "petasos_gateway",
        "petasos_web",
        "petasos_platforms",
        "petasos_agent",
        "petasos_store",
    ];
    let own: Vec<String> = crates.iter().map(|name| format!("{name}={level}")).collect();
    format!("{other_level},{SILENT}=off,{}", own.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_level_includes_the_mcp_client() {
        for (other_level, level) in [("warn", "info"), ("info", "debug"), ("debug", "trace")] {
            let filter = EnvFilter::builder().parse(directives(other_level, level)).unwrap().to_string();
            assert!(filter.split(',').any(|directive| directive == "rmcp=off"), "{filter}");
        }
    }
}
