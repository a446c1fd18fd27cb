//! Sleep when idle, behind a connector that wakes the gateway.
//!
//! Owns only the time of its last attempt. The connection is closed only after the connector has confirmed that it keeps
//! new messages, and only if a suspend method is configured. After a crash the connector keeps new messages until the
//! next start.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use petasos_core::Millis;
use petasos_core::lifecycle::ShutdownReason;
use petasos_relay::idle::{AwakeReason, PendingWork, SleepConditions, is_idle};
use tokio::process::Command;
use tokio::time::timeout;

use crate::clock;
use crate::lifecycle::gate::AcceptGate;
use crate::lifecycle::shutdown::ShutdownHandle;
use crate::links::channels::Channels;
use crate::storage::database::Db;

/// When and how the gateway sleeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleSettings {
    pub wanted: bool,
    /// The connector has a wake address of this gateway.
    pub wake_url: bool,
    /// Minimum time since the last message.
    pub after: Duration,
    pub method: SuspendMethod,
    pub tick: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SuspendMethod {
    None,
    /// End the process; a call of the wake address starts it again.
    Exit,
    Command(String),
}

impl Default for IdleSettings {
    fn default() -> Self {
        let wanted = false;
        let wake_url = false;
        let method = SuspendMethod::None;
        Self { wanted, wake_url, after: Duration::from_secs(300), method, tick: Duration::from_secs(30) }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Traffic(Arc<AtomicU64>);

impl Traffic {
    pub(crate) fn new(now: Millis) -> Self {
        Self(Arc::new(AtomicU64::new(now.0)))
    }

    pub(crate) fn record(&self, now: Millis) {
        self.0.store(now.0, Ordering::Relaxed);
    }

    fn last(&self) -> Millis {
        Millis(self.0.load(Ordering::Relaxed))
    }
}

const GRANTED_WITHIN: Duration = Duration::from_secs(10);
/// For the suspend command; the link does not reconnect meanwhile.
const SUSPEND_TIMEOUT: Duration = Duration::from_secs(60);
/// Keeps the link from reconnecting while the process ends.
const EXIT_HOLD: Duration = Duration::from_secs(3600);
/// The machine suspends within this time of the command, or not at all.
const SUSPEND_WITHIN: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The wall clock was ahead of the monotonic clock by this much: the machine was suspended.
const MIN_CLOCK_JUMP: Duration = Duration::from_secs(1);
const COOLDOWN: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct IdleMonitor {
    pub(crate) db: Db,
    pub(crate) channels: Arc<Channels>,
    pub(crate) gate: AcceptGate,
    pub(crate) traffic: Traffic,
    pub(crate) shutdown: ShutdownHandle,
}

pub(crate) async fn run(monitor: IdleMonitor, settings: IdleSettings) {
    match sleep_conditions(&monitor, &settings).armed() {
        Ok(()) => tracing::info!(after = ?settings.after, "the gateway sleeps when idle"),
        Err(AwakeReason::NotWanted) => return,
        Err(why) => return tracing::info!(why = why.as_str(), "the gateway does not sleep when idle"),
    }
    loop {
        petasos_runtime::select! {
            () = monitor.shutdown.stopped() => return,
            () = clock::sleep(settings.tick) => {}
        }
        if !should_sleep(&monitor, &settings).await {
            continue;
        }
        let tried = clock::now();
        if go_to_sleep(&monitor, &settings).await {
            return;
        }
        petasos_runtime::select! {
            () = monitor.shutdown.stopped() => return,
            () = cool_down(&monitor, &settings, tried) => {}
        }
    }
}

/// Waits before the next attempt, or until a message arrives.
async fn cool_down(monitor: &IdleMonitor, settings: &IdleSettings, tried: Millis) {
    let began = clock::monotonic();
    while began.elapsed() < COOLDOWN.max(settings.tick) && monitor.traffic.last() < tried {
        clock::sleep(settings.tick.min(COOLDOWN)).await;
    }
}

fn sleep_conditions(monitor: &IdleMonitor, settings: &IdleSettings) -> SleepConditions {
    let mut adapters = monitor.channels.adapters();
    SleepConditions {
        wanted: settings.wanted,
        only_relayed: monitor.channels.relay().is_some() && adapters.all(|adapter| adapter.relay().is_some()),
        wake_url: settings.wake_url,
        lever: settings.method != SuspendMethod::None,
    }
}

async fn should_sleep(monitor: &IdleMonitor, settings: &IdleSettings) -> bool {
    // Without a connection the connector cannot be informed.
    let up = monitor.channels.relay().is_some_and(|relay| relay.is_up());
    up && is_idle(read_pending_work(monitor).await, monitor.traffic.last(), clock::now(), settings.after)
}

async fn read_pending_work(monitor: &IdleMonitor) -> Option<PendingWork> {
    let active = monitor.gate.snapshot().active() > 0;
    let read = monitor.db.read(|reader| {
        let counts = reader.outbox_counts()?;
        Ok(PendingWork {
            turns: !reader.keys_with_work()?.is_empty(),
            owed: counts.due + counts.sending + counts.streaming > 0,
            completions: !reader.queued_completions()?.is_empty(),
            processes: !reader.processes(clock::now())?.is_empty(),
            jobs: reader.jobs()?.iter().any(|(_, next)| next.is_some()),
        })
    });
    let work = read.await.inspect_err(|error| tracing::warn!(%error, "cannot read pending work")).ok()?;
    Some(PendingWork { turns: work.turns || active, ..work })
}

/// `true`: the process ends.
async fn go_to_sleep(monitor: &IdleMonitor, settings: &IdleSettings) -> bool {
    let Some(relay) = monitor.channels.relay() else { return false };
    let _sleeping = monitor.gate.mark_sleeping();
    if !relay.go_idle(GRANTED_WITHIN).await {
        tracing::info!("the connector did not confirm; staying awake");
        return false;
    }
    // Messages from before the confirmation are on disk and may be pending work.
    if !should_sleep(monitor, settings).await {
        relay.wake().await;
        return false;
    }
    let hold = match &settings.method {
        SuspendMethod::None => {
            relay.wake().await;
            return false;
        }
        SuspendMethod::Exit => EXIT_HOLD,
        SuspendMethod::Command(_) => SUSPEND_TIMEOUT,
    };
    // No message has arrived since the confirmation, and none can arrive after this.
    if !relay.sleep(Some(hold)).await {
        tracing::info!("the connection was lost after the confirmation; staying awake");
        return false;
    }
    match &settings.method {
        SuspendMethod::Command(command) => {
            tracing::info!("idle; suspending the machine");
            if run_suspend_command(command).await {
                wait_for_resume().await;
            }
            relay.wake().await;
            false
        }
        SuspendMethod::None | SuspendMethod::Exit => {
            tracing::info!("idle; the process ends until it is woken");
            monitor.gate.shut_down(ShutdownReason::Stop, Some("nothing to do".into()));
            true
        }
    }
}

/// Resolves when the machine has resumed, or did not suspend. The monotonic clock stops during suspend.
async fn wait_for_resume() {
    let began = clock::monotonic();
    let wall = clock::now();
    while began.elapsed() < SUSPEND_WITHIN {
        clock::sleep(POLL_INTERVAL).await;
        if clock::now().since(wall) > began.elapsed() + MIN_CLOCK_JUMP {
            return tracing::info!("the machine has resumed");
        }
    }
}

async fn run_suspend_command(command: &str) -> bool {
    #[cfg(feature = "simulation")]
    if petasos_runtime::is_simulated() {
        return crate::runtime::simulation::suspended();
    }
    let run = Command::new("/bin/sh").arg("-c").arg(command).kill_on_drop(true).status();
    match timeout(SUSPEND_TIMEOUT, run).await {
        Ok(Ok(status)) if status.success() => true,
        Ok(Ok(status)) => {
            tracing::warn!(%status, "the suspend command failed");
            false
        }
        Ok(Err(error)) => {
            tracing::warn!(%error, "the suspend command failed");
            false
        }
        Err(_elapsed) => {
            tracing::warn!("the suspend command timed out");
            false
        }
    }
}
