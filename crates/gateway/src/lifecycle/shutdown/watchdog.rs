//! Ends a stop that does not end.
//!
//! A thread of its own, because what hangs may be the event loop. It knows nothing but a time; when that has come,
//! it writes down what the gateway was doing, takes the pid file away and leaves with 1. Everything that was
//! accepted is on disk, so the next start goes on from there.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::home::{pid, process::Record};
use crate::lifecycle::gate::Gate;

/// Armed until it is dropped.
#[derive(Debug)]
pub(crate) struct Watchdog(Arc<Leash>);

#[derive(Debug)]
struct Leash {
    /// `None`: the stop has ended.
    end: Mutex<Option<Instant>>,
    moved: Condvar,
}

const LOG: &str = "logs/gateway-shutdown-watchdog.log";
/// A log larger than this is begun anew.
const LOG_LIMIT: u64 = 256 * 1024;

impl Watchdog {
    pub(crate) fn arm(after: Duration, home: PathBuf, own: Record, gate: Gate) -> Self {
        let leash = Arc::new(Leash { end: Mutex::new(Some(Instant::now() + after)), moved: Condvar::new() });
        let watched = leash.clone();
        let guard = move || {
            if watched.wait() {
                tracing::error!("the stop hangs; leaving by force");
                dump(&home, &gate);
                // Whoever comes next does not believe a pid file anyway.
                let _ = pid::remove(&pid::path(&home), &own);
                std::process::exit(1);
            }
        };
        if petasos_runtime::is_simulated() {
            // It would measure the time of the machine.
            return Self(leash);
        }
        if let Err(error) = std::thread::Builder::new().name("petasos-watchdog".into()).spawn(guard) {
            tracing::error!(%error, "nobody watches over the stop");
        }
        Self(leash)
    }

    /// The stop was granted more time.
    pub(crate) fn not_before(&self, end: Instant) {
        self.0.set(|now| now.map(|now| now.max(end)));
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.0.set(|_| None);
    }
}

impl Leash {
    fn set(&self, change: impl FnOnce(Option<Instant>) -> Option<Instant>) {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        *end = change(*end);
        self.moved.notify_one();
    }

    /// Waits for the end. `false`: the stop was faster.
    fn wait(&self) -> bool {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(at) = *end {
            let left = at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            end = self.moved.wait_timeout(end, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }
}

fn dump(home: &Path, gate: &Gate) {
    let path = home.join(LOG);
    let text = format!(
        "{:?} pid {}: the stop did not end by itself\n{:#?}\n",
        crate::clock::now(),
        std::process::id(),
        gate.try_situation()
    );
    let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| {
        let mut log = OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?;
        if log.metadata()?.len() > LOG_LIMIT {
            log.set_len(0)?;
        }
        log.write_all(text.as_bytes())
    });
    if let Err(error) = written {
        tracing::error!(%error, "the state of the stop could not be written down");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Set for the process that hangs: its home.
    const HANG: &str = "PETASOS_TEST_HANGING_STOP";

    /// The test below starts this one again as a process of its own; in an ordinary run it has nothing to do.
    #[test]
    fn hanging_stop() {
        let Some(home) = std::env::var_os(HANG).map(PathBuf::from) else { return };
        let file = pid::claim(&home).unwrap();
        let dog = Watchdog::arm(Duration::from_millis(50), home, file.record().clone(), Gate::new(None));
        dog.not_before(Instant::now() + Duration::from_millis(100));
        loop {
            std::thread::park();
        }
    }

    #[test]
    fn dump_begins_a_log_anew_that_has_grown_too_large() {
        let home = tempfile::tempdir().unwrap();
        let (log, gate) = (home.path().join(LOG), Gate::new(None));
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
    fn a_stop_that_hangs_is_written_down_and_ended_by_force() {
        let home = tempfile::tempdir().unwrap();
        let (_crate, module) = module_path!().split_once("::").unwrap();
        let ended = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("{module}::hanging_stop"), "--nocapture"])
            .env(HANG, home.path())
            .output()
            .unwrap();
        assert_eq!(ended.status.code(), Some(1), "{}", String::from_utf8_lossy(&ended.stderr));
        let dump = fs::read_to_string(home.path().join(LOG)).unwrap();
        assert!(dump.contains("did not end by itself") && dump.contains("holders"), "{dump}");
        assert!(!pid::path(home.path()).exists());
    }

    #[test]
    fn a_stop_that_ends_is_left_alone() {
        let home = tempfile::tempdir().unwrap();
        let own = Record::of_this_process();
        let dog = Watchdog::arm(Duration::from_secs(600), home.path().into(), own, Gate::new(None));
        drop(dog);
        assert!(!home.path().join(LOG).exists());
    }
}
