//! Replacing a file as a whole.
//!
//! The new contents go into a temporary file beside the old one, which then takes its name: whoever reads, at whatever
//! instant, sees one or the other. A symbolic link stays one; the file it leads to is replaced. A file that
//! cannot be renamed over (a mount point of its own, as containers do it) is overwritten in place, unless it holds what
//! we could not write again.
//!
//! A crash leaves the old file or the new one, and perhaps the temporary file. Only overwriting in place can be seen
//! half done; every reader of ours survives that.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What a power cut may undo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durable {
    /// Nothing: the file and its name are on disk when the write returns.
    Synced,
    /// The write: the file will be written again soon.
    Loose,
}

/// New files are for our eyes only; one that exists keeps its mode and, where we may, its owner.
pub(in crate::storage::home) fn replace(path: &Path, bytes: &[u8], durable: Durable) -> io::Result<()> {
    let target = real(path);
    match rename(&target, bytes, durable) {
        Err(error) if is_mount_point(&error) => overwrite(&target, bytes),
        done => done,
    }
}

/// The same, and the old file is never in danger: one that cannot be renamed over stays as it is, which is an error.
pub(in crate::storage::home) fn replace_or_leave(
    path: &Path,
    bytes: &[u8],
    durable: Durable,
) -> io::Result<()> {
    rename(&real(path), bytes, durable)
}

fn rename(target: &Path, bytes: &[u8], durable: Durable) -> io::Result<()> {
    let temporary = Temporary::beside(target)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary.0)?;
    file.write_all(bytes)?;
    resemble(&file, target)?;
    if durable == Durable::Synced {
        file.sync_all()?;
    }
    std::fs::rename(&temporary.0, target)?;
    settle(target, durable)
}

/// The same, in a directory of ours that may not exist yet.
pub(in crate::storage::home) fn replace_below(path: &Path, bytes: &[u8], durable: Durable) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        // Only the last step: a home that is missing is not for us to make.
        match std::fs::DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    replace(path, bytes, durable)
}

/// A new file, below directories that may not exist yet. Fails with `AlreadyExists` if there is one.
pub(crate) fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let temporary = Temporary::beside(path)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary.0)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    // A second name, which is there at once or not at all, and never takes one away.
    std::fs::hard_link(&temporary.0, path)?;
    settle(path, Durable::Synced)
}

/// False: there was nothing to remove.
pub(in crate::storage::home) fn remove(path: &Path, durable: Durable) -> io::Result<bool> {
    match std::fs::remove_file(path) {
        Ok(()) => settle(path, durable).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Gone with its value, unless it was renamed.
struct Temporary(PathBuf);

impl Temporary {
    fn beside(target: &Path) -> io::Result<Self> {
        let name = target.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        let random = u64::from_le_bytes(crate::clock::random());
        let name = format!(".{}.{random:016x}.tmp", name.to_string_lossy().trim_start_matches('.'));
        Ok(Self(target.with_file_name(name)))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Where a path leads, whether or not there is something at its end.
fn real(path: &Path) -> PathBuf {
    let folder = path.parent().unwrap_or(Path::new(""));
    std::fs::canonicalize(path)
        .or_else(|_| std::fs::read_link(path).map(|to| folder.join(to)))
        .unwrap_or_else(|_| path.into())
}

fn resemble(file: &File, target: &Path) -> io::Result<()> {
    let Ok(old) = target.metadata() else { return Ok(()) };
    let new = file.metadata()?;
    if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
        // Only root may give files away. Whoever is not goes on with a file of their own.
        let _ = std::os::unix::fs::fchown(file, Some(old.uid()), Some(old.gid()));
    }
    file.set_permissions(Permissions::from_mode(old.mode() & 0o777))
}

fn is_mount_point(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::CrossesDevices | io::ErrorKind::ResourceBusy)
}

fn overwrite(target: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).truncate(true).open(target)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Puts the name on disk, too.
fn settle(target: &Path, durable: Durable) -> io::Result<()> {
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
    match durable {
        Durable::Synced => match File::open(folder.unwrap_or(Path::new(".")))?.sync_all() {
            // Some file systems cannot, and keep names in their own way.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            other => other,
        },
        Durable::Loose => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const BOTH: [Durable; 2] = [Durable::Synced, Durable::Loose];

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o777
    }

    #[test]
    fn a_new_file_is_private_and_an_old_one_keeps_its_mode() {
        for durable in BOTH {
            let home = tempfile::tempdir().unwrap();
            let path = home.path().join(".file.json");
            replace(&path, b"one", durable).unwrap();
            assert_eq!(mode(&path), 0o600);
            std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
            replace(&path, b"two", durable).unwrap();
            assert_eq!((mode(&path), std::fs::read(&path).unwrap()), (0o644, b"two".to_vec()));
            assert_eq!(names(home.path()), [".file.json"]);
        }
    }

    #[test]
    fn a_link_stays_and_the_file_at_its_end_is_replaced() {
        let home = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        for there in ["there", "not there yet"] {
            let (link, file) = (home.path().join(there), elsewhere.path().join(there));
            symlink(&file, &link).unwrap();
        }
        std::fs::write(elsewhere.path().join("there"), "old").unwrap();
        for there in ["there", "not there yet"] {
            let link = home.path().join(there);
            replace(&link, b"new", Durable::Synced).unwrap();
            assert!(link.is_symlink(), "{there}");
            assert_eq!(std::fs::read(elsewhere.path().join(there)).unwrap(), b"new", "{there}");
        }
        assert_eq!(names(elsewhere.path()), ["not there yet", "there"]);
    }

    #[test]
    fn a_failure_leaves_nothing_behind() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("folder");
        std::fs::create_dir(&folder).unwrap();
        assert!(replace(&folder, b"x", Durable::Synced).is_err());
        assert!(replace(&home.path().join("missing/file"), b"x", Durable::Loose).is_err());
        assert!(replace_below(&home.path().join("missing/below/file"), b"x", Durable::Loose).is_err());
        assert_eq!(names(home.path()), ["folder"]);
    }

    #[test]
    fn a_directory_of_ours_is_made_when_needed() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("state/file");
        for text in ["one", "two"] {
            replace_below(&path, text.as_bytes(), Durable::Synced).unwrap();
        }
        assert_eq!(mode(&home.path().join("state")), 0o700);
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
    }

    #[test]
    fn what_cannot_be_renamed_over_is_overwritten_in_place() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        std::fs::write(&path, "longer than the new text").unwrap();
        let inode = path.metadata().unwrap().ino();
        overwrite(&path, b"new").unwrap();
        assert_eq!((std::fs::read(&path).unwrap(), path.metadata().unwrap().ino()), (b"new".to_vec(), inode));
        for (code, mounted) in [(16, true), (18, true), (13, false), (28, false)] {
            assert_eq!(is_mount_point(&io::Error::from_raw_os_error(code)), mounted, "{code}");
        }
    }

    #[test]
    fn removing_tells_whether_there_was_something() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        for durable in BOTH {
            replace(&path, b"x", durable).unwrap();
            assert!(remove(&path, durable).unwrap() && !remove(&path, durable).unwrap());
        }
        assert!(remove(home.path(), Durable::Loose).is_err());
    }
}
