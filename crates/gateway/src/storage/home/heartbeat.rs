//! `state/gateway.heartbeat`: shows that the event loop runs.
//!
//! The event loop writes it every 30 seconds, so an old file means that the loop hangs. For external monitors; the gateway
//! does not read it.

use std::io;
use std::path::{Path, PathBuf};

use petasos_core::Millis;
use petasos_core::lifecycle::stamp;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

use crate::home::files::write::{self, Durable};

pub fn path(home: &Path) -> PathBuf {
    home.join("state").join("gateway.heartbeat")
}

/// `started`: start of this process, wall clock.
pub fn write(home: &Path, started: Millis, now: Millis) -> io::Result<()> {
    let heartbeat = json!({
        "pid": std::process::id(),
        "updated_at": stamp::format(now),
        "monotonic": monotonic(),
        "start_time": stamp::seconds(started),
    });
    write::replace_below(&path(home), &serde_json::to_vec(&heartbeat)?, Durable::Loose)
}

fn monotonic() -> f64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn heartbeat_has_pid_time_and_start() {
        let home = tempfile::tempdir().unwrap();
        let one = || -> Value {
            write(home.path(), Millis(1_794_766_299_680), Millis(1_794_766_299_681)).unwrap();
            serde_json::from_slice(&std::fs::read(path(home.path())).unwrap()).unwrap()
        };
        let first = one();
        let second = one();
        assert_eq!(first["pid"], std::process::id());
        assert_eq!(first["updated_at"], "2026-11-15T18:11:39.681000+00:00");
        assert_eq!(first["start_time"], 1_794_766_299.68);
        assert!(second["monotonic"].as_f64() > first["monotonic"].as_f64());
    }

    #[test]
    fn does_not_create_missing_home() {
        let home = tempfile::tempdir().unwrap();
        let missing = home.path().join("missing");
        assert!(write(&missing, Millis(0), Millis(0)).is_err() && !missing.exists());
    }
}
