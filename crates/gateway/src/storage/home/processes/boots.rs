//! `gateway/restart_loop.json`: starts that found suspects, turns that were executing when the process died.
//!
//! Read at every start, written only if there were suspects; the decision is made in `core::lifecycle::boots`. Whatever
//! goes wrong here, suspects are resumed at once: a broken breaker must not hold up work.

use std::io;
use std::path::{Path, PathBuf};

use petasos_core::Millis;
use petasos_core::lifecycle::boots::{Boots, Guard, Resume};

use crate::home::files::read;
use crate::home::files::write::{self, Durable};

pub fn path(home: &Path) -> PathBuf {
    home.join("gateway").join("restart_loop.json")
}

/// How this start treats suspects.
#[derive(Debug)]
pub struct Ledger {
    pub resume: Resume,
    boots: Boots,
}

/// Reads the file and decides. Nothing is written.
pub fn look(home: &Path, guard: Guard, now: Millis) -> Ledger {
    let bytes = read::bytes(&path(home)).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot read restart_loop.json; suspects are resumed at once");
        None
    });
    let mut boots = Boots::parse(&bytes.unwrap_or_default());
    let resume = boots.record(guard, now);
    Ledger { resume, boots }
}

impl Ledger {
    /// Writes this start down. Only for starts that found suspects.
    pub fn keep(&self, home: &Path, guard: Guard) {
        if !guard.is_on() {
            return;
        }
        if let Err(error) = self.try_keep(&path(home)) {
            tracing::warn!(%error, "cannot write restart_loop.json; restart loops are not noticed");
        }
    }

    fn try_keep(&self, path: &Path) -> io::Result<()> {
        write::replace_below(path, &serde_json::to_vec(&self.boots)?, Durable::Synced)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::home::files::testing::{NO_HOMES, ruin};

    fn record(home: &Path, guard: Guard, second: u64) -> Resume {
        let ledger = look(home, guard, Millis(second * 1000));
        ledger.keep(home, guard);
        ledger.resume
    }

    #[test]
    fn third_start_in_a_minute_resumes_suspects_one_by_one() {
        let home = tempfile::tempdir().unwrap();
        let start = |second| record(home.path(), Guard::default(), second);
        assert_eq!([start(1000), start(1010)], [Resume::AtOnce; 2]);
        assert_eq!(start(1020), Resume::OneByOne { boots: 3, pause: Duration::from_secs(10) });
        let file = std::fs::read_to_string(path(home.path())).unwrap();
        assert_eq!(file, r#"{"boots":[1000.0,1010.0,1020.0]}"#);
    }

    #[test]
    fn start_without_suspects_writes_nothing() {
        let home = tempfile::tempdir().unwrap();
        look(home.path(), Guard::default(), Millis(1000));
        let off = Guard { max_restarts: 0, ..Guard::default() };
        assert_eq!(record(home.path(), off, 0), Resume::AtOnce);
        assert!(!path(home.path()).exists());
    }

    #[test]
    fn resumes_at_once_whatever_is_wrong_with_the_file() {
        let home = tempfile::tempdir().unwrap();
        ruin(&path(home.path()), |what| {
            assert_eq!(record(home.path(), Guard::default(), 1), Resume::AtOnce, "{what}");
        });
        for home in NO_HOMES.into_iter().filter(|home| !home.is_empty()) {
            assert_eq!(record(Path::new(home), Guard::default(), 1), Resume::AtOnce, "{home:?}");
        }
    }
}
