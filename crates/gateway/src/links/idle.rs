//! Sleeping when there is nothing to do, behind a connector that wakes us.
//!
//! Owns nothing but the moment of its last try. The connection is let go only after the connector has said that it
//! keeps what comes, and only if there is a way to sleep: otherwise it would be dialled again at once, for nothing.
//! A crash anywhere here leaves a connector that keeps what comes until the next start.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use petasos_core::Millis;
use petasos_core::lifecycle::Leave;
use petasos_relay::idle::{Awake, Means, Work, is_idle};
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

use crate::clock;
use crate::lifecycle::gate::Gate;
use crate::lifecycle::shutdown::Stopper;
use crate::links::channels::Channels;
use crate::storage::database::Db;

/// How a gateway sleeps, as its owner wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doze {
    pub wanted: bool,
    /// The connector knows an address to wake us by.
    pub wake_url: bool,
    /// Nobody has written for so long.
    pub after: Duration,
    pub lever: Lever,
    /// How often we look.
    pub tick: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lever {
    None,
    /// The process ends; whoever calls the wake address starts it again.
    Exit,
    /// A command suspends the machine; when it runs again, so do we.
    Command(String),
}

impl Default for Doze {
    fn default() -> Self {
        let (wanted, wake_url, lever) = (false, false, Lever::None);
        Self { wanted, wake_url, after: Duration::from_secs(300), lever, tick: Duration::from_secs(30) }
    }
}

/// When somebody wrote to us last. Our own events are no traffic.
#[derive(Debug, Clone)]
pub(crate) struct Traffic(Arc<AtomicU64>);

impl Traffic {
    pub(crate) fn new(now: Millis) -> Self {
        Self(Arc::new(AtomicU64::new(now.0)))
    }

    pub(crate) fn heard(&self, now: Millis) {
        self.0.store(now.0, Ordering::Relaxed);
    }

    fn last(&self) -> Millis {
        Millis(self.0.load(Ordering::Relaxed))
    }
}

/// How long the connector may take to grant it.
const GRANTED_WITHIN: Duration = Duration::from_secs(10);
/// How long a suspend may take; so long nobody dials.
const HOLD: Duration = Duration::from_secs(60);
/// Nobody dials while the process ends. It never takes so long.
const UNTIL_GONE: Duration = Duration::from_secs(3600);
/// A machine that was asked to sleep does so within this, or not at all.
const FALLS_ASLEEP: Duration = Duration::from_secs(5);
const GLANCE: Duration = Duration::from_millis(200);
/// The clock on the wall went on for so much longer than we did: the machine slept.
const SLEPT: Duration = Duration::from_secs(1);
const COOLDOWN: Duration = Duration::from_secs(60);

/// What decides whether this gateway may sleep.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) db: Db,
    pub(crate) channels: Arc<Channels>,
    pub(crate) gate: Gate,
    pub(crate) traffic: Traffic,
    pub(crate) stopper: Stopper,
}

pub(crate) async fn run(watched: Watched, doze: Doze) {
    match means(&watched, &doze).armed() {
        Ok(()) => tracing::info!(after = ?doze.after, "we sleep when nobody needs us"),
        Err(Awake::NotWanted) => return,
        Err(why) => return tracing::info!(why = why.as_str(), "we do not sleep"),
    }
    loop {
        petasos_runtime::select! {
            () = watched.stopper.stopped() => return,
            () = sleep(doze.tick) => {}
        }
        if !is_due(&watched, &doze).await {
            continue;
        }
        let tried = clock::now();
        if lie_down(&watched, &doze).await {
            return;
        }
        petasos_runtime::select! {
            () = watched.stopper.stopped() => return,
            () = cool_down(&watched, &doze, tried) => {}
        }
    }
}

/// Not again for a while, unless somebody has written since: then everything begins anew.
async fn cool_down(watched: &Watched, doze: &Doze, tried: Millis) {
    let began = Instant::now();
    while began.elapsed() < COOLDOWN.max(doze.tick) && watched.traffic.last() < tried {
        sleep(doze.tick.min(COOLDOWN)).await;
    }
}

