//! `channel_directory.json`, the chats we know by name, and `channel_aliases.json`, names that the owner gave.

use std::io;
use std::path::{Path, PathBuf};

use petasos_core::directory::{Aliases, Directory};

use crate::home::files::read;
use crate::home::files::write::{self, Durable};

/// Some ten thousand channels.
const LIMIT: u64 = 8 << 20;

pub fn path(home: &Path) -> PathBuf {
    home.join("channel_directory.json")
}

/// As written last, under the owner's names of today. What cannot be read counts as empty.
pub fn read(home: &Path) -> Directory {
    written(home).with_aliases(&aliases(home))
}

/// The same, under the names of then.
pub(crate) fn written(home: &Path) -> Directory {
    text(&path(home)).unwrap_or_default()
}

pub(crate) fn aliases(home: &Path) -> Aliases {
    text(&home.join("channel_aliases.json")).unwrap_or_default()
}

/// Written again within minutes, so a power cut may undo it.
pub(crate) fn write(home: &Path, directory: &Directory) -> io::Result<()> {
    let mut bytes = serde_json::to_vec_pretty(directory)?;
    bytes.push(b'\n');
    write::replace(&path(home), &bytes, Durable::Loose)
}

fn text<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    let bytes = read::bytes_within(path, LIMIT).unwrap_or_else(|error| {
        tracing::warn!(path = %path.display(), %error, "file cannot be read and is taken for absent");
        None
    })?;
    let understood = read::object(&bytes);
    understood.inspect_err(|error| tracing::warn!(path = %path.display(), %error, "file makes no sense")).ok()
}

#[cfg(test)]
mod tests {
    use petasos_core::Platform;

    use super::*;

    #[test]
    fn todays_names_lie_over_what_was_written() {
        let home = tempfile::tempdir().unwrap();
        let telegram = Platform::parse("telegram").unwrap();
        assert_eq!(read(home.path()), Directory::default());
        write(home.path(), &Directory::default()).unwrap();
        std::fs::write(home.path().join("channel_aliases.json"), r#"{"telegram":{"-5":"den"}}"#).unwrap();
        assert_eq!(read(home.path()).resolve(telegram, "den").unwrap().chat_id, "-5");
        for rubbish in ["", "[]", "{\"platforms\": 7}", "\u{0}"] {
            std::fs::write(path(home.path()), rubbish).unwrap();
            assert_eq!(read(home.path()).of(telegram).len(), 1, "{rubbish:?}");
        }
    }
}
