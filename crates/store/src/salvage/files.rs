//! The files of a salvage: which there are, how they are moved and written.
//!
//! Nothing here is called while this process has a connection to the database it is called for.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use petasos_core::Millis;
use serde::{Deserialize, Serialize};

pub(crate) const LOG: &str = "-wal";
pub(crate) const SHARED: &str = "-shm";
/// The new database while it is filled.
const FILLING: &str = "-salvage";
/// There while a salvage is under way.
const NOTE: &str = "-salvage.json";
/// Written when damage was found while the gateway ran: the next start salvages.
const DAMAGED: &str = "-damaged";
/// Written when rows did not decode while the gateway ran: the next start decodes all of them.
const UNREADABLE: &str = "-unreadable-rows";

/// A salvage that has begun.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Begun {
    /// When, as it stands in the names of the files moved aside.
    pub(crate) stamp: String,
    pub(crate) at: Millis,
    pub(crate) why: String,
    /// The last change of the damaged files before this process opened them.
    pub(crate) last_change: Millis,
    /// The schema of the program that began it; 0: not recorded.
    #[serde(default)]
    pub(crate) schema: u32,
}

impl Begun {
    /// Writes down that a salvage begins. Nothing has been moved yet.
    pub(crate) fn note(
        path: &Path,
        schema: u32,
        why: String,
        last_change: Millis,
        now: Millis,
    ) -> io::Result<Self> {
        let begun = Self { stamp: stamp(path, now), at: now, why, last_change, schema };
        write_synced(&beside(path, NOTE), &serde_json::to_vec(&begun)?)?;
        Ok(begun)
    }

    /// The salvage that a crash cut off.
    pub(crate) fn unfinished(path: &Path) -> io::Result<Option<Self>> {
        let note = beside(path, NOTE);
        let Some(text) = read_text(&note)? else { return Ok(None) };
        // Without it nobody knows which files belong together, so nothing is opened.
        let unreadable =
            |_| io::Error::new(ErrorKind::InvalidData, format!("{} cannot be read", note.display()));
        serde_json::from_str(&text).map(Some).map_err(unreadable)
    }

    /// Moves what is damaged aside, the database last: if it is there, everything is. Repeating this does no harm.
    pub(crate) fn move_aside(&self, path: &Path) -> io::Result<()> {
        let aside = self.aside(path);
        if aside.exists() {
            return Ok(());
        }
        for suffix in [LOG, SHARED, ""] {
            match fs::rename(beside(path, suffix), beside(&aside, suffix)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        sync_folder(path)
    }

    pub(crate) fn aside(&self, path: &Path) -> PathBuf {
        beside(path, &format!(".damaged-{}", self.stamp))
    }

    pub(crate) fn report(&self, path: &Path) -> PathBuf {
        beside(path, &format!(".damaged-{}.report.txt", self.stamp))
    }

    /// Where the new database is filled; what an earlier try left there goes.
    pub(crate) fn filling(path: &Path) -> io::Result<PathBuf> {
        let filling = beside(path, FILLING);
        for suffix in ["", "-journal", LOG, SHARED] {
            remove(&beside(&filling, suffix))?;
        }
        Ok(filling)
    }

    /// The new database takes its place.
    pub(crate) fn put_in_place(path: &Path, filled: &Path) -> io::Result<()> {
        sync(filled)?;
        fs::rename(filled, path)?;
        sync_folder(path)
    }

    pub(crate) fn finish(path: &Path) -> io::Result<()> {
        remove(&beside(path, NOTE))?;
        forget_damage(path)?;
        sync_folder(path)
    }
}

/// Damage was found while the database was in use: the next start looks and salvages.
pub(crate) fn note_damage(path: &Path, detail: &str) -> io::Result<()> {
    write_synced(&beside(path, DAMAGED), detail.as_bytes())
}

pub(crate) fn note_unreadable_rows(path: &Path) -> io::Result<()> {
    write_synced(&beside(path, UNREADABLE), b"")
}

pub(crate) fn has_unreadable_rows(path: &Path) -> bool {
    beside(path, UNREADABLE).exists()
}

pub(crate) fn noted_damage(path: &Path) -> io::Result<Option<String>> {
    read_text(&beside(path, DAMAGED))
}

pub(crate) fn forget_damage(path: &Path) -> io::Result<()> {
    remove(&beside(path, DAMAGED))?;
    remove(&beside(path, UNREADABLE))
}

pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// A time that no file moved aside has in its name yet.
fn stamp(path: &Path, now: Millis) -> String {
    let moment = i64::try_from(now.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    let stamp = moment.unwrap_or_default().strftime("%Y%m%dT%H%M%SZ").to_string();
    let taken = |stamp: &String| beside(path, &format!(".damaged-{stamp}")).exists();
    let numbered = (1..1000).map(|number| format!("{stamp}-{number}"));
    std::iter::once(stamp.clone()).chain(numbered).find(|stamp| !taken(stamp)).unwrap_or(stamp)
}

pub(crate) fn last_change(path: &Path) -> Option<Millis> {
    [path.to_owned(), beside(path, LOG)].iter().filter_map(|file| changed(file)).max()
}

fn changed(path: &Path) -> Option<Millis> {
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

/// A small file, replaced as a whole.
#[allow(clippy::disallowed_methods, reason = "a small file beside the database")]
pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = beside(path, ".tmp");
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
