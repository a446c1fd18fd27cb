//! The unit file on disk: read, replaced as a whole.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::unit::SIGN;

/// What lies where our unit belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    Nothing,
    Ours(String),
    /// Somebody else's unit, or one that was masked.
    Foreign,
}

pub fn look(path: &Path) -> io::Result<Found> {
    match fs::read(path) {
        Ok(bytes) => Ok(match String::from_utf8(bytes) {
            Ok(text) if text.starts_with(SIGN) => Found::Ours(text),
            Ok(_) | Err(_) => Found::Foreign,
        }),
        // A link that leads nowhere is somebody's, too.
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.is_symlink() => Ok(Found::Foreign),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::Nothing),
        Err(error) => Err(error),
    }
}

/// Either all of it is there afterwards, or what was there before.
pub fn put(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension(format!("service.{}", std::process::id()));
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let written = write(&beside, text).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _never_made = fs::remove_file(&beside);
    }
    written
}

/// Managers of other users may read it: there is no secret in it.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ours_is_known_by_its_first_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/petasos.service");
        assert_eq!(look(&path).unwrap(), Found::Nothing);
        put(&path, "[Service]\n").unwrap();
        assert_eq!(look(&path).unwrap(), Found::Foreign);
        let ours = format!("{SIGN}\n[Service]\n");
        put(&path, &ours).unwrap();
        assert_eq!(look(&path).unwrap(), Found::Ours(ours));
        assert_eq!(fs::read_dir(dir.path().join("a")).unwrap().count(), 1);
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/nowhere", &path).unwrap();
        assert_eq!(look(&path).unwrap(), Found::Foreign);
    }
}
