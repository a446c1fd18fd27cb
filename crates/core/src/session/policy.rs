//! When a quiet session starts afresh by itself.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use super::entry::{Loose, ResetReason, or_default};
use super::local::LocalTime;
use crate::message::{ChatType, Platform};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    #[default]
    None,
    Idle,
    Daily,
    Both,
}

/// Values that make no sense take their default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetPolicy {
    #[serde(default, deserialize_with = "or_default")]
    pub mode: Mode,
    #[serde(default = "day_in_minutes", deserialize_with = "minutes")]
    pub idle_minutes: u32,
    /// Local hour of the daily reset.
    #[serde(default = "four", deserialize_with = "hour")]
    pub at_hour: u8,
    /// Tell the user about an idle or daily reset.
    #[serde(default = "yes", deserialize_with = "or_yes")]
    pub notify: bool,
    #[serde(default = "machines", deserialize_with = "platforms")]
    pub notify_exclude_platforms: Vec<Platform>,
    /// A background process older than this no longer keeps its session.
    #[serde(default = "day_in_hours", deserialize_with = "hours")]
    pub bg_process_max_age_hours: u32,
}

impl Default for ResetPolicy {
    fn default() -> Self {
        Self {
            mode: Mode::None,
            idle_minutes: day_in_minutes(),
            at_hour: four(),
            notify: true,
            notify_exclude_platforms: machines(),
            bg_process_max_age_hours: day_in_hours(),
        }
    }
}

impl ResetPolicy {
    /// Whether a session last used then is over now. Idle is asked first.
    pub fn due(&self, updated_at: LocalTime, now: LocalTime) -> Option<ResetReason> {
        let idle = || now > updated_at.after(Duration::from_secs(u64::from(self.idle_minutes) * 60));
        let daily = || updated_at < now.last_hour(self.at_hour);
        let (by_idle, by_day) = match self.mode {
            Mode::None => (false, false),
            Mode::Idle => (true, false),
            Mode::Daily => (false, true),
            Mode::Both => (true, true),
        };
        if by_idle && idle() {
            return Some(ResetReason::Idle);
        }
        (by_day && daily()).then_some(ResetReason::Daily)
    }

    /// Whether the user is told. A reset that was not a matter of time is always told.
    pub fn tells(&self, reason: ResetReason, platform: Option<Platform>) -> bool {
        match reason {
            ResetReason::Suspended | ResetReason::ResumePendingExpired => true,
            ResetReason::Idle | ResetReason::Daily => {
                let excluded = platform.is_some_and(|it| self.notify_exclude_platforms.contains(&it));
                self.notify && !excluded
            }
        }
    }
}

/// All policies; the most specific one counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policies {
    pub default: ResetPolicy,
    pub by_platform: BTreeMap<Platform, ResetPolicy>,
    pub by_chat_type: Vec<(ChatType, ResetPolicy)>,
}

impl Policies {
    /// Whether no session is ever reset by time.
    pub fn never_reset(&self) -> bool {
        let by_chat_type = self.by_chat_type.iter().map(|(_, policy)| policy);
        let mut all = self.by_platform.values().chain(by_chat_type).chain([&self.default]);
        all.all(|policy| policy.mode == Mode::None)
    }

    /// Platform before chat type before default.
    pub fn lookup(&self, platform: Option<Platform>, chat: ChatType) -> &ResetPolicy {
        let of_platform = platform.and_then(|name| self.by_platform.get(&name));
        let of_chat = || self.by_chat_type.iter().find(|(kind, _)| *kind == chat).map(|(_, policy)| policy);
        of_platform.or_else(of_chat).unwrap_or(&self.default)
    }
}

const fn day_in_minutes() -> u32 {
    1440
}

const fn day_in_hours() -> u32 {
    24
}

const fn four() -> u8 {
    4
}

const fn yes() -> bool {
    true
}

/// Nobody reads a notice there.
fn machines() -> Vec<Platform> {
    Platform::known().filter(|platform| platform.peer().is_program()).collect()
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Whole(i64),
    Text(String),
    Other(IgnoredAny),
}

/// A whole number, written as one or as text.
fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    Ok(match Number::deserialize(deserializer)? {
        Number::Whole(number) => Some(number),
        Number::Text(text) => text.trim().parse().ok(),
        Number::Other(IgnoredAny) => None,
    })
}

fn minutes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let number = whole(deserializer)?.and_then(|it| u32::try_from(it).ok());
    Ok(number.filter(|it| *it > 0).unwrap_or_else(day_in_minutes))
}

fn hour<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u8, D::Error> {
    let number = whole(deserializer)?.and_then(|it| u8::try_from(it).ok());
    Ok(number.filter(|it| *it < 24).unwrap_or_else(four))
}

fn hours<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let number = whole(deserializer)?.and_then(|it| u32::try_from(it).ok());
    Ok(number.filter(|it| *it > 0).unwrap_or_else(day_in_hours))
}

fn or_yes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Loose::deserialize(deserializer).map(|value| value.good().unwrap_or(true))
}

