//! Shutdown watchdog: ends a shutdown that hangs.
//!
//! Runs in a thread of its own, because the event loop itself may hang. At its deadline it dumps the lifecycle state to a
//! log, removes the pid file and exits with 1. All accepted messages are on disk, so the next start continues.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::clock;
use crate::home::{pid, process::ProcessRecord};
use crate::lifecycle::gate::AcceptGate;

/// Armed until it is dropped.
#[derive(Debug)]
pub(crate) struct Watchdog(Arc<WatchdogTimer>);

#[derive(Debug)]
struct WatchdogTimer {
    /// `None`: the shutdown is complete.
    deadline: Mutex<Option<Instant>>,
    changed: Condvar,
}

const LOG: &str = "logs/gateway-shutdown-watchdog.log";
/// A larger log is truncated.
const LOG_LIMIT: u64 = 256 * 1024;

impl Watchdog {
    #[expect(clippy::disallowed_methods, reason = "a thread of its own, because the event loop may hang")]
    pub(crate) fn arm(after: Duration, home: PathBuf, own: ProcessRecord, gate: AcceptGate) -> Self {
        let timer = Arc::new(WatchdogTimer {
            deadline: Mutex::new(Some(clock::monotonic() + after)),
            changed: Condvar::new(),
        });
        let watched = timer.clone();
        let guard = move || {
            if watched.wait() {
                tracing::error!("the shutdown hangs; exiting by force");
                dump(&home, &gate);
                // A stale pid file is harmless: readers check the process.
                let _ = pid::remove(&pid::path(&home), &own);
                std::process::exit(1);
            }
        };
        if petasos_runtime::is_simulated() {
            // The thread would use real time.
            return Self(timer);
        }
        if let Err(error) = std::thread::Builder::new().name("petasos-watchdog".into()).spawn(guard) {
            tracing::error!(%error, "cannot start the shutdown watchdog");
        }
        Self(timer)
    }

    /// Moves the deadline to this time at least.
    pub(crate) fn not_before(&self, deadline: Instant) {
        self.0.set(|now| now.map(|now| now.max(deadline)));
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.0.set(|_| None);
    }
}

impl WatchdogTimer {
    fn set(&self, change: impl FnOnce(Option<Instant>) -> Option<Instant>) {
        let mut deadline = self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        *deadline = change(*deadline);
        self.changed.notify_one();
    }

    /// Waits for the deadline. `false`: the shutdown completed before.
    fn wait(&self) -> bool {
        let mut deadline = self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(at) = *deadline {
            let left = at.saturating_duration_since(clock::monotonic());
            if left.is_zero() {
                return true;
            }
            deadline = self.changed.wait_timeout(deadline, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }
}

fn dump(home: &Path, gate: &AcceptGate) {
    let path = home.join(LOG);
    let text = format!(
        "{:?} pid {}: the stop did not deadline by itself\n{:#?}\n",
        crate::clock::now(),
        std::process::id(),
        gate.try_snapshot()
    );
    let folder = path.parent().unwrap_or(home);
    let written = DirBuilder::new().recursive(true).mode(0o700).create(folder).and_then(|()| {
        let mut log = OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?;
        if log.metadata()?.len() > LOG_LIMIT {
            log.set_len(0)?;
        }
        log.write_all(text.as_bytes())
    });
    if let Err(error) = written {
        tracing::error!(%error, "cannot write the shutdown dump");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use std::process::Command;

    /// Home of the hanging child process.
    const HANG: &str = "PETASOS_TEST_HANGING_STOP";

    /// Helper: the test below runs it in a child process. Does nothing otherwise.
    #[test]
    fn hanging_stop() {
        let Some(home) = std::env::var_os(HANG).map(PathBuf::from) else { return };
        let file = pid::claim(&home).unwrap();
        let watchdog =
            Watchdog::arm(Duration::from_millis(50), home, file.record().clone(), AcceptGate::new(None));
        watchdog.not_before(clock::monotonic() + Duration::from_millis(100));
        loop {
            std::thread::park();
        }
    }

    #[test]
    fn truncates_log_that_is_too_large() {
        let home = tempfile::tempdir().unwrap();
        let log = home.path().join(LOG);
        let gate = AcceptGate::new(None);
        dump(home.path(), &gate);
        let one = fs::metadata(&log).unwrap().len();
        dump(home.path(), &gate);
        assert_eq!(fs::metadata(&log).unwrap().len(), 2 * one, "a small log is appended to");
        let grown = usize::try_from(LOG_LIMIT).unwrap() + 1;
        fs::write(&log, "x".repeat(grown)).unwrap();
        dump(home.path(), &gate);
        assert_eq!(fs::metadata(&log).unwrap().len(), one);
    }

    #[test]
    fn dumps_state_and_exits_when_shutdown_hangs() {
        let home = tempfile::tempdir().unwrap();
        let (_crate, module) = module_path!().split_once("::").unwrap();
        let ended = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("{module}::hanging_stop"), "--nocapture"])
            .env(HANG, home.path())
            .output()
            .unwrap();
        assert_eq!(ended.status.code(), Some(1), "{}", String::from_utf8_lossy(&ended.stderr));
        let dump = fs::read_to_string(home.path().join(LOG)).unwrap();
        assert!(dump.contains("did not deadline by itself") && dump.contains("holders"), "{dump}");
        assert!(!pid::path(home.path()).exists());
    }

    #[test]
    fn does_nothing_when_shutdown_completes() {
        let home = tempfile::tempdir().unwrap();
        let own = ProcessRecord::of_this_process();
        let watchdog =
            Watchdog::arm(Duration::from_secs(600), home.path().into(), own, AcceptGate::new(None));
        drop(watchdog);
        assert!(!home.path().join(LOG).exists());
    }
}