fn means(watched: &Watched, doze: &Doze) -> Means {
    let mut adapters = watched.channels.adapters();
    Means {
        wanted: doze.wanted,
        only_relayed: watched.channels.relay().is_some() && adapters.all(|adapter| adapter.relay().is_some()),
        wake_url: doze.wake_url,
        lever: doze.lever != Lever::None,
    }
}

async fn is_due(watched: &Watched, doze: &Doze) -> bool {
    // Nobody can be told that we leave while nobody hears us.
    let up = watched.channels.relay().is_some_and(|relay| relay.is_up());
    up && is_idle(work(watched).await, watched.traffic.last(), clock::now(), doze.after)
}

/// `None`: it cannot be read.
async fn work(watched: &Watched) -> Option<Work> {
    let active = watched.gate.situation().active() > 0;
    let read = watched.db.read(|reader| {
        let owed = reader.outbox_counts()?;
        Ok(Work {
            turns: !reader.keys_with_work()?.is_empty(),
            owed: owed.due + owed.sending + owed.streaming > 0,
            completions: !reader.queued_completions()?.is_empty(),
            processes: !reader.processes(clock::now())?.is_empty(),
            jobs: reader.jobs()?.iter().any(|(_, next)| next.is_some()),
        })
    });
    let work =
        read.await.inspect_err(|error| tracing::warn!(%error, "what is left to do cannot be read")).ok()?;
    Some(Work { turns: work.turns || active, ..work })
}

/// `true`: the process ends.
async fn lie_down(watched: &Watched, doze: &Doze) -> bool {
    let Some(relay) = watched.channels.relay() else { return false };
    let _told = watched.gate.doze();
    if !relay.go_idle(GRANTED_WITHIN).await {
        tracing::info!("the connector did not grant it; we stay");
        return false;
    }
    // What came before the grant is on disk, and may be work.
    if !is_due(watched, doze).await {
        relay.wake().await;
        return false;
    }
    let hold = match &doze.lever {
        Lever::None => {
            relay.wake().await;
            return false;
        }
        Lever::Exit => UNTIL_GONE,
        Lever::Command(_) => HOLD,
    };
    // Nothing has come since the grant, and from here on nothing can.
    if !relay.sleep(Some(hold)).await {
        tracing::info!("the connection was lost behind the grant; we stay");
        return false;
    }
    match &doze.lever {
        Lever::Command(command) => {
            tracing::info!("nothing to do; the machine is asked to sleep");
            if suspended(command).await {
                slept().await;
            }
            relay.wake().await;
            false
        }
        Lever::None | Lever::Exit => {
            tracing::info!("nothing to do; the process ends until it is wanted");
            watched.gate.leave(Leave::Stop, Some("nothing to do".into()));
            true
        }
    }
}

/// Resolves when the machine has slept and is awake again, or did not fall asleep. While it sleeps our own time stands
/// still.
async fn slept() {
    let (began, wall) = (Instant::now(), clock::now());
    while began.elapsed() < FALLS_ASLEEP {
        sleep(GLANCE).await;
        if clock::now().since(wall) > began.elapsed() + SLEPT {
            return tracing::info!("the machine has slept");
        }
    }
}

async fn suspended(command: &str) -> bool {
    #[cfg(feature = "simulation")]
    if petasos_runtime::is_simulated() {
        return crate::runtime::simulation::suspended();
    }
    let run = Command::new("/bin/sh").arg("-c").arg(command).kill_on_drop(true).status();
    match timeout(HOLD, run).await {
        Ok(Ok(status)) if status.success() => true,
        Ok(Ok(status)) => {
            tracing::warn!(%status, "the machine does not sleep");
            false
        }
        Ok(Err(error)) => {
            tracing::warn!(%error, "the machine does not sleep");
            false
        }
        Err(_elapsed) => {
            tracing::warn!("the machine takes too long to sleep");
            false
        }
    }
}
