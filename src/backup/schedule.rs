//! Backups that a running gateway makes by itself.

use std::path::PathBuf;
use std::time::Duration;

use petasos_core::Millis;
use petasos_gateway::Handle;

use super::{Plan, Secrets, make, newest};
use crate::config::{Home, Settings};
use crate::print::now;

/// How often the gateway looks whether one is due: the age of the newest one decides, not its own uptime.
const LOOK: Duration = Duration::from_secs(60);
const FIRST_LOOK: Duration = Duration::from_secs(300);
/// After a failure.
const AGAIN: Duration = Duration::from_secs(3600);

/// `None`: no backups by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) every: Option<Duration>,
    pub(crate) plan: Plan,
}

impl Schedule {
    pub(crate) fn of(home: &Home, settings: &Settings) -> Self {
        let hours = settings.count("backup.schedule_hours").unwrap_or_default();
        let directory =
            settings.text("backup.directory").map_or_else(|| home.path().join("backups"), PathBuf::from);
        let keep = settings.count("backup.keep").and_then(|keep| usize::try_from(keep).ok());
        let plan = Plan { directory, secrets: Secrets::LeaveOut, keep };
        Self { every: (hours > 0).then(|| Duration::from_secs(hours * 3600)), plan }
    }

    fn is_due(&self, every: Duration, now: Millis) -> bool {
        newest(&self.plan.directory).is_none_or(|(_, made)| now.since(made) >= every)
    }
}

/// Until the gateway leaves. A backup reads from a connection of its own: no commit waits for it.
pub(crate) async fn run(handle: Handle, home: Home, schedule: Schedule) {
    let Some(every) = schedule.every else { return };
    let mut pause = FIRST_LOOK;
    loop {
        tokio::select! {
            () = handle.leaving() => return,
            () = tokio::time::sleep(pause) => {}
        }
        pause = LOOK;
        let (home, schedule) = (home.clone(), schedule.clone());
        let look = move || schedule.is_due(every, now()).then(|| make(&home, &schedule.plan, now()));
        match tokio::task::spawn_blocking(look).await {
            Ok(None) => {}
            Ok(Some(Ok(made))) => {
                tracing::info!(path = %made.path.display(), bytes = made.bytes, removed = made.removed, "backup made");
            }
            Ok(Some(Err(failure))) => {
                tracing::error!(why = %failure, "the backup failed; it is tried again in an hour");
                pause = AGAIN;
            }
            Err(_panicked) => {
                tracing::error!("the backup panicked; it is tried again in an hour");
                pause = AGAIN;
            }
        }
    }
}