fn platforms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Platform>, D::Error> {
    let names: Option<Vec<String>> = Loose::deserialize(deserializer)?.good();
    let known = |names: Vec<String>| names.iter().filter_map(|name| Platform::parse(name)).collect();
    Ok(names.map_or_else(machines, known))
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use serde_json::json;

    use super::*;

    fn at(text: &str) -> LocalTime {
        LocalTime::parse(text).unwrap()
    }

    #[track_caller]
    fn check(mode: Mode, updated_at: &str, now: &str, want: Option<ResetReason>) {
        let policy = ResetPolicy { mode, idle_minutes: 60, ..ResetPolicy::default() };
        assert_eq!(policy.due(at(updated_at), at(now)), want, "{mode:?} {updated_at} {now}");
    }

    #[test]
    fn an_hour_of_silence_resets_only_when_it_is_over() {
        check(Mode::Idle, "2026-11-15T12:00:00", "2026-11-15T13:01:00", Some(ResetReason::Idle));
        check(Mode::Idle, "2026-11-15T12:00:00", "2026-11-15T13:00:00", None);
        check(Mode::Idle, "2026-11-15T12:00:00", "2026-11-15T12:59:00", None);
    }

    #[test]
    fn a_new_day_begins_at_its_hour() {
        check(Mode::Daily, "2026-11-15T03:59:59", "2026-11-15T04:00:00", Some(ResetReason::Daily));
        check(Mode::Daily, "2026-11-15T04:00:00", "2026-11-16T03:59:59", None);
    }

    #[test]
    fn idle_is_named_before_daily_and_none_never_resets() {
        check(Mode::Both, "2026-11-01T00:00:00", "2026-11-15T13:00:00", Some(ResetReason::Idle));
        check(Mode::Both, "2026-11-15T03:30:00", "2026-11-15T04:10:00", Some(ResetReason::Daily));
        check(Mode::None, "2020-01-01T00:00:00", "2026-11-15T13:00:00", None);
    }

    #[test]
    fn invalid_hours_and_minutes_take_their_defaults() {
        for (value, minutes, hour) in [
            (json!({}), 1440, 4),
            (json!({"idle_minutes": 30, "at_hour": 0}), 30, 0),
            (json!({"idle_minutes": "45", "at_hour": "23"}), 45, 23),
            (json!({"idle_minutes": 0, "at_hour": 24}), 1440, 4),
            (json!({"idle_minutes": -5, "at_hour": -1}), 1440, 4),
            (json!({"idle_minutes": "soon", "at_hour": null, "mode": "weekly", "notify": "maybe"}), 1440, 4),
        ] {
            let policy: ResetPolicy = serde_json::from_value(value.clone()).unwrap();
            assert_eq!((policy.idle_minutes, policy.at_hour), (minutes, hour), "{value}");
            assert!(policy.mode == Mode::None && policy.notify, "{value}");
        }
        for (hours, want) in [(json!(1), 1), (json!("48"), 48), (json!(0), 24), (json!("day"), 24)] {
            let policy: ResetPolicy =
                serde_json::from_value(json!({"bg_process_max_age_hours": hours})).unwrap();
            assert_eq!(policy.bg_process_max_age_hours, want, "{hours}");
        }
    }

    #[test]
    fn notices_are_configured_by_platform() {
        let read = |value| serde_json::from_value::<ResetPolicy>(value).unwrap();
        let listed = read(json!({"notify_exclude_platforms": ["telegram", "nowhere"]}));
        assert_eq!(listed.notify_exclude_platforms, [Platform::parse("telegram").unwrap()]);
        assert_eq!(read(json!({"notify_exclude_platforms": 7})).notify_exclude_platforms, machines());
        assert!(!read(json!({"notify": false})).notify);
    }

    #[test]
    fn one_policy_that_resets_is_enough_to_reset() {
        let resets = || ResetPolicy { mode: Mode::Idle, ..ResetPolicy::default() };
        let never = Policies { default: ResetPolicy { mode: Mode::None, ..resets() }, ..Policies::default() };
        assert!(never.never_reset());
        let telegram = Platform::parse("telegram").unwrap();
        for some in [
            Policies { default: resets(), ..never.clone() },
            Policies { by_platform: [(telegram, resets())].into(), ..never.clone() },
            Policies { by_chat_type: vec![(ChatType::Dm, resets())], ..never.clone() },
        ] {
            assert!(!some.never_reset(), "{some:?}");
        }
    }

    #[test]
    fn the_platform_wins_over_the_chat_type_and_that_over_the_default() {
        let telegram = Platform::parse("telegram").unwrap();
        let with = |mode| ResetPolicy { mode, ..ResetPolicy::default() };
        let policies = Policies {
            default: with(Mode::None),
            by_platform: [(telegram, with(Mode::Daily))].into(),
            by_chat_type: vec![(ChatType::Group, with(Mode::Idle))],
        };
        assert_eq!(policies.lookup(Some(telegram), ChatType::Group).mode, Mode::Daily);
        assert_eq!(policies.lookup(Platform::parse("slack"), ChatType::Group).mode, Mode::Idle);
        assert_eq!(policies.lookup(None, ChatType::Dm).mode, Mode::None);
    }

    #[test]
    fn a_timed_reset_may_be_silent_and_any_other_never_is() {
        let quiet = ResetPolicy { notify: false, ..ResetPolicy::default() };
        let loud = ResetPolicy::default();
        assert!(loud.tells(ResetReason::Idle, Platform::parse("telegram")));
        assert!(!loud.tells(ResetReason::Idle, Platform::parse("webhook")));
        assert!(!quiet.tells(ResetReason::Daily, None));
        assert!(quiet.tells(ResetReason::Suspended, Platform::parse("webhook")));
        assert!(quiet.tells(ResetReason::ResumePendingExpired, None));
    }
}
