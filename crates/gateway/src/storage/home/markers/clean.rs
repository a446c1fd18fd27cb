//! The clean-shutdown marker, `.clean_shutdown`.
//!
//! Written by a shutdown that interrupted no turn, removed by the next start. Both are synced: a lost marker costs a
//! needless recovery, and a marker that reappears would hide a crash.

use std::io;
use std::path::{Path, PathBuf};

use crate::home::files::write::{self, Durable};

pub fn path(home: &Path) -> PathBuf {
    home.join(".clean_shutdown")
}

pub fn write(home: &Path) -> io::Result<()> {
    write::replace(&path(home), b"", Durable::Synced)
}

/// Removes the marker. Returns whether the last shutdown was clean; `false` on errors.
pub fn consume(home: &Path) -> bool {
    write::remove(&path(home), Durable::Synced).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot remove the clean-shutdown marker");
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::files::testing::NO_HOMES;

    #[test]
    fn clean_marker_is_consumed_once() {
        let home = tempfile::tempdir().unwrap();
        assert!(!consume(home.path()));
        write(home.path()).unwrap();
        assert_eq!(path(home.path()).metadata().unwrap().len(), 0);
        assert!(consume(home.path()) && !consume(home.path()));
    }

    #[test]
    fn ignores_contents_and_accepts_only_files() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(path(home.path()), b"\xff junk").unwrap();
        assert!(consume(home.path()));
        std::fs::create_dir(path(home.path())).unwrap();
        assert!(!consume(home.path()));
        for home in NO_HOMES {
            assert!(!consume(Path::new(home)), "{home:?}");
        }
    }
}
