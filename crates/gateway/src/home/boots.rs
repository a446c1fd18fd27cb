//! `gateway/restart_loop.json`: starts that had something to resume.
//!
//! Read and written once per such start; what they mean is decided in `core::lifecycle::boots`. Whatever goes wrong
//! here, sessions are resumed: the breaker protects from loops, and a broken breaker must not hold up work.

use std::io;
use std::path::{Path, PathBuf};

use petasos_core::Millis;
use petasos_core::lifecycle::boots::{Boots, Guard, Resume};

use super::read;
use super::write::{self, Durable};

pub fn path(home: &Path) -> PathBuf {
    home.join("gateway").join("restart_loop.json")
}

/// Only for starts that have something to resume.
pub fn record(home: &Path, guard: Guard, now: Millis) -> Resume {
    if !guard.is_on() {
        return Resume::Allowed;
    }
    try_record(&path(home), guard, now).unwrap_or_else(|error| {
        tracing::warn!(%error, "restart loops cannot be noticed");
        Resume::Allowed
    })
}

fn try_record(path: &Path, guard: Guard, now: Millis) -> io::Result<Resume> {
    let mut boots = Boots::parse(&read::bytes(path)?.unwrap_or_default());
    let resume = boots.record(guard, now);
    write::replace_below(path, &serde_json::to_vec(&boots)?, Durable::Synced)?;
    Ok(resume)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{NO_HOMES, ruin};
    use super::*;

    #[test]
    fn the_third_start_in_a_minute_resumes_nothing() {
        let home = tempfile::tempdir().unwrap();
        let start = |second: u64| record(home.path(), Guard::default(), Millis(second * 1000));
        assert_eq!([start(1000), start(1010)], [Resume::Allowed; 2]);
        assert_eq!(start(1020), Resume::Skipped { boots: 3 });
        let file = std::fs::read_to_string(path(home.path())).unwrap();
        assert_eq!(file, r#"{"boots":[1000.0,1010.0,1020.0]}"#);
    }

    #[test]
    fn a_breaker_that_is_off_writes_nothing() {
        let home = tempfile::tempdir().unwrap();
        let off = Guard { max_restarts: 0, ..Guard::default() };
        assert_eq!(record(home.path(), off, Millis(0)), Resume::Allowed);
        assert!(!path(home.path()).exists());
    }

    #[test]
    fn whatever_is_wrong_sessions_are_resumed() {
        let home = tempfile::tempdir().unwrap();
        ruin(&path(home.path()), |what| {
            assert_eq!(record(home.path(), Guard::default(), Millis(1000)), Resume::Allowed, "{what}");
        });
        for home in NO_HOMES.into_iter().filter(|home| !home.is_empty()) {
            assert_eq!(record(Path::new(home), Guard::default(), Millis(1000)), Resume::Allowed, "{home:?}");
        }
    }
}
