//! `gateway-starts.log`: the start times of this home's gateway, to detect respawn storms.
//!
//! One line per start, written first; `core::lifecycle::respawn` makes the decision. Without the file suspects do not wait.

use std::path::{Path, PathBuf};
use std::time::Duration;

use petasos_core::Millis;
use petasos_core::lifecycle::respawn::{RespawnLimit, StartLedger};

use crate::home::files::read;
use crate::home::files::write::{self, Durable};

pub fn path(home: &Path) -> PathBuf {
    home.join("gateway-starts.log")
}

/// Records this start and returns how long its suspects wait. `None`: not at all.
pub fn record(home: &Path, guard: RespawnLimit, now: Millis) -> Option<Duration> {
    let path = path(home);
    let mut starts = StartLedger::parse(&read::bytes_if_readable(&path).unwrap_or_default());
    let wait = starts.record(guard, now);
    if let Err(error) = write::replace(&path, starts.to_text().as_bytes(), Durable::Loose) {
        tracing::warn!(%error, "cannot record this start");
    }
    wait
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::files::testing::{NO_HOMES, for_each_damage};

    #[test]
    fn sixth_start_waits_until_a_quiet_window_has_passed() {
        let home = tempfile::tempdir().unwrap();
        let start = |second: u64| record(home.path(), RespawnLimit::default(), Millis(second * 1000));
        for second in 1..=5 {
            assert_eq!(start(second), None);
        }
        assert_eq!(start(6), Some(Duration::from_secs(10)));
        assert_eq!(start(200), None);
        let ledger = std::fs::read_to_string(path(home.path())).unwrap();
        assert!(ledger.starts_with("1.0\n2.0\n") && ledger.ends_with("200.0\n"), "{ledger}");
    }

    #[test]
    fn damaged_file_or_home_causes_no_wait() {
        let home = tempfile::tempdir().unwrap();
        for_each_damage(&path(home.path()), |what| {
            assert_eq!(record(home.path(), RespawnLimit::default(), Millis(1000)), None, "{what}");
        });
        for home in NO_HOMES.into_iter().filter(|home| !home.is_empty()) {
            assert_eq!(record(Path::new(home), RespawnLimit::default(), Millis(1000)), None, "{home:?}");
        }
    }
}
