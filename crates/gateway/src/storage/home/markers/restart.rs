//! What a restart leaves for the next start: `.restart_notify.json`, `.restart_last_processed.json` and
//! `.restart_pending.json`.
//!
//! | note | written by | read by the next start | removed |
//! |---|---|---|---|
//! | `Notify` | `/restart` in a chat | to tell that chat "back" | after telling |
//! | `Processed` | `/restart` in a chat | to know the same command when it is delivered again | never, only replaced |
//! | `Pending` | a stop for a restart nobody asked for in a chat | to tell the home channels | after telling |
//!
//! A note that cannot be read is none.

use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::home::files::read::{self, or_default};
use crate::home::files::write::{self, Durable};

/// One of the three files.
pub trait Note: Serialize + DeserializeOwned {
    const FILE: &'static str;
}

/// The chat that asked for the restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notify {
    pub platform: String,
    pub chat_id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub chat_type: String,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
}

/// The last `/restart` that was obeyed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Processed {
    pub platform: String,
    /// Seconds since the epoch.
    pub requested_at: f64,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub update_id: Option<i64>,
}

/// A restart that no chat asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pending {
    /// Seconds since the epoch.
    pub requested_at: f64,
    #[serde(default, deserialize_with = "or_default")]
    pub via_service: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub detached: bool,
}

impl Note for Notify {
    const FILE: &'static str = ".restart_notify.json";
}

impl Note for Processed {
    const FILE: &'static str = ".restart_last_processed.json";
}

impl Note for Pending {
    const FILE: &'static str = ".restart_pending.json";
}

pub fn path<N: Note>(home: &Path) -> PathBuf {
    home.join(N::FILE)
}

pub fn write<N: Note>(home: &Path, note: &N) -> io::Result<()> {
    write::replace(&path::<N>(home), &serde_json::to_vec(note)?, Durable::Synced)
}

pub fn read<N: Note>(home: &Path) -> Option<N> {
    let bytes = read::bytes_if_readable(&path::<N>(home))?;
    let unreadable = |error: &serde_json::Error| tracing::warn!(file = N::FILE, %error, "note is ignored");
    read::object(&bytes).inspect_err(unreadable).ok()
}

/// False: there was none.
pub fn remove<N: Note>(home: &Path) -> io::Result<bool> {
    write::remove(&path::<N>(home), Durable::Synced)
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;
    use crate::home::files::testing::{NO_HOMES, ruin};

    #[track_caller]
    fn check<N: Note + PartialEq + Debug>(note: N, text: &str) {
        let home = tempfile::tempdir().unwrap();
        write(home.path(), &note).unwrap();
        assert_eq!(std::fs::read_to_string(path::<N>(home.path())).unwrap(), text);
        assert_eq!(read::<N>(home.path()), Some(note));
        assert!(remove::<N>(home.path()).unwrap() && !remove::<N>(home.path()).unwrap());
        ruin(&path::<N>(home.path()), |what| assert_eq!(read::<N>(home.path()), None, "{what}"));
        for home in NO_HOMES {
            assert_eq!(read::<N>(Path::new(home)), None, "{home:?}");
        }
    }

    fn notify() -> Notify {
        Notify {
            platform: "telegram".into(),
            chat_id: "123".into(),
            chat_type: "dm".into(),
            thread_id: Some("7".into()),
            message_id: Some("m1".into()),
        }
    }

    #[test]
    fn the_chat_that_asked_is_remembered() {
        let text =
            r#"{"platform":"telegram","chat_id":"123","chat_type":"dm","thread_id":"7","message_id":"m1"}"#;
        check(notify(), text);
        let plain = Notify { thread_id: None, message_id: None, ..notify() };
        check(plain, r#"{"platform":"telegram","chat_id":"123","chat_type":"dm"}"#);
    }

    #[test]
    fn the_last_command_is_remembered() {
        let last =
            Processed { platform: "telegram".into(), requested_at: 1_794_766_570.2, update_id: Some(812) };
        let text = r#"{"platform":"telegram","requested_at":1794766570.2,"update_id":812}"#;
        check(last.clone(), text);
        check(Processed { update_id: None, ..last }, &text.replace(r#","update_id":812"#, ""));
    }

    #[test]
    fn a_restart_that_nobody_asked_for_in_a_chat_is_remembered() {
        let pending = Pending { requested_at: 1_794_766_570.25, via_service: true, detached: false };
        check(pending, r#"{"requested_at":1794766570.25,"via_service":true,"detached":false}"#);
    }

    #[test]
    fn what_is_optional_may_be_wrong() {
        let home = tempfile::tempdir().unwrap();
        let text =
            r#"{"platform":"telegram","chat_id":"123","chat_type":1,"thread_id":7,"message_id":null,"x":[]}"#;
        std::fs::write(path::<Notify>(home.path()), text).unwrap();
        let read = read::<Notify>(home.path()).unwrap();
        assert_eq!((read.thread_id, read.message_id, read.chat_type.as_str()), (None, None, ""));
    }
}
