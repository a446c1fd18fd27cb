//! Markers for one process: `.gateway-takeover.json` and `.gateway-planned-stop.json`.
//!
//! A marker announces that the next signal to a gateway is intended. Since pids are reused, a marker is valid for a minute
//! and contains the start time of its process. Since several homes can share a directory, a takeover also names its home.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::time::Duration;

use serde_json::Value;

use super::marker::stamp;
use crate::time::Millis;

pub const TTL: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessMarker {
    pub target_pid: u32,
    /// Ticks since boot; `None`: unknown to the writer.
    pub target_start_time: Option<u64>,
    pub replacer_hermes_home: Option<String>,
    pub written_at: Millis,
}

/// The process that reads the marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CurrentProcess<'a> {
    pub pid: u32,
    pub start_time: Option<u64>,
    pub home: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkerMatch {
    /// Valid, for this process.
    Ours,
    /// Valid, for another process of this home.
    OtherProcess,
    /// Valid, for another home.
    OtherHome,
    /// Expired or malformed.
    Invalid,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAction {
    Delete,
    Keep,
}

impl ProcessMarker {
    /// `None`: malformed, including a missing pid or time.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let text = |name: &str| value.get(name).and_then(Value::as_str);
        let pid = value.get("target_pid").and_then(Value::as_u64).and_then(|pid| u32::try_from(pid).ok());
        Some(Self {
            target_pid: pid.filter(|pid| *pid > 0)?,
            target_start_time: value.get("target_start_time").and_then(Value::as_u64),
            replacer_hermes_home: text("replacer_hermes_home").map(ToOwned::to_owned),
            written_at: text("written_at").and_then(stamp::parse)?,
        })
    }
}

/// `marker`: `None` for a malformed one.
pub fn match_marker(marker: Option<&ProcessMarker>, current: CurrentProcess<'_>, now: Millis) -> MarkerMatch {
    let Some(marker) = marker.filter(|marker| now.since(marker.written_at) <= TTL) else {
        return MarkerMatch::Invalid;
    };
    if marker.replacer_hermes_home.as_deref().is_some_and(|home| home != current.home) {
        return MarkerMatch::OtherHome;
    }
    let same_start = match (marker.target_start_time, current.start_time) {
        (Some(target), Some(own)) => target == own,
        (Some(_) | None, None) | (None, Some(_)) => true,
    };
    if marker.target_pid == current.pid && same_start { MarkerMatch::Ours } else { MarkerMatch::OtherProcess }
}

impl MarkerMatch {
    /// After acting on the marker, which is valid for one signal only.
    pub const fn after_use(self) -> FileAction {
        match self {
            Self::Ours | Self::OtherProcess | Self::Invalid => FileAction::Delete,
            Self::OtherHome => FileAction::Keep,
        }
    }

    /// After reading without acting: a valid marker stays.
    pub const fn after_probe(self) -> FileAction {
        match self {
            Self::Invalid => FileAction::Delete,
            Self::Ours | Self::OtherProcess | Self::OtherHome => FileAction::Keep,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    const NOW: Millis = Millis(1_794_766_299_637);
    const ME: CurrentProcess<'static> =
        CurrentProcess { pid: 18998, start_time: Some(76366), home: "/home/u/.hermes" };

    fn text(pid: &str, start: &str, home: &str, age: u64) -> String {
        let written = stamp::format(NOW.before(Duration::from_secs(age)));
        format!(
            r#"{{"target_pid":{pid},"target_start_time":{start},"replacer_pid":1{home},"written_at":"{written}"}}"#
        )
    }

    #[track_caller]
    fn check(text: &str, want: MarkerMatch) {
        assert_eq!(match_marker(ProcessMarker::parse(text.as_bytes()).as_ref(), ME, NOW), want, "{text}");
    }

    #[test]
    fn matches_by_pid_and_known_start_time() {
        for (pid, start, want) in [
            ("18998", "76366", MarkerMatch::Ours),
            ("18998", "null", MarkerMatch::Ours),
            ("18998", "\"?\"", MarkerMatch::Ours),
            ("18998", "76367", MarkerMatch::OtherProcess),
            ("18999", "76366", MarkerMatch::OtherProcess),
        ] {
            check(&text(pid, start, "", 0), want);
        }
        let unsure = CurrentProcess { start_time: None, ..ME };
        let marker = ProcessMarker::parse(text("18998", "1", "", 0).as_bytes());
        assert_eq!(match_marker(marker.as_ref(), unsure, NOW), MarkerMatch::Ours);
    }

    #[test]
    fn expires_after_a_minute() {
        let elsewhere = r#","replacer_hermes_home":"/other""#;
        check(&text("18998", "76366", "", 60), MarkerMatch::Ours);
        check(&text("18998", "76366", "", 61), MarkerMatch::Invalid);
        check(&text("1", "1", "", 61), MarkerMatch::Invalid);
        check(&text("18998", "76366", elsewhere, 61), MarkerMatch::Invalid);
    }

    #[test]
    fn ignores_a_takeover_of_another_home() {
        for (home, want) in
            [("/other", MarkerMatch::OtherHome), (ME.home, MarkerMatch::Ours), ("", MarkerMatch::OtherHome)]
        {
            let home = format!(r#","replacer_hermes_home":"{home}""#);
            check(&text("18998", "76366", &home, 0), want);
        }
    }

    #[test]
    fn discards_malformed_markers() {
        for pid in ["0", "-5", "\"18998\"", "18998.5", "99999999999", "null", "[]"] {
            check(&text(pid, "76366", "", 0), MarkerMatch::Invalid);
        }
        let undated = r#"{"target_pid":18998,"target_start_time":76366}"#;
        let garbled = r#"{"target_pid":18998,"written_at":"now"}"#;
        for text in ["", "{", "[1]", "18998", "null", undated, garbled] {
            check(text, MarkerMatch::Invalid);
        }
        assert_eq!(ProcessMarker::parse(b"\xff\xfe"), None);
    }

    #[test]
    fn deletes_used_and_invalid_markers_of_this_home() {
        for (verdict, consumed, probed) in [
            (MarkerMatch::Ours, FileAction::Delete, FileAction::Keep),
            (MarkerMatch::OtherProcess, FileAction::Delete, FileAction::Keep),
            (MarkerMatch::OtherHome, FileAction::Keep, FileAction::Keep),
            (MarkerMatch::Invalid, FileAction::Delete, FileAction::Delete),
        ] {
            assert_eq!((verdict.after_use(), verdict.after_probe()), (consumed, probed), "{verdict:?}");
        }
    }
}
