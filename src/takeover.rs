//! Taking the place of a gateway that runs on the same home.
//!
//! In this order: tell it that the signal is intended (a marker), ask it to stop, give it the time that its own stop
//! may take, and only then end it by force. Whether the home is ours is decided by its lock alone, so there are
//! never two. Only the process that held the lock when we came is ever signalled, and only as long as it is a
//! gateway. Giving up removes the marker; a crash of ours leaves it, and it means nothing after a minute.

use std::time::{Duration, Instant};

use petasos_cli::failure::Failure;
use petasos_cli::lock::{self, Lock, NotTaken};
use petasos_cli::{life, print};
use petasos_config::Home;
use petasos_core::lifecycle::stop_budget;
use petasos_gateway::Lifetime;
use petasos_gateway::home::bot_lock;
use petasos_gateway::home::peers::{self, Peer};
use petasos_gateway::home::process::{self, Record};
use rustix::process::{Pid, Signal, kill_process};

const LOOK: Duration = Duration::from_millis(20);
/// What a stop may take when its turns have ended.
const AFTER_DRAIN: Duration = Duration::from_secs(30);
/// A killed process is gone within this, unless the kernel holds it.
const AFTER_KILL: Duration = Duration::from_secs(5);

/// The home, whoever has it.
pub(crate) async fn take(home: &Home) -> Result<Lock, Failure> {
    let Some(old) = lock::holder(&home.lock_file()).map(|held| held.process) else {
        return lock::take(home);
    };
    verify(&old)?;
    let drain = life::drain_timeout(home, Some(&old)).unwrap_or(Lifetime::default().drain_timeout);
    let taken = replace(home, &old, stop_budget(drain)).await;
    // Taken by the old gateway, or of no use any more.
    if peers::probe(home.path(), Peer::Takeover, &old, print::now()) {
        let _stays_for_a_minute = peers::clear(home.path(), Peer::Takeover);
    }
    let lock = taken?;
    if let Some(directory) = bot_lock::directory(|name| std::env::var_os(name))
        && let Err(error) = bot_lock::release_of(&directory, &old)
    {
        tracing::warn!(%error, "what the old gateway had for itself may still look taken");
    }
    Ok(lock)
}

/// Signals are for gateways only: a pid can have become somebody else's.
fn verify(old: &Record) -> Result<(), Failure> {
    if old.is_alive() && process::is_gateway(old.pid) {
        return Ok(());
    }
    let what =
        format!("the process that holds this home (pid {}) is no gateway, so it is not replaced", old.pid);
    Err(Failure::new(what).next("end it yourself; it may be a petasos chat"))
}

async fn replace(home: &Home, old: &Record, budget: Duration) -> Result<Lock, Failure> {
    let pid = old.pid;
    peers::write(home.path(), Peer::Takeover, old, print::now()).map_err(|error| {
        Failure::new(format!("the gateway (pid {pid}) cannot be told of its end: {error}"))
    })?;
    tracing::info!(
        pid,
        seconds = budget.as_secs(),
        "taking the place of another gateway; waiting for it to stop"
    );
    signal(old, Signal::TERM)?;
    // Somebody may have given its turns more time than is usual.
    let granted = || {
        let more = life::published_end(home, old)?.since(print::now());
        (!more.is_zero()).then(|| more + AFTER_DRAIN)
    };
    if let Some(lock) = free(home, old, budget, granted).await? {
        return Ok(lock);
    }
    tracing::warn!(pid, "the other gateway did not stop in its time; ending it by force");
    signal(old, Signal::KILL)?;
    if let Some(lock) = free(home, old, AFTER_KILL, || None).await? {
        return Ok(lock);
    }
    let failure = Failure::new(format!("the gateway (pid {pid}) cannot be ended, not even by force"));
    Err(failure.next("look at it: ps -o stat,wchan,args -p PID; perhaps its disk does not answer"))
}

/// A process that is gone already is what we want.
fn signal(old: &Record, signal: Signal) -> Result<(), Failure> {
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

/// `None`: the old one still has the home. `granted`: how much longer it may take by its own account.
async fn free(
    home: &Home,
    old: &Record,
    most: Duration,
    granted: impl Fn() -> Option<Duration>,
) -> Result<Option<Lock>, Failure> {
    let mut end = Instant::now().checked_add(most);
    loop {
        match Lock::take(&home.lock_file()) {
            Ok(lock) => return Ok(Some(lock)),
            Err(NotTaken::Held { pid: Some(pid) }) if pid != old.pid => {
                let what = format!("another gateway (pid {pid}) was faster and has this home now");
                return Err(Failure::new(what).next("petasos status shows it"));
            }
            Err(NotTaken::Held { .. }) => {}
            Err(error @ NotTaken::Io { .. }) => return Err(lock::not_taken(home, error)),
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            match granted() {
                Some(more) => end = Instant::now().checked_add(more),
                None => return Ok(None),
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}
