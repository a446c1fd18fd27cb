//! Takes over the home of a running gateway.
//!
//! Steps: write the takeover marker, send SIGTERM, wait for the time that a stop may take, then send SIGKILL.
//! The lock of the home alone decides ownership, so two gateways never run. Only the process that held the
//! lock at the beginning is signalled, and only while it is a gateway. Giving up removes the marker; after a
//! crash of this process the marker stays and expires after a minute.

use std::time::Duration;

use petasos_cli::failure::Failure;
use petasos_cli::lock::{self, Lock, LockError};
use petasos_cli::{observe, print};
use petasos_config::Home;
use petasos_core::lifecycle::stop_budget;
use petasos_gateway::Lifetime;
use petasos_gateway::home::bot_lock;
use petasos_gateway::home::peers::{self, SignalMarker};
use petasos_gateway::home::process::{self, ProcessRecord};
use petasos_runtime::clock;
use rustix::process::{Pid, Signal, kill_process};

const POLL_INTERVAL: Duration = Duration::from_millis(20);
const AFTER_DRAIN: Duration = Duration::from_secs(30);
/// A killed process exits within this, unless the kernel blocks it.
const AFTER_KILL: Duration = Duration::from_secs(5);

/// Locks the home and stops the gateway that holds it, if there is one.
pub(crate) async fn take_over(home: &Home) -> Result<Lock, Failure> {
    let Some(old) = lock::holder(&home.lock_file()).map(|held| held.process) else {
        return lock::acquire(home);
    };
    ensure_gateway(&old)?;
    let drain = observe::drain_timeout(home, Some(&old)).unwrap_or(Lifetime::default().drain_timeout);
    let acquired = replace(home, &old, stop_budget(drain)).await;
    // Consumed by the old gateway, or no longer needed.
    if peers::probe(home.path(), SignalMarker::Takeover, &old, print::now()) {
        let _stays_for_a_minute = peers::clear(home.path(), SignalMarker::Takeover);
    }
    let lock = acquired?;
    if let Some(directory) = bot_lock::directory(|name| std::env::var_os(name))
        && let Err(error) = bot_lock::release_of(&directory, &old)
    {
        tracing::warn!(%error, "bot locks of the old gateway may not be released");
    }
    Ok(lock)
}

/// Refuses a process that is not a gateway: a pid may have been reused.
fn ensure_gateway(old: &ProcessRecord) -> Result<(), Failure> {
    if old.is_alive() && process::is_gateway(old.pid) {
        return Ok(());
    }
    let message =
        format!("the process that holds this home (pid {}) is not a gateway, so it is not replaced", old.pid);
    Err(Failure::new(message).next("stop that process yourself; it may be petasos chat"))
}

async fn replace(home: &Home, old: &ProcessRecord, budget: Duration) -> Result<Lock, Failure> {
    let pid = old.pid;
    peers::write(home.path(), SignalMarker::Takeover, old, print::now()).map_err(|error| {
        Failure::new(format!("the takeover marker for the gateway (pid {pid}) cannot be written: {error}"))
    })?;
    tracing::info!(pid, seconds = budget.as_secs(), "taking over; waiting for the other gateway to stop");
    signal(old, Signal::TERM)?;
    // Its turns may have been given more time than the drain timeout.
    let extension = || {
        let more = observe::published_deadline(home, old)?.since(print::now());
        (!more.is_zero()).then(|| more + AFTER_DRAIN)
    };
    if let Some(lock) = acquire_when_free(home, old, budget, extension).await? {
        return Ok(lock);
    }
    tracing::warn!(pid, "the other gateway did not stop in time; killing it");
    signal(old, Signal::KILL)?;
    if let Some(lock) = acquire_when_free(home, old, AFTER_KILL, || None).await? {
        return Ok(lock);
    }
    let failure = Failure::new(format!("the gateway (pid {pid}) did not exit, even after SIGKILL"));
    Err(failure.next(format!("inspect it with ps -o stat,wchan,args -p {pid}; its disk may not respond")))
}

/// A process that has exited already is no error.
fn signal(old: &ProcessRecord, signal: Signal) -> Result<(), Failure> {
    let pid = i32::try_from(old.pid).ok().and_then(Pid::from_raw);
    let Some(pid) = pid.filter(|_| old.is_alive() && process::is_gateway(old.pid)) else { return Ok(()) };
    match kill_process(pid, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => {
            let failure = Failure::new(format!("the gateway (pid {}) cannot be signalled: {error}", old.pid));
            Err(failure.next("it may belong to another user; that user, or root, can replace it"))
        }
    }
}

/// `None` if the old gateway still holds the home. `extension`: how much longer its turns may take.
async fn acquire_when_free(
    home: &Home,
    old: &ProcessRecord,
    budget: Duration,
    extension: impl Fn() -> Option<Duration>,
) -> Result<Option<Lock>, Failure> {
    let mut end = clock::monotonic().checked_add(budget);
    loop {
        match Lock::acquire(&home.lock_file()) {
            Ok(lock) => return Ok(Some(lock)),
            Err(LockError::Held { pid: Some(pid) }) if pid != old.pid => {
                let message = format!("another gateway (pid {pid}) has taken over this home in the meantime");
                return Err(Failure::new(message).next("petasos status shows it"));
            }
            Err(LockError::Held { .. }) => {}
            Err(error @ LockError::Io { .. }) => return Err(lock::lock_failure(home, error)),
        }
        if end.is_some_and(|end| clock::monotonic() >= end) {
            match extension() {
                Some(more) => end = clock::monotonic().checked_add(more),
                None => return Ok(None),
            }
        }
        clock::sleep(POLL_INTERVAL).await;
    }
}
