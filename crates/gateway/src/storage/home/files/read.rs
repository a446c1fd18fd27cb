//! Tolerant reading of small files that may be missing or damaged.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// Larger files are not valid.
const MAX_BYTES: u64 = 1 << 20;

pub(in crate::storage::home) fn bytes(path: &Path) -> io::Result<Option<Vec<u8>>> {
    bytes_within(path, MAX_BYTES)
}

pub(in crate::storage::home) fn bytes_within(path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    match contents(path, limit) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// An unreadable file is logged and counts as absent.
pub(in crate::storage::home) fn bytes_if_readable(path: &Path) -> Option<Vec<u8>> {
    bytes(path).unwrap_or_else(|error| {
        tracing::warn!(path = %path.display(), %error, "unreadable file counts as absent");
        None
    })
}

/// Accepts only an object: serde would also accept an array of the fields in order.
pub(in crate::storage::home) fn object<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<T> {
    let fields: Map<String, Value> = serde_json::from_slice(bytes)?;
    serde_json::from_value(Value::Object(fields))
}

/// A value of the wrong type becomes the default.
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
    // Opening a pipe would block until it has a writer.
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
    fn reads_only_files_up_to_the_size_limit() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        assert_eq!(bytes(&path).unwrap(), None);
        assert!(bytes(home.path()).is_err() && bytes_if_readable(home.path()).is_none());
        let limit = usize::try_from(MAX_BYTES).unwrap();
        for (size, readable) in [(0, true), (limit, true), (limit + 1, false)] {
            std::fs::write(&path, vec![b' '; size]).unwrap();
            assert_eq!(bytes(&path).is_ok(), readable, "{size}");
        }
    }

    #[test]
    fn does_not_block_on_a_pipe() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(bytes(&path).is_err());
    }
}
