//! Backups that a running gateway makes by itself.

use std::path::PathBuf;
use std::time::Duration;

use petasos_config::keys::gateway;
use petasos_config::{Home, Settings};
use petasos_core::Millis;

use super::{Plan, Secrets, make, newest};
use crate::print::now;

/// How often the gateway looks whether one is due: the age of the newest one decides, not its own uptime.
const LOOK: Duration = Duration::from_secs(60);
const FIRST_LOOK: Duration = Duration::from_secs(300);
/// After a failure.
const AGAIN: Duration = Duration::from_secs(3600);

/// `None`: no backups by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    pub every: Option<Duration>,
    pub plan: Plan,
}

impl Schedule {
    pub fn of(home: &Home, settings: &Settings) -> Self {
        let directory = settings
            .get(&gateway::BACKUP_DIRECTORY)
            .map_or_else(|| home.path().join("backups"), PathBuf::from);
        let keep = Some(settings.get(&gateway::BACKUP_KEEP));
        let plan = Plan { directory, secrets: Secrets::LeaveOut, keep };
        Self { every: settings.get(&gateway::BACKUP_EVERY), plan }
    }
}

/// Whether the newest backup is older than the interval. One from the future (the clock was set back) is not.
fn is_due(newest: Option<Millis>, every: Duration, now: Millis) -> bool {
    newest.is_none_or(|made| now.since(made) >= every)
}

/// Until `leaving` resolves. A backup reads from a connection of its own: no commit waits for it.
pub async fn run(leaving: impl Future<Output = ()>, home: Home, schedule: Schedule) {
    let Some(every) = schedule.every else { return };
    let mut leaving = std::pin::pin!(leaving);
    let mut pause = FIRST_LOOK;
    loop {
        tokio::select! {
            () = &mut leaving => return,
            () = tokio::time::sleep(pause) => {}
        }
        pause = LOOK;
        let (home, schedule) = (home.clone(), schedule.clone());
        let look = move || {
            let newest = newest(&schedule.plan.directory).map(|(_, made)| made);
            is_due(newest, every, now()).then(|| make(&home, &schedule.plan, now()))
        };
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

    fn schedule(directory: PathBuf, every: Option<Duration>) -> Schedule {
        Schedule { every, plan: Plan { directory, secrets: Secrets::LeaveOut, keep: Some(7) } }
    }

    /// Time is virtual: it passes while nothing else is to be done.
    async fn until(what: impl Fn() -> bool) {
        while !what() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    fn count(directory: &Path) -> usize {
        super::super::list(directory).map_or(0, |all| all.len())
    }

    #[tokio::test(start_paused = true)]
    async fn makes_one_backup_and_no_other_before_it_is_due() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("backups");
        let started = tokio::time::Instant::now();
        let leaving = async {
            until(|| count(&directory) == 1).await;
            assert!(started.elapsed() >= FIRST_LOOK, "not right after the start");
            tokio::time::sleep(LOOK * 10).await;
        };
        run(leaving, home(folder.path()), schedule(directory.clone(), Some(HOUR))).await;
        assert_eq!(count(&directory), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn tries_again_an_hour_after_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("backups");
        fs::write(&directory, "a file is in the way").unwrap();
        let started = tokio::time::Instant::now();
        let leaving = async {
            tokio::time::sleep(FIRST_LOOK + LOOK).await;
            fs::remove_file(&directory).unwrap();
            until(|| count(&directory) == 1).await;
            assert!(started.elapsed() >= AGAIN);
        };
        run(leaving, home(folder.path()), schedule(directory.clone(), Some(HOUR))).await;
        assert_eq!(count(&directory), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn makes_none_without_an_interval() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("backups");
        run(std::future::pending(), home(folder.path()), schedule(directory.clone(), None)).await;
        assert!(!directory.exists());
    }
}
