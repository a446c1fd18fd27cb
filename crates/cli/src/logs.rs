//! The log: to stderr, for the person who must act. No level shows message text or secrets.
//!
//! Lines go through a thread of their own, behind a bounded queue. Whoever reads stderr may leave or fall
//! asleep; then lines are lost, and nothing else: no task waits for the log, and none dies of it. A crash
//! loses at most what is in the queue.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use tracing_subscriber::EnvFilter;

const DEPTH: usize = 1024;
/// At the end, this long for a reader that is slow.
const FLUSH: Duration = Duration::from_millis(500);

static LINES: OnceLock<SyncSender<Line>> = OnceLock::new();

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loudness {
    Quiet,
    Normal,
    Verbose,
    Everything,
}

enum Line {
    Text(Vec<u8>),
    /// Answered when everything before it is written.
    Flush(SyncSender<()>),
}

/// `RUST_LOG` says it all if it is set; otherwise ours is heard, and of others what goes wrong.
pub fn start(loudness: Loudness) {
    let chosen = std::env::var("RUST_LOG").ok().filter(|text| !text.trim().is_empty());
    let directives = match (loudness, chosen) {
        (_, Some(chosen)) => chosen,
        (Loudness::Quiet, None) => "error".into(),
        (Loudness::Normal, None) => ours("warn", "info"),
        (Loudness::Verbose, None) => ours("info", "debug"),
        (Loudness::Everything, None) => ours("debug", "trace"),
    };
    let filter = EnvFilter::builder().parse_lossy(directives);
    let plain = anstream::AutoStream::choice(&io::stderr()) == anstream::ColorChoice::Never;
    let (lines, queue) = sync_channel(DEPTH);
    let writer = std::thread::Builder::new().name("petasos-log".into()).spawn(move || write(&queue));
    if writer.is_err() || LINES.set(lines).is_err() {
        return; // no thread, no log; or a second start, and the first one's log is as good
    }
    let log = tracing_subscriber::fmt()
        .compact()
        .with_writer(|| Queued)
        .with_ansi(!plain)
        .with_target(false)
        .with_env_filter(filter);
    // What a panic says may quote a message; where it happened never does.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, "panic");
    }));
    // A second subscriber in one process can only be a test's; its log is as good as ours.
    let _ = log.try_init();
}

/// Waits until what was logged is written, or nobody reads it.
pub fn flush() {
    let Some(lines) = LINES.get() else { return };
    let (done, written) = sync_channel(1);
    if lines.try_send(Line::Flush(done)).is_ok() {
        let _too_late = written.recv_timeout(FLUSH);
    }
}

fn write(queue: &Receiver<Line>) {
    for line in queue {
        match line {
            Line::Text(text) => {
                let _reader_gone = io::stderr().write_all(&text);
            }
            Line::Flush(done) => {
                let _asker_gone = done.send(());
            }
        }
    }
}

/// One event is one write.
struct Queued;

impl Write for Queued {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if let Some(lines) = LINES.get() {
            let _full = lines.try_send(Line::Text(text.to_vec()));
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn ours(others: &str, us: &str) -> String {
    let crates = [
        "petasos",
        "petasos_cli",
        "petasos_gateway",
        "petasos_web",
        "petasos_platforms",
        "petasos_agent",
        "petasos_store",
    ];
    let ours: Vec<String> = crates.iter().map(|name| format!("{name}={us}")).collect();
    format!("{others},{}", ours.join(","))
}
