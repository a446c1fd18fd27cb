//! Reading a small file that may be anything, or not there.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// None of these files is ever this large; whatever is, is not ours.
const LIMIT: u64 = 1 << 20;

/// `None`: there is no such file.
pub(in crate::storage::home) fn bytes(path: &Path) -> io::Result<Option<Vec<u8>>> {
    bytes_within(path, LIMIT)
}

/// The same for a file that may be larger.
pub(in crate::storage::home) fn bytes_within(path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    match contents(path, limit) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// As above, for those who can do without: an unreadable file is logged and counts as absent.
pub(in crate::storage::home) fn bytes_if_readable(path: &Path) -> Option<Vec<u8>> {
    bytes(path).unwrap_or_else(|error| {
        tracing::warn!(path = %path.display(), %error, "file cannot be read and is taken for absent");
        None
    })
}

/// Only an object: left to itself, serde would also take a list for the fields of a struct in their order.
pub(in crate::storage::home) fn object<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<T> {
    let fields: Map<String, Value> = serde_json::from_slice(bytes)?;
    serde_json::from_value(Value::Object(fields))
}

/// A value of the wrong type is as good as none.
pub(in crate::storage::home) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Loose<T> {
        Good(T),
        Bad(IgnoredAny),
    }
    Loose::deserialize(deserializer).map(|value| match value {
        Loose::Good(value) => value,
        Loose::Bad(IgnoredAny) => T::default(),
    })
}

fn contents(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    // Opening a pipe would wait for somebody at its other end.
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("not a file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_a_sensible_size_are_read() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        assert_eq!(bytes(&path).unwrap(), None);
        assert!(bytes(home.path()).is_err() && bytes_if_readable(home.path()).is_none());
        let limit = usize::try_from(LIMIT).unwrap();
        for (size, readable) in [(0, true), (limit, true), (limit + 1, false)] {
            std::fs::write(&path, vec![b' '; size]).unwrap();
            assert_eq!(bytes(&path).is_ok(), readable, "{size}");
        }
    }

    #[test]
    fn a_pipe_in_place_of_the_file_does_not_make_us_wait() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(bytes(&path).is_err());
    }
}
