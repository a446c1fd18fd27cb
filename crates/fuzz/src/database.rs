//! Damaged databases: the bytes are changes of a valid file, because random pages are refused at once.

use std::io;
use std::path::Path;
use std::sync::OnceLock;

use petasos_core::Millis;
use petasos_store::{Store, check_copy};

const NOW: Millis = Millis(1_700_000_000_000);
/// A position (4 bytes), a length (1 byte) and a value (1 byte).
const CHANGE: usize = 6;

/// Opens, checks and salvages. Whether a change was made.
pub(crate) fn damaged(bytes: &[u8]) -> bool {
    let Some(mut database) = intact().clone() else { return false };
    for change in bytes.chunks_exact(CHANGE) {
        let position =
            u32::from_le_bytes([change[0], change[1], change[2], change[3]]) as usize % database.len();
        let end = database.len().min(position + usize::from(change[4]));
        database[position..end].fill(change[5]);
    }
    let Ok(folder) = tempfile::tempdir() else { return false };
    let path = folder.path().join("petasos.db");
    if write_home(&path, &database).is_err() {
        return false;
    }
    let _checked = check_copy(&path);
    let repaired = Store::repair(&path, NOW);
    repaired.is_ok() && bytes.len() >= CHANGE
}

/// Only a database with its marker is salvaged.
fn write_home(path: &Path, database: &[u8]) -> io::Result<()> {
    std::fs::write(path.with_file_name(".petasos-db"), "")?;
    std::fs::write(path, database)
}

fn intact() -> &'static Option<Vec<u8>> {
    static INTACT: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    INTACT.get_or_init(|| {
        let folder = tempfile::tempdir().ok()?;
        create(&folder.path().join("petasos.db"))
    })
}

fn create(path: &Path) -> Option<Vec<u8>> {
    let mut store = Store::open(path).ok()?;
    store
        .write(|tx| (0..50).try_for_each(|at| tx.put_meta(&format!("seed {at}"), &"value ".repeat(at))))
        .ok()?;
    store.checkpoint_truncate().ok()?;
    store.close().ok()?;
    std::fs::read(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_page_is_salvaged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("petasos.db");
        let mut database = intact().clone().unwrap();
        database[4096..4160].fill(0xff);
        write_home(&path, &database).unwrap();
        assert!(check_copy(&path).is_err());
        let salvaged = Store::repair(&path, NOW).unwrap();
        assert!(salvaged.is_some(), "the damage was not found");
    }
}
