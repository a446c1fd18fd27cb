//! `channel_directory.json`, the known chats by name, and `channel_aliases.json`, the owner's names for them.

use std::io;
use std::path::{Path, PathBuf};

use petasos_core::directory::{Aliases, Directory};

use crate::home::files::read;
use crate::home::files::write::{self, Durable};

/// Some ten thousand channels.
const MAX_BYTES: u64 = 8 << 20;

pub fn path(home: &Path) -> PathBuf {
    home.join("channel_directory.json")
}

/// The stored directory with the current aliases. Unreadable files count as empty.
pub fn read(home: &Path) -> Directory {
    written(home).with_aliases(&aliases(home))
}

/// The stored directory, with the aliases at the time of writing.
pub(crate) fn written(home: &Path) -> Directory {
    read_json(&path(home)).unwrap_or_default()
}

pub(crate) fn aliases(home: &Path) -> Aliases {
    read_json(&home.join("channel_aliases.json")).unwrap_or_default()
}

/// Not synced: it is rewritten within minutes.
pub(crate) fn write(home: &Path, directory: &Directory) -> io::Result<()> {
    let mut bytes = serde_json::to_vec_pretty(directory)?;
    bytes.push(b'\n');
    write::replace(&path(home), &bytes, Durable::Loose)
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    let bytes = read::bytes_within(path, MAX_BYTES).unwrap_or_else(|error| {
        tracing::warn!(path = %path.display(), %error, "unreadable file counts as absent");
        None
    })?;
    let understood = read::object(&bytes);
    understood
        .inspect_err(|error| tracing::warn!(path = %path.display(), %error, "invalid file ignored"))
        .ok()
}

#[cfg(test)]
mod tests {
    use petasos_core::Platform;

    use super::*;

    #[test]
    fn current_aliases_override_the_stored_directory() {
        let home = tempfile::tempdir().unwrap();
        let telegram = Platform::parse("telegram").unwrap();
        assert_eq!(read(home.path()), Directory::default());
        write(home.path(), &Directory::default()).unwrap();
        std::fs::write(home.path().join("channel_aliases.json"), r#"{"telegram":{"-5":"den"}}"#).unwrap();
        assert_eq!(read(home.path()).resolve(telegram, "den").unwrap().chat_id, "-5");
        for rubbish in ["", "[]", "{\"platforms\": 7}", "\u{0}"] {
            std::fs::write(path(home.path()), rubbish).unwrap();
            assert_eq!(read(home.path()).channels(telegram).len(), 1, "{rubbish:?}");
        }
    }
}
