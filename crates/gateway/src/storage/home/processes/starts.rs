//! `gateway-starts.log`: when this home's gateway was started, so that suspects wait in a respawn storm.
//!
//! One line per start, written before anything else is done; what it means is decided in `core::lifecycle::storm`.
//! Without the ledger no suspect waits.

use std::path::{Path, PathBuf};
use std::time::Duration;

use petasos_core::Millis;
use petasos_core::lifecycle::storm::{Guard, Starts};

use crate::home::files::read;
use crate::home::files::write::{self, Durable};

pub fn path(home: &Path) -> PathBuf {
    home.join("gateway-starts.log")
}

/// Adds this start and returns how long its suspects wait. `None`: not at all.
pub fn record(home: &Path, guard: Guard, now: Millis) -> Option<Duration> {
    let path = path(home);
    let mut starts = Starts::parse(&read::bytes_if_readable(&path).unwrap_or_default());
    let wait = starts.record(guard, now);
    if let Err(error) = write::replace(&path, starts.to_text().as_bytes(), Durable::Loose) {
        tracing::warn!(%error, "this start cannot be remembered");
    }
    wait
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::files::testing::{NO_HOMES, ruin};

    #[test]
    fn the_sixth_start_waits_and_a_quiet_window_later_none_does() {
        let home = tempfile::tempdir().unwrap();
        let start = |second: u64| record(home.path(), Guard::default(), Millis(second * 1000));
        for second in 1..=5 {
            assert_eq!(start(second), None);
        }
        assert_eq!(start(6), Some(Duration::from_secs(10)));
        assert_eq!(start(200), None);
        let ledger = std::fs::read_to_string(path(home.path())).unwrap();
        assert!(ledger.starts_with("1.0\n2.0\n") && ledger.ends_with("200.0\n"), "{ledger}");
    }

    #[test]
    fn a_ledger_or_a_home_that_is_none_makes_nobody_wait() {
        let home = tempfile::tempdir().unwrap();
        ruin(&path(home.path()), |what| {
            assert_eq!(record(home.path(), Guard::default(), Millis(1000)), None, "{what}");
        });
        for home in NO_HOMES.into_iter().filter(|home| !home.is_empty()) {
            assert_eq!(record(Path::new(home), Guard::default(), Millis(1000)), None, "{home:?}");
        }
    }
}
