//! Files of a salvage: names, moves and writes.
//!
//! Call these functions only while this process has no connection to the database.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use petasos_core::Millis;
use serde::{Deserialize, Serialize};

pub(crate) const LOG: &str = "-wal";
pub(crate) const SHARED: &str = "-shm";
/// The new database while it is being filled.
const FILLING: &str = "-salvage";
/// Exists while a salvage is in progress.
const NOTE: &str = "-salvage.json";
/// Written when a running gateway finds damage: the next start salvages.
const DAMAGED: &str = "-damaged";
/// Written when a running gateway finds undecodable rows: the next start decodes all rows.
const UNREADABLE: &str = "-unreadable-rows";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SalvageNote {
    /// Timestamp in the names of the moved files.
    pub(crate) stamp: String,
    pub(crate) at: Millis,
    pub(crate) why: String,
    /// Last change of the damaged files before this process opened them.
    pub(crate) last_change: Millis,
    /// Schema version of the program that began the salvage; 0: not recorded.
    #[serde(default)]
    pub(crate) schema: u32,
}

impl SalvageNote {
    /// Writes the note, before any file is moved.
    pub(crate) fn write(
        path: &Path,
        schema: u32,
        why: String,
        last_change: Millis,
        now: Millis,
    ) -> io::Result<Self> {
        let note = Self { stamp: stamp(path, now), at: now, why, last_change, schema };
        write_synced(&with_suffix(path, NOTE), &serde_json::to_vec(&note)?)?;
        Ok(note)
    }

    /// Note of a salvage that a crash interrupted.
    pub(crate) fn unfinished(path: &Path) -> io::Result<Option<Self>> {
        let note = with_suffix(path, NOTE);
        let Some(text) = read_text(&note)? else { return Ok(None) };
        // Without the note it is unknown which files belong together, so nothing is opened.
        let unreadable =
            |_| io::Error::new(ErrorKind::InvalidData, format!("{} cannot be read", note.display()));
        serde_json::from_str(&text).map(Some).map_err(unreadable)
    }

    /// Moves the damaged files, the database last: its new name shows that all are moved. Idempotent.
    pub(crate) fn move_aside(&self, path: &Path) -> io::Result<()> {
        let aside = self.damaged_path(path);
        if aside.exists() {
            return Ok(());
        }
        for suffix in [LOG, SHARED, ""] {
            match fs::rename(with_suffix(path, suffix), with_suffix(&aside, suffix)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        sync_folder(path)
    }

    pub(crate) fn damaged_path(&self, path: &Path) -> PathBuf {
        with_suffix(path, &format!(".damaged-{}", self.stamp))
    }

    pub(crate) fn report(&self, path: &Path) -> PathBuf {
        with_suffix(path, &format!(".damaged-{}.report.txt", self.stamp))
    }

    /// Path of the new database, after removing the remains of an earlier attempt.
    pub(crate) fn filling(path: &Path) -> io::Result<PathBuf> {
        let filling = with_suffix(path, FILLING);
        for suffix in ["", "-journal", LOG, SHARED] {
            remove(&with_suffix(&filling, suffix))?;
        }
        Ok(filling)
    }

    /// Syncs the new database and renames it to its final path.
    pub(crate) fn install(path: &Path, filled: &Path) -> io::Result<()> {
        sync(filled)?;
        fs::rename(filled, path)?;
        sync_folder(path)
    }

    pub(crate) fn finish(path: &Path) -> io::Result<()> {
        remove(&with_suffix(path, NOTE))?;
        clear_damage_notes(path)?;
        sync_folder(path)
    }
}

/// Records damage, so that the next start salvages.
pub(crate) fn note_damage(path: &Path, detail: &str) -> io::Result<()> {
    write_synced(&with_suffix(path, DAMAGED), detail.as_bytes())
}

pub(crate) fn note_unreadable_rows(path: &Path) -> io::Result<()> {
    write_synced(&with_suffix(path, UNREADABLE), b"")
}

pub(crate) fn has_unreadable_rows(path: &Path) -> bool {
    with_suffix(path, UNREADABLE).exists()
}

pub(crate) fn noted_damage(path: &Path) -> io::Result<Option<String>> {
    read_text(&with_suffix(path, DAMAGED))
}

pub(crate) fn clear_damage_notes(path: &Path) -> io::Result<()> {
    remove(&with_suffix(path, DAMAGED))?;
    remove(&with_suffix(path, UNREADABLE))
}

pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Timestamp that no moved file uses yet.
fn stamp(path: &Path, now: Millis) -> String {
    let moment = i64::try_from(now.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    let stamp = moment.unwrap_or_default().strftime("%Y%m%dT%H%M%SZ").to_string();
    let taken = |stamp: &String| with_suffix(path, &format!(".damaged-{stamp}")).exists();
    let numbered = (1..1000).map(|number| format!("{stamp}-{number}"));
    std::iter::once(stamp.clone()).chain(numbered).find(|stamp| !taken(stamp)).unwrap_or(stamp)
}

pub(crate) fn last_change(path: &Path) -> Option<Millis> {
    [path.to_owned(), with_suffix(path, LOG)].iter().filter_map(|file| modified(file)).max()
}

fn modified(path: &Path) -> Option<Millis> {
    let changed = fs::metadata(path).ok()?.modified().ok()?;
    let since = changed.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(Millis(u64::try_from(since.as_millis()).ok()?))
}

#[allow(clippy::disallowed_methods, reason = "before this process has a connection")]
pub(crate) fn open_if_there(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[allow(clippy::disallowed_methods, reason = "a small file beside the database")]
pub(crate) fn read_text(path: &Path) -> io::Result<Option<String>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[allow(clippy::disallowed_methods, reason = "a small file beside the database")]
pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = with_suffix(path, ".tmp");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    sync_folder(path)
}

#[allow(clippy::disallowed_methods, reason = "a file that no connection has open")]
fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[allow(clippy::disallowed_methods, reason = "a directory")]
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
