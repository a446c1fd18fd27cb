//! The heartbeat file and the service manager's watchdog.
//!
//! The watchdog is notified only after a commit succeeded: a gateway whose disk hangs is not alive, even if its event loop
//! runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use petasos_core::Millis;
use tokio::time::MissedTickBehavior;

use crate::clock;
use crate::home::heartbeat;
use crate::lifecycle::sd_notify::Notifier;
use crate::lifecycle::shutdown::ShutdownHandle;
use crate::runtime::commit::Commit;
use crate::storage::database::Db;

const HEARTBEAT: Duration = Duration::from_secs(30);

pub(crate) async fn run(
    db: Db,
    home: PathBuf,
    started: Millis,
    notifier: Notifier,
    shutdown: ShutdownHandle,
) {
    let watchdog = notifier.watchdog_interval().map(|interval| interval / 2);
    let mut heartbeat_tick = tokio::time::interval(HEARTBEAT);
    let mut watchdog_tick = tokio::time::interval_at(clock::monotonic(), watchdog.unwrap_or(HEARTBEAT));
    watchdog_tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        petasos_runtime::select! {
            // Write the file before the first watchdog notification.
            biased;
            () = shutdown.stopped() => return,
            _ = heartbeat_tick.tick() => write(&home, started).await,
            _ = watchdog_tick.tick(), if watchdog.is_some() => notify_watchdog(&db, &notifier, watchdog.unwrap_or(HEARTBEAT)).await,
        }
    }
}

async fn write(home: &Path, started: Millis) {
    let home = home.to_path_buf();
    let written = petasos_runtime::blocking(move || heartbeat::write(&home, started, clock::now())).await;
    if let Ok(Err(error)) = written {
        tracing::debug!(%error, "cannot write the heartbeat file");
    }
}

async fn notify_watchdog(db: &Db, notifier: &Notifier, timeout: Duration) {
    match tokio::time::timeout(timeout, db.write(Commit::WriteProbe, |tx| tx.meta("pulse").map(drop))).await {
        Ok(Ok(())) => notifier.alive(),
        Ok(Err(error)) => {
            tracing::error!(%error, "watchdog not notified: the store refuses writes");
            notifier.status("the database refuses writes");
        }
        Err(_late) => {
            tracing::error!("watchdog not notified: the store does not respond");
            notifier.status("the database does not respond");
        }
    }
}
