//! Atomic file replacement.
//!
//! The new contents are written to a temporary file that is renamed over the old one, so readers see either version. A
//! symbolic link is kept and its target replaced. A file that cannot be renamed over, such as a mount point in a container,
//! is overwritten in place, except with `replace_or_leave`.
//!
//! A crash leaves the old or the new file, and possibly the temporary file. Only overwriting in place can leave partial
//! contents, which all readers tolerate.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::runtime::fault_injection::{PlantedBug, planted};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durable {
    /// File and directory entry are on disk when the write returns.
    Synced,
    /// A power cut may undo the write; for files that are rewritten soon.
    Loose,
}

/// New files are private; an existing file keeps its mode and, if permitted, its owner.
pub(in crate::storage::home) fn replace(path: &Path, bytes: &[u8], durable: Durable) -> io::Result<()> {
    let target = resolve_link(path);
    match rename(&target, bytes, durable) {
        Err(error) if is_mount_point(&error) => overwrite(&target, bytes),
        done => done,
    }
}

/// Never overwrites in place: fails if the file cannot be renamed over.
pub(in crate::storage::home) fn replace_or_leave(
    path: &Path,
    bytes: &[u8],
    durable: Durable,
) -> io::Result<()> {
    rename(&resolve_link(path), bytes, durable)
}

fn rename(target: &Path, bytes: &[u8], durable: Durable) -> io::Result<()> {
    let durable = if planted(PlantedBug::UnsyncedFiles) { Durable::Loose } else { durable };
    let temporary = TemporaryFile::beside(target)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary.0)?;
    file.write_all(bytes)?;
    copy_ownership(&file, target)?;
    if durable == Durable::Synced {
        file.sync_all()?;
    }
    std::fs::rename(&temporary.0, target)?;
    sync_directory(target, durable)
}

/// Like [`replace`]; creates the parent directory if necessary.
pub(in crate::storage::home) fn replace_below(path: &Path, bytes: &[u8], durable: Durable) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        // Only the last component: a missing home must not be created.
        match std::fs::DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    replace(path, bytes, durable)?;
    // The directory may be new.
    path.parent().map_or(Ok(()), |folder| sync_directory(folder, durable))
}

/// Creates a new file and its parent directories. Fails with `AlreadyExists` if the file exists.
pub(crate) fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        create_directories(folder)?;
    }
    let temporary = TemporaryFile::beside(path)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary.0)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    // A hard link is atomic and never replaces an existing file.
    std::fs::hard_link(&temporary.0, path)?;
    sync_directory(path, Durable::Synced)
}

/// Creates a private directory and its missing parents, and syncs their names.
fn create_directories(path: &Path) -> io::Result<()> {
    let missing: Vec<_> = path.ancestors().take_while(|folder| !folder.is_dir()).collect();
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    missing.into_iter().try_for_each(|folder| sync_directory(folder, Durable::Synced))
}

/// `false`: there was nothing to remove.
pub(in crate::storage::home) fn remove(path: &Path, durable: Durable) -> io::Result<bool> {
    match std::fs::remove_file(path) {
        Ok(()) => sync_directory(path, durable).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removed on drop, unless it was renamed.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn beside(target: &Path) -> io::Result<Self> {
        let name = target.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        let random = u64::from_le_bytes(crate::clock::random());
        let name = format!(".{}.{random:016x}.tmp", name.to_string_lossy().trim_start_matches('.'));
        Ok(Self(target.with_file_name(name)))
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Resolves a symbolic link, even if its target does not exist.
fn resolve_link(path: &Path) -> PathBuf {
    let folder = path.parent().unwrap_or(Path::new(""));
    std::fs::canonicalize(path)
        .or_else(|_| std::fs::read_link(path).map(|to| folder.join(to)))
        .unwrap_or_else(|_| path.into())
}

fn copy_ownership(file: &File, target: &Path) -> io::Result<()> {
    let Ok(old) = target.metadata() else { return Ok(()) };
    let new = file.metadata()?;
    if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
        // Only root can change the owner; otherwise the file keeps the current user.
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

fn sync_directory(target: &Path, durable: Durable) -> io::Result<()> {
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
    match durable {
        Durable::Synced => match File::open(folder.unwrap_or(Path::new(".")))?.sync_all() {
            // Not supported by some file systems.
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
    fn new_file_is_private_and_existing_one_keeps_mode() {
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
    fn keeps_symlink_and_replaces_its_target() {
        let home = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        for there in ["there", "not there yet"] {
            let link = home.path().join(there);
            let file = elsewhere.path().join(there);
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
    fn failed_write_leaves_no_temporary_file() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("folder");
        std::fs::create_dir(&folder).unwrap();
        assert!(replace(&folder, b"x", Durable::Synced).is_err());
        assert!(replace(&home.path().join("missing/file"), b"x", Durable::Loose).is_err());
        assert!(replace_below(&home.path().join("missing/below/file"), b"x", Durable::Loose).is_err());
        assert_eq!(names(home.path()), ["folder"]);
    }

    #[test]
    fn replace_below_creates_parent_directory() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("state/file");
        for text in ["one", "two"] {
            replace_below(&path, text.as_bytes(), Durable::Synced).unwrap();
        }
        assert_eq!(mode(&home.path().join("state")), 0o700);
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
    }

    #[test]
    fn overwrites_mount_points_in_place() {
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
    fn remove_reports_whether_the_file_existed() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        for durable in BOTH {
            replace(&path, b"x", durable).unwrap();
            assert!(remove(&path, durable).unwrap() && !remove(&path, durable).unwrap());
        }
        assert!(remove(home.path(), Durable::Loose).is_err());
    }
}
