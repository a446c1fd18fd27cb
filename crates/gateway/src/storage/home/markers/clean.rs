//! `.clean_shutdown`: the last stop left no turn behind.
//!
//! Left by a stop that interrupted nobody, taken by the next start. Both are on disk before anything else happens: a
//! file that is lost costs a needless recovery, one that comes back after it was taken would hide a crash.

use std::io;
use std::path::{Path, PathBuf};

use crate::home::files::write::{self, Durable};

pub fn path(home: &Path) -> PathBuf {
    home.join(".clean_shutdown")
}

pub fn leave(home: &Path) -> io::Result<()> {
    write::replace(&path(home), b"", Durable::Synced)
}

/// Whether the last stop was a clean one. In doubt it was not.
pub fn take(home: &Path) -> bool {
    write::remove(&path(home), Durable::Synced).unwrap_or_else(|error| {
        tracing::warn!(%error, "the mark of a clean stop cannot be taken away");
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::files::testing::NO_HOMES;

    #[test]
    fn a_clean_stop_is_seen_once() {
        let home = tempfile::tempdir().unwrap();
        assert!(!take(home.path()));
        leave(home.path()).unwrap();
        assert_eq!(path(home.path()).metadata().unwrap().len(), 0);
        assert!(take(home.path()) && !take(home.path()));
    }

    #[test]
    fn what_is_in_the_file_does_not_matter_and_what_is_no_file_is_no_mark() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(path(home.path()), b"\xff junk").unwrap();
        assert!(take(home.path()));
        std::fs::create_dir(path(home.path())).unwrap();
        assert!(!take(home.path()));
        for home in NO_HOMES {
            assert!(!take(Path::new(home)), "{home:?}");
        }
    }
}
