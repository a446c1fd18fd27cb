//! File operations of backups: private modes, fsync, no symlinks followed.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use petasos_core::text::hex;

pub(super) fn make_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

pub(super) fn set_private(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(0o600))
}

pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

pub(super) fn remove_all(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

pub(super) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

pub(super) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    match fs::read(from) {
        Ok(bytes) => write(to, &bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Symlinks are skipped: they point outside the tree.
pub(super) fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    let Ok(metadata) = fs::symlink_metadata(from) else { return Ok(()) };
    if metadata.is_file() {
        copy(from, to)?;
        return fs::set_permissions(to, Permissions::from_mode(metadata.permissions().mode() & 0o700));
    }
    if !metadata.is_dir() {
        return Ok(());
    }
    make_private(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy_tree(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Visits every file below `at` with its path relative to `root`.
pub(super) fn for_each_file(
    root: &Path,
    at: &Path,
    visit: &mut dyn FnMut(&Path, &str) -> io::Result<()>,
) -> io::Result<()> {
    for entry in fs::read_dir(at)? {
        let path = entry?.path();
        if path.is_dir() {
            for_each_file(root, &path, visit)?;
        } else {
            let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            visit(&path, &name)?;
        }
    }
    Ok(())
}

pub(super) fn digests(root: &Path) -> io::Result<BTreeMap<String, String>> {
    let mut digests = BTreeMap::new();
    for_each_file(root, root, &mut |path, name| {
        digests.insert(name.to_owned(), digest(path)?);
        Ok(())
    })?;
    Ok(digests)
}

fn digest(path: &Path) -> io::Result<String> {
    let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        match io::Read::read(&mut file, &mut buffer)? {
            0 => break,
            read => context.update(&buffer[..read]),
        }
    }
    Ok(hex(context.finish().as_ref()))
}

/// Total bytes of the files below; symlinks and missing paths count as zero.
pub(super) fn size(path: &Path) -> io::Result<u64> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    if !metadata.is_dir() {
        return Ok(if metadata.is_file() { metadata.len() } else { 0 });
    }
    fs::read_dir(path)?.try_fold(0, |bytes, entry| Ok(bytes + size(&entry?.path())?))
}

pub(super) fn free_space(directory: &Path) -> io::Result<u64> {
    let metadata = rustix::fs::statvfs(directory)?;
    Ok(metadata.f_bavail.saturating_mul(metadata.f_frsize))
}

pub(super) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

pub(super) fn sync_tree(root: &Path) -> io::Result<()> {
    for entry in fs::read_dir(root)? {
        let path = entry?.path();
        if path.is_dir() {
            sync_tree(&path)?;
        } else {
            File::open(&path)?.sync_all()?;
        }
    }
    File::open(root)?.sync_all()
}

pub(super) fn sync_parent(path: &Path) -> io::Result<()> {
    File::open(parent(path))?.sync_all()
}
