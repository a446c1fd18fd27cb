//! Markers that name a process: `.gateway-takeover.json` and `.gateway-planned-stop.json`.
//!
//! Each tells one gateway that the signal it is about to get is intended. Pids are used again, so a marker lives for a
//! minute and carries the start time of the process it means. Homes can share a directory, so a takeover also
//! says whose home it is about.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::time::Duration;

use serde_json::Value;

use super::marker::stamp;
use crate::time::Millis;

/// How long a marker means anything.
pub const TTL: Duration = Duration::from_secs(60);

/// What matters of a marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub target_pid: u32,
    /// Ticks since boot; `None`: the writer did not know.
    pub target_start_time: Option<u64>,
    /// Only in takeovers.
    pub replacer_hermes_home: Option<String>,
    pub written_at: Millis,
}

/// The process that asks whether it is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Me<'a> {
    pub pid: u32,
    pub start_time: Option<u64>,
    pub home: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Live, and it means us.
    Ours,
    /// Live, of our home, for another process.
    NotOurs,
    /// Live, and about another home.
    Foreign,
    /// Too old, or not to be understood.
    Discard,
}

/// What becomes of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Delete,
    Leave,
}

impl Named {
    /// `None`: malformed. A marker that does not say whom it means, or since when, means nobody.
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
pub fn judge(marker: Option<&Named>, me: Me<'_>, now: Millis) -> Verdict {
    let Some(marker) = marker.filter(|marker| now.since(marker.written_at) <= TTL) else {
        return Verdict::Discard;
    };
    if marker.replacer_hermes_home.as_deref().is_some_and(|home| home != me.home) {
        return Verdict::Foreign;
    }
    let same_start = match (marker.target_start_time, me.start_time) {
        (Some(its), Some(ours)) => its == ours,
        (Some(_) | None, None) | (None, Some(_)) => true,
    };
    if marker.target_pid == me.pid && same_start { Verdict::Ours } else { Verdict::NotOurs }
}

impl Verdict {
    /// After acting on it: a marker is good for one signal.
    pub const fn consumed(self) -> Fate {
        match self {
            Self::Ours | Self::NotOurs | Self::Discard => Fate::Delete,
            Self::Foreign => Fate::Leave,
        }
    }

    /// After only looking: what is live stays for whoever acts on it.
    pub const fn probed(self) -> Fate {
        match self {
            Self::Discard => Fate::Delete,
            Self::Ours | Self::NotOurs | Self::Foreign => Fate::Leave,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    const NOW: Millis = Millis(1_794_766_299_637);
    const ME: Me<'static> = Me { pid: 18998, start_time: Some(76366), home: "/home/u/.hermes" };

    fn text(pid: &str, start: &str, home: &str, age: u64) -> String {
        let written = stamp::format(NOW.before(Duration::from_secs(age)));
        format!(
            r#"{{"target_pid":{pid},"target_start_time":{start},"replacer_pid":1{home},"written_at":"{written}"}}"#
        )
    }

    #[track_caller]
    fn check(text: &str, want: Verdict) {
        assert_eq!(judge(Named::parse(text.as_bytes()).as_ref(), ME, NOW), want, "{text}");
    }

    #[test]
    fn a_marker_means_us_by_pid_and_by_start_time_where_both_know_it() {
        for (pid, start, want) in [
            ("18998", "76366", Verdict::Ours),
            ("18998", "null", Verdict::Ours),
            ("18998", "\"?\"", Verdict::Ours),
            ("18998", "76367", Verdict::NotOurs),
            ("18999", "76366", Verdict::NotOurs),
        ] {
            check(&text(pid, start, "", 0), want);
        }
        let unsure = Me { start_time: None, ..ME };
        let marker = Named::parse(text("18998", "1", "", 0).as_bytes());
        assert_eq!(judge(marker.as_ref(), unsure, NOW), Verdict::Ours);
    }

    #[test]
    fn a_marker_lives_for_a_minute_whomever_it_means() {
        let elsewhere = r#","replacer_hermes_home":"/other""#;
        check(&text("18998", "76366", "", 60), Verdict::Ours);
        check(&text("18998", "76366", "", 61), Verdict::Discard);
        check(&text("1", "1", "", 61), Verdict::Discard);
        check(&text("18998", "76366", elsewhere, 61), Verdict::Discard);
    }

    #[test]
    fn a_takeover_of_another_home_is_none_of_our_business() {
        for (home, want) in [("/other", Verdict::Foreign), (ME.home, Verdict::Ours), ("", Verdict::Foreign)] {
            let home = format!(r#","replacer_hermes_home":"{home}""#);
            check(&text("18998", "76366", &home, 0), want);
        }
    }

    #[test]
    fn what_cannot_be_understood_is_discarded() {
        for pid in ["0", "-5", "\"18998\"", "18998.5", "99999999999", "null", "[]"] {
            check(&text(pid, "76366", "", 0), Verdict::Discard);
        }
        let undated = r#"{"target_pid":18998,"target_start_time":76366}"#;
        let garbled = r#"{"target_pid":18998,"written_at":"now"}"#;
        for text in ["", "{", "[1]", "18998", "null", undated, garbled] {
            check(text, Verdict::Discard);
        }
        assert_eq!(Named::parse(b"\xff\xfe"), None);
    }

    #[test]
    fn acting_deletes_all_but_foreign_markers_and_looking_only_dead_ones() {
        for (verdict, consumed, probed) in [
            (Verdict::Ours, Fate::Delete, Fate::Leave),
            (Verdict::NotOurs, Fate::Delete, Fate::Leave),
            (Verdict::Foreign, Fate::Leave, Fate::Leave),
            (Verdict::Discard, Fate::Delete, Fate::Delete),
        ] {
            assert_eq!((verdict.consumed(), verdict.probed()), (consumed, probed), "{verdict:?}");
        }
    }
}
