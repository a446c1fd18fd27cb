//! Signs of life: the heartbeat file, and the service manager's watchdog.
//!
//! The watchdog is fed only after the store has answered: a gateway whose disk hangs is not alive, however well its
//! event loop turns.

use std::path::{Path, PathBuf};
use std::time::Duration;

use petasos_core::Millis;
use tokio::time::{Instant, MissedTickBehavior};

use crate::clock;
use crate::home::heartbeat;
use crate::lifecycle::sd_notify::Notifier;
use crate::lifecycle::shutdown::Stopper;
use crate::runtime::commit::Commit;
use crate::storage::database::Db;

const HEARTBEAT: Duration = Duration::from_secs(30);

pub(crate) async fn run(db: Db, home: PathBuf, started: Millis, notifier: Notifier, stopper: Stopper) {
    let watchdog = notifier.watchdog_interval().map(|interval| interval / 2);
    let mut beat = tokio::time::interval(HEARTBEAT);
    let mut feed = tokio::time::interval_at(Instant::now(), watchdog.unwrap_or(HEARTBEAT));
    feed.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        petasos_runtime::select! {
            // a service manager that hears us finds the file
            biased;
            () = stopper.stopped() => return,
            _ = beat.tick() => write(&home, started).await,
            _ = feed.tick(), if watchdog.is_some() => feed_watchdog(&db, &notifier, watchdog.unwrap_or(HEARTBEAT)).await,
        }
    }
}

async fn write(home: &Path, started: Millis) {
    let home = home.to_path_buf();
    let beaten = petasos_runtime::blocking(move || heartbeat::beat(&home, started, clock::now())).await;
    if let Ok(Err(error)) = beaten {
        tracing::debug!(%error, "the heartbeat file cannot be written");
    }
}

async fn feed_watchdog(db: &Db, notifier: &Notifier, patience: Duration) {
    match tokio::time::timeout(patience, db.write(Commit::Pulse, |tx| tx.meta("pulse").map(drop))).await {
        Ok(Ok(())) => notifier.alive(),
        Ok(Err(error)) => {
            tracing::error!(%error, "the watchdog is not fed: the store refuses");
            notifier.status("the store refuses");
        }
        Err(_late) => {
            tracing::error!("the watchdog is not fed: the store does not answer");
            notifier.status("the store does not answer");
        }
    }
}
