//! Scheduled backups of a running gateway.

use std::path::PathBuf;
use std::time::Duration;

use petasos_config::keys::gateway;
use petasos_config::{Home, Settings};
use petasos_core::Millis;
use petasos_runtime::clock;

use super::{BackupPlan, SecretsMode, create, newest};
use crate::print::now;

/// The age of the newest backup decides when the next one is due, not the uptime of the gateway.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);
const FIRST_CHECK: Duration = Duration::from_secs(300);
const RETRY_DELAY: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupSchedule {
    pub interval: Option<Duration>,
    pub plan: BackupPlan,
}

impl BackupSchedule {
    pub fn from_settings(home: &Home, settings: &Settings) -> Self {
        let directory = settings
            .get(&gateway::BACKUP_DIRECTORY)
            .map_or_else(|| home.path().join("backups"), PathBuf::from);
        let keep = Some(settings.get(&gateway::BACKUP_KEEP));
        let plan = BackupPlan { directory, secrets: SecretsMode::Exclude, keep };
        Self { interval: settings.get(&gateway::BACKUP_EVERY), plan }
    }
}

/// Whether the newest backup is older than the interval. A backup from the future (the clock was set back) is
/// not.
fn is_due(newest: Option<Millis>, interval: Duration, now: Millis) -> bool {
    newest.is_none_or(|backup| now.since(backup) >= interval)
}

/// Runs until `shutdown` resolves. A backup reads over its own database connection, so no commit waits for
/// it.
pub async fn run(shutdown: impl Future<Output = ()>, home: Home, schedule: BackupSchedule) {
    let Some(interval) = schedule.interval else { return };
    let mut shutdown = std::pin::pin!(shutdown);
    let mut pause = FIRST_CHECK;
    loop {
        tokio::select! {
            () = &mut shutdown => return,
            () = clock::sleep(pause) => {}
        }
        pause = CHECK_INTERVAL;
        let home = home.clone();
        let schedule = schedule.clone();
        let check = move || {
            let newest = newest(&schedule.plan.directory).map(|(_, backup)| backup);
            is_due(newest, interval, now()).then(|| create(&home, &schedule.plan, now()))
        };
        match petasos_runtime::blocking(check).await {
            Ok(None) => {}
            Ok(Some(Ok(backup))) => {
                tracing::info!(path = %backup.path.display(), bytes = backup.bytes, removed = backup.removed, "backup created");
            }
            Ok(Some(Err(failure))) => {
                tracing::error!(error = %failure, "backup failed; retrying in an hour");
                pause = RETRY_DELAY;
            }
            Err(_panicked) => {
                tracing::error!("backup panicked; retrying in an hour");
                pause = RETRY_DELAY;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use petasos_store::Store;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn is_due_when_the_newest_is_as_old_as_the_interval() {
        let at = |hours: u64| Millis(hours * 3_600_000);
        for (newest, now, want) in [
            (None, at(0), true),
            (Some(at(10)), at(10), false),
            (Some(at(10)), Millis(at(12).0 - 1), false),
            (Some(at(10)), at(12), true),
            (Some(at(10)), at(5), false),
        ] {
            assert_eq!(is_due(newest, HOUR * 2, now), want, "{newest:?} at {now:?}");
        }
    }

    fn home(folder: &Path) -> Home {
        Store::open(folder.join("petasos.db")).unwrap().close().unwrap();
        Home::resolve(Some(folder), |_| None).unwrap()
    }

    fn schedule(directory: PathBuf, interval: Option<Duration>) -> BackupSchedule {
        BackupSchedule {
            interval,
            plan: BackupPlan { directory, secrets: SecretsMode::Exclude, keep: Some(7) },
        }
    }

    /// Time is paused and advances only while the runtime is idle.
    async fn until(condition: impl Fn() -> bool) {
        while !condition() {
            clock::sleep(Duration::from_secs(1)).await;
        }
    }

    fn count(directory: &Path) -> usize {
        super::super::list(directory).map_or(0, |all| all.len())
    }

    #[tokio::test(start_paused = true)]
    async fn creates_no_second_backup_before_it_is_due() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("backups");
        let started = clock::monotonic();
        let shutdown = async {
            until(|| count(&directory) == 1).await;
            assert!(started.elapsed() >= FIRST_CHECK, "not right after the start");
            clock::sleep(CHECK_INTERVAL * 10).await;
        };
        run(shutdown, home(folder.path()), schedule(directory.clone(), Some(HOUR))).await;
        assert_eq!(count(&directory), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn retries_an_hour_after_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("backups");
        fs::write(&directory, "a file is in the way").unwrap();
        let started = clock::monotonic();
        let shutdown = async {
            clock::sleep(FIRST_CHECK + CHECK_INTERVAL).await;
            fs::remove_file(&directory).unwrap();
            until(|| count(&directory) == 1).await;
            assert!(started.elapsed() >= RETRY_DELAY);
        };
        run(shutdown, home(folder.path()), schedule(directory.clone(), Some(HOUR))).await;
        assert_eq!(count(&directory), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn creates_none_without_an_interval() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("backups");
        run(std::future::pending(), home(folder.path()), schedule(directory.clone(), None)).await;
        assert!(!directory.exists());
    }
}
