//! Reads and atomically replaces the unit file.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::unit::HEADER;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstalledUnit {
    Missing,
    Ours(String),
    /// Not written by petasos, or masked.
    Foreign,
}

pub fn read(path: &Path) -> io::Result<InstalledUnit> {
    match fs::read(path) {
        Ok(bytes) => Ok(match String::from_utf8(bytes) {
            Ok(text) if text.starts_with(HEADER) => InstalledUnit::Ours(text),
            Ok(_) | Err(_) => InstalledUnit::Foreign,
        }),
        // A dangling symlink is not ours either.
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.is_symlink() => {
            Ok(InstalledUnit::Foreign)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(InstalledUnit::Missing),
        Err(error) => Err(error),
    }
}

pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let temporary = path.with_extension(format!("service.{}", std::process::id()));
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let written = write(&temporary, text).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _never_made = fs::remove_file(&temporary);
    }
    written
}

/// World-readable: the unit contains no secret.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_own_unit_by_its_header() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/petasos.service");
        assert_eq!(read(&path).unwrap(), InstalledUnit::Missing);
        replace(&path, "[Service]\n").unwrap();
        assert_eq!(read(&path).unwrap(), InstalledUnit::Foreign);
        let ours = format!("{HEADER}\n[Service]\n");
        replace(&path, &ours).unwrap();
        assert_eq!(read(&path).unwrap(), InstalledUnit::Ours(ours));
        assert_eq!(fs::read_dir(dir.path().join("a")).unwrap().count(), 1);
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/nowhere", &path).unwrap();
        assert_eq!(read(&path).unwrap(), InstalledUnit::Foreign);
    }
}
