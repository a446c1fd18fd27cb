//! `api_key`: the API key, created at the first start that needs one. Readable by the owner only.

use std::io;
use std::path::{Path, PathBuf};

use petasos_core::Secret;

use crate::home::files::write;

pub fn path(home: &Path) -> PathBuf {
    home.join("api_key")
}

/// Returns the existing key, or a new one that is on disk when this returns.
pub fn read_or_create(home: &Path) -> io::Result<Secret> {
    if let Some(known) = read(home)? {
        return Ok(known);
    }
    let fresh = format!("pk-{}", crate::clock::secret());
    match write::create(&path(home), format!("{fresh}\n").as_bytes()) {
        Ok(()) => Ok(Secret::new(fresh)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            read(home)?.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "api_key is empty"))
        }
        Err(error) => Err(error),
    }
}

fn read(home: &Path) -> io::Result<Option<Secret>> {
    match std::fs::read_to_string(path(home)) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|key| !key.is_empty()).map(Secret::new)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn creates_private_key_once() {
        let home = tempfile::tempdir().unwrap();
        let made = read_or_create(home.path()).unwrap();
        assert!(made.expose().len() > 60);
        assert_eq!(read_or_create(home.path()).unwrap().expose(), made.expose());
        let mode = std::fs::metadata(path(home.path())).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn rejects_empty_key_file() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(path(home.path()), " \n").unwrap();
        assert!(read_or_create(home.path()).is_err());
    }
}
