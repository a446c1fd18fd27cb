//! The restart breaker's file, `gateway/restart_loop.json`: recent starts that found suspects.
//!
//! Read at every start, written only if there were suspects; `core::lifecycle::restart_breaker` makes the decision. On
//! errors suspects are resumed at once.

use std::io;
use std::path::{Path, PathBuf};

use petasos_core::Millis;
use petasos_core::lifecycle::restart_breaker::{RestartBreaker, ResumePacing, SuspectStarts};

use crate::home::files::read;
use crate::home::files::write::{self, Durable};

pub fn path(home: &Path) -> PathBuf {
    home.join("gateway").join("restart_loop.json")
}

/// How this start treats suspects.
#[derive(Debug)]
pub struct BootRecord {
    pub resume: ResumePacing,
    boots: SuspectStarts,
}

/// Reads the file and decides, without writing.
pub fn load(home: &Path, guard: RestartBreaker, now: Millis) -> BootRecord {
    let bytes = read::bytes(&path(home)).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot read restart_loop.json; suspects are resumed at once");
        None
    });
    let mut boots = SuspectStarts::parse(&bytes.unwrap_or_default());
    let resume = boots.record(guard, now);
    BootRecord { resume, boots }
}

impl BootRecord {
    /// Records this start. Only for starts that found suspects.
    pub fn store(&self, home: &Path, guard: RestartBreaker) {
        if !guard.is_on() {
            return;
        }
        if let Err(error) = self.try_store(&path(home)) {
            tracing::warn!(%error, "cannot write restart_loop.json; restart loops are not detected");
        }
    }

    fn try_store(&self, path: &Path) -> io::Result<()> {
        write::replace_below(path, &serde_json::to_vec(&self.boots)?, Durable::Synced)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::home::files::testing::{NO_HOMES, for_each_damage};

    fn record(home: &Path, guard: RestartBreaker, second: u64) -> ResumePacing {
        let record = load(home, guard, Millis(second * 1000));
        record.store(home, guard);
        record.resume
    }

    #[test]
    fn third_start_in_a_minute_resumes_one_by_one() {
        let home = tempfile::tempdir().unwrap();
        let start = |second| record(home.path(), RestartBreaker::default(), second);
        assert_eq!([start(1000), start(1010)], [ResumePacing::AtOnce; 2]);
        assert_eq!(start(1020), ResumePacing::OneByOne { boots: 3, pause: Duration::from_secs(10) });
        let file = std::fs::read_to_string(path(home.path())).unwrap();
        assert_eq!(file, r#"{"boots":[1000.0,1010.0,1020.0]}"#);
    }

    #[test]
    fn start_without_suspects_writes_nothing() {
        let home = tempfile::tempdir().unwrap();
        load(home.path(), RestartBreaker::default(), Millis(1000));
        let off = RestartBreaker { max_restarts: 0, ..RestartBreaker::default() };
        assert_eq!(record(home.path(), off, 0), ResumePacing::AtOnce);
        assert!(!path(home.path()).exists());
    }

    #[test]
    fn resumes_at_once_if_file_is_damaged() {
        let home = tempfile::tempdir().unwrap();
        for_each_damage(&path(home.path()), |what| {
            assert_eq!(record(home.path(), RestartBreaker::default(), 1), ResumePacing::AtOnce, "{what}");
        });
        for home in NO_HOMES.into_iter().filter(|home| !home.is_empty()) {
            assert_eq!(
                record(Path::new(home), RestartBreaker::default(), 1),
                ResumePacing::AtOnce,
                "{home:?}"
            );
        }
    }
}
