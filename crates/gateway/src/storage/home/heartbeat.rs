//! `state/gateway.heartbeat`: the event loop turns.
//!
//! Written by the loop itself every half minute, so that a file that grows old means a loop that stands still. Nothing
//! of ours reads it.

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

/// `started`: when this process was, by the wall clock.
pub fn beat(home: &Path, started: Millis, now: Millis) -> io::Result<()> {
    let beat = json!({
        "pid": std::process::id(),
        "updated_at": stamp::format(now),
        "monotonic": monotonic(),
        "start_time": stamp::seconds(started),
    });
    write::replace_below(&path(home), &serde_json::to_vec(&beat)?, Durable::Loose)
}

/// Seconds by the clock that nobody can set.
fn monotonic() -> f64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_beat_says_who_when_and_since_when_and_the_next_is_later() {
        let home = tempfile::tempdir().unwrap();
        let one = || -> Value {
            beat(home.path(), Millis(1_794_766_299_680), Millis(1_794_766_299_681)).unwrap();
            serde_json::from_slice(&std::fs::read(path(home.path())).unwrap()).unwrap()
        };
        let (first, second) = (one(), one());
        assert_eq!(first["pid"], std::process::id());
        assert_eq!(first["updated_at"], "2026-11-15T18:11:39.681000+00:00");
        assert_eq!(first["start_time"], 1_794_766_299.68);
        assert!(second["monotonic"].as_f64() > first["monotonic"].as_f64());
    }

    #[test]
    fn a_home_that_is_missing_is_an_error_and_is_not_made() {
        let home = tempfile::tempdir().unwrap();
        let missing = home.path().join("missing");
        assert!(beat(&missing, Millis(0), Millis(0)).is_err() && !missing.exists());
    }
}
