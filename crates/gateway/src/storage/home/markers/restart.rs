//! Restart notes for the next start: `.restart_notify.json`, `.restart_last_processed.json` and `.restart_pending.json`.
//!
//! | note | written by | read by the next start | removed |
//! |---|---|---|---|
//! | `RestartRequest` | `/restart` in a chat | to notify that chat | after that |
//! | `LastRestart` | `/restart` in a chat | to recognise a redelivered command | never, only replaced |
//! | `PendingRestart` | a restart that no chat requested | to notify the home channels | after that |
//!
//! Unreadable notes are ignored.

use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::home::files::read::{self, or_default};
use crate::home::files::write::{self, Durable};

pub trait RestartNote: Serialize + DeserializeOwned {
    const FILE: &'static str;
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartRequest {
    pub platform: String,
    pub chat_id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub chat_type: String,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
}

/// The last `/restart` that was carried out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LastRestart {
    pub platform: String,
    /// Seconds since the epoch.
    pub requested_at: f64,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub update_id: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingRestart {
    /// Seconds since the epoch.
    pub requested_at: f64,
    #[serde(default, deserialize_with = "or_default")]
    pub via_service: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub detached: bool,
}

impl RestartNote for RestartRequest {
    const FILE: &'static str = ".restart_notify.json";
}

impl RestartNote for LastRestart {
    const FILE: &'static str = ".restart_last_processed.json";
}

impl RestartNote for PendingRestart {
    const FILE: &'static str = ".restart_pending.json";
}

pub fn path<N: RestartNote>(home: &Path) -> PathBuf {
    home.join(N::FILE)
}

pub fn write<N: RestartNote>(home: &Path, note: &N) -> io::Result<()> {
    write::replace(&path::<N>(home), &serde_json::to_vec(note)?, Durable::Synced)
}

pub fn read<N: RestartNote>(home: &Path) -> Option<N> {
    let bytes = read::bytes_if_readable(&path::<N>(home))?;
    let unreadable =
        |error: &serde_json::Error| tracing::warn!(file = N::FILE, %error, "unreadable note ignored");
    read::object(&bytes).inspect_err(unreadable).ok()
}

pub fn remove<N: RestartNote>(home: &Path) -> io::Result<bool> {
    write::remove(&path::<N>(home), Durable::Synced)
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;
    use crate::home::files::testing::{NO_HOMES, for_each_damage};

    #[track_caller]
    fn check<N: RestartNote + PartialEq + Debug>(note: N, text: &str) {
        let home = tempfile::tempdir().unwrap();
        write(home.path(), &note).unwrap();
        assert_eq!(std::fs::read_to_string(path::<N>(home.path())).unwrap(), text);
        assert_eq!(read::<N>(home.path()), Some(note));
        assert!(remove::<N>(home.path()).unwrap() && !remove::<N>(home.path()).unwrap());
        for_each_damage(&path::<N>(home.path()), |what| assert_eq!(read::<N>(home.path()), None, "{what}"));
        for home in NO_HOMES {
            assert_eq!(read::<N>(Path::new(home)), None, "{home:?}");
        }
    }

    fn notify() -> RestartRequest {
        RestartRequest {
            platform: "telegram".into(),
            chat_id: "123".into(),
            chat_type: "dm".into(),
            thread_id: Some("7".into()),
            message_id: Some("m1".into()),
        }
    }

    #[test]
    fn restart_request_round_trips() {
        let text =
            r#"{"platform":"telegram","chat_id":"123","chat_type":"dm","thread_id":"7","message_id":"m1"}"#;
        check(notify(), text);
        let plain = RestartRequest { thread_id: None, message_id: None, ..notify() };
        check(plain, r#"{"platform":"telegram","chat_id":"123","chat_type":"dm"}"#);
    }

    #[test]
    fn last_restart_round_trips() {
        let last =
            LastRestart { platform: "telegram".into(), requested_at: 1_794_766_570.2, update_id: Some(812) };
        let text = r#"{"platform":"telegram","requested_at":1794766570.2,"update_id":812}"#;
        check(last.clone(), text);
        check(LastRestart { update_id: None, ..last }, &text.replace(r#","update_id":812"#, ""));
    }

    #[test]
    fn pending_restart_round_trips() {
        let pending = PendingRestart { requested_at: 1_794_766_570.25, via_service: true, detached: false };
        check(pending, r#"{"requested_at":1794766570.25,"via_service":true,"detached":false}"#);
    }

    #[test]
    fn ignores_invalid_optional_fields() {
        let home = tempfile::tempdir().unwrap();
        let text =
            r#"{"platform":"telegram","chat_id":"123","chat_type":1,"thread_id":7,"message_id":null,"x":[]}"#;
        std::fs::write(path::<RestartRequest>(home.path()), text).unwrap();
        let read = read::<RestartRequest>(home.path()).unwrap();
        assert_eq!((read.thread_id, read.message_id, read.chat_type.as_str()), (None, None, ""));
    }
}
