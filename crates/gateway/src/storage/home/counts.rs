//! `.restart_failure_counts`: how often in a row a stop interrupted each session.
//!
//! A copy, for older programs, of what the store counts; one found at the first start is taken over. Nothing
//! counted, no file.

use std::io;
use std::path::{Path, PathBuf};

use petasos_core::session::FailureCounts;

use crate::home::files::read;
use crate::home::files::write::{self, Durable};

pub fn path(home: &Path) -> PathBuf {
    home.join(".restart_failure_counts")
}

pub fn write(home: &Path, counts: &FailureCounts) -> io::Result<()> {
    if counts.is_empty() {
        return write::remove(&path(home), Durable::Synced).map(drop);
    }
    write::replace(&path(home), &serde_json::to_vec(counts)?, Durable::Synced)
}

/// The text of the file, whatever it is; the store makes sense of it. `None`: no text.
pub fn read(home: &Path) -> Option<String> {
    read::bytes_if_readable(&path(home)).and_then(|bytes| String::from_utf8(bytes).ok())
}

#[cfg(test)]
mod tests {
    use petasos_core::SessionKey;

    use super::*;
    use crate::home::files::testing::{NO_HOMES, ruin};

    #[test]
    fn counts_are_written_and_the_file_goes_with_the_last_of_them() {
        let home = tempfile::tempdir().unwrap();
        let key = SessionKey("agent:main:telegram:dm:B".into());
        let mut counts = FailureCounts::default();
        counts.stopped([&key], &[]);
        write(home.path(), &counts).unwrap();
        assert_eq!(read(home.path()).as_deref(), Some(r#"{"agent:main:telegram:dm:B":1}"#));
        counts.succeeded(&key);
        for _ in 0..2 {
            write(home.path(), &counts).unwrap();
            assert!(!path(home.path()).exists());
        }
    }

    #[test]
    fn whatever_is_in_its_place_counts_nothing() {
        let home = tempfile::tempdir().unwrap();
        ruin(&path(home.path()), |what| {
            let text = read(home.path()).unwrap_or_default();
            let counts = serde_json::from_str::<FailureCounts>(&text).unwrap_or_default();
            assert!(counts.is_empty(), "{what}");
        });
        for home in NO_HOMES {
            assert_eq!(read(Path::new(home)), None, "{home:?}");
        }
    }
}
