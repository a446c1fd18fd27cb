//! `.restart_failure_counts`: how often in a row a shutdown interrupted each session.
//!
//! A copy of the store's counts for older programs, imported at the first start of a home. Absent if there are no counts.

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

/// The unparsed text of the file. `None`: missing or no text.
pub fn read(home: &Path) -> Option<String> {
    read::bytes_if_readable(&path(home)).and_then(|bytes| String::from_utf8(bytes).ok())
}

#[cfg(test)]
mod tests {
    use petasos_core::SessionKey;

    use super::*;
    use crate::home::files::testing::{NO_HOMES, for_each_damage};

    #[test]
    fn removes_file_when_no_counts_are_left() {
        let home = tempfile::tempdir().unwrap();
        let key = SessionKey("agent:main:telegram:dm:B".into());
        let mut counts = FailureCounts::default();
        counts.record_stop([&key], &[]);
        write(home.path(), &counts).unwrap();
        assert_eq!(read(home.path()).as_deref(), Some(r#"{"agent:main:telegram:dm:B":1}"#));
        counts.record_success(&key);
        for _ in 0..2 {
            write(home.path(), &counts).unwrap();
            assert!(!path(home.path()).exists());
        }
    }

    #[test]
    fn damaged_file_has_no_counts() {
        let home = tempfile::tempdir().unwrap();
        for_each_damage(&path(home.path()), |what| {
            let text = read(home.path()).unwrap_or_default();
            let counts = serde_json::from_str::<FailureCounts>(&text).unwrap_or_default();
            assert!(counts.is_empty(), "{what}");
        });
        for home in NO_HOMES {
            assert_eq!(read(Path::new(home)), None, "{home:?}");
        }
    }
}
