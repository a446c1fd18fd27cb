//! Automatic session resets by time.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use super::entry::{Lenient, ResetReason, or_default};
use super::local::LocalTime;
use crate::message::{ChatType, Platform};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResetMode {
    #[default]
    None,
    Idle,
    Daily,
    Both,
}

/// Invalid values take their default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetPolicy {
    #[serde(default, deserialize_with = "or_default")]
    pub mode: ResetMode,
    #[serde(default = "day_in_minutes", deserialize_with = "minutes")]
    pub idle_minutes: u32,
    /// Local hour of the daily reset.
    #[serde(default = "four", deserialize_with = "hour")]
    pub at_hour: u8,
    /// Notify the user of an idle or daily reset.
    #[serde(default = "yes", deserialize_with = "or_yes")]
    pub notify: bool,
    #[serde(default = "program_platforms", deserialize_with = "platforms")]
    pub notify_exclude_platforms: Vec<Platform>,
    /// An older background process no longer keeps its session.
    #[serde(default = "day_in_hours", deserialize_with = "hours")]
    pub bg_process_max_age_hours: u32,
}

impl Default for ResetPolicy {
    fn default() -> Self {
        Self {
            mode: ResetMode::None,
            idle_minutes: day_in_minutes(),
            at_hour: four(),
            notify: true,
            notify_exclude_platforms: program_platforms(),
            bg_process_max_age_hours: day_in_hours(),
        }
    }
}

impl ResetPolicy {
    /// The reset that is due for a session last used at `updated_at`. Idle is checked before daily.
    pub fn due(&self, updated_at: LocalTime, now: LocalTime) -> Option<ResetReason> {
        let idle = || now > updated_at.after(Duration::from_secs(u64::from(self.idle_minutes) * 60));
        let daily = || updated_at < now.last_hour(self.at_hour);
        let (by_idle, by_day) = match self.mode {
            ResetMode::None => (false, false),
            ResetMode::Idle => (true, false),
            ResetMode::Daily => (false, true),
            ResetMode::Both => (true, true),
        };
        if by_idle && idle() {
            return Some(ResetReason::Idle);
        }
        (by_day && daily()).then_some(ResetReason::Daily)
    }

    /// Whether the user is notified. A reset for another reason than time is always reported.
    pub fn notifies(&self, reason: ResetReason, platform: Option<Platform>) -> bool {
        match reason {
            ResetReason::Suspended | ResetReason::ResumePendingExpired => true,
            ResetReason::Idle | ResetReason::Daily => {
                let excluded = platform.is_some_and(|it| self.notify_exclude_platforms.contains(&it));
                self.notify && !excluded
            }
        }
    }
}

/// The configured policies, of which the most specific applies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResetPolicies {
    pub default: ResetPolicy,
    pub by_platform: BTreeMap<Platform, ResetPolicy>,
    pub by_chat_type: Vec<(ChatType, ResetPolicy)>,
}

impl ResetPolicies {
    pub fn never_reset(&self) -> bool {
        let by_chat_type = self.by_chat_type.iter().map(|(_, policy)| policy);
        let mut all = self.by_platform.values().chain(by_chat_type).chain([&self.default]);
        all.all(|policy| policy.mode == ResetMode::None)
    }

    /// By platform, then by chat type, then the default.
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

/// Platforms without a human reader.
fn program_platforms() -> Vec<Platform> {
    Platform::all().filter(|platform| platform.peer().is_program()).collect()
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Whole(i64),
    Text(String),
    Other(IgnoredAny),
}

/// An integer, as a number or as text.
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
    Lenient::deserialize(deserializer).map(|value| value.value().unwrap_or(true))
}

fn platforms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Platform>, D::Error> {
    let names: Option<Vec<String>> = Lenient::deserialize(deserializer)?.value();
    let known = |names: Vec<String>| names.iter().filter_map(|name| Platform::parse(name)).collect();
    Ok(names.map_or_else(program_platforms, known))
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
    fn check(mode: ResetMode, updated_at: &str, now: &str, want: Option<ResetReason>) {
        let policy = ResetPolicy { mode, idle_minutes: 60, ..ResetPolicy::default() };
        assert_eq!(policy.due(at(updated_at), at(now)), want, "{mode:?} {updated_at} {now}");
    }

    #[test]
    fn resets_only_after_the_whole_idle_time() {
        check(ResetMode::Idle, "2026-11-15T12:00:00", "2026-11-15T13:01:00", Some(ResetReason::Idle));
        check(ResetMode::Idle, "2026-11-15T12:00:00", "2026-11-15T13:00:00", None);
        check(ResetMode::Idle, "2026-11-15T12:00:00", "2026-11-15T12:59:00", None);
    }

    #[test]
    fn resets_daily_at_the_configured_hour() {
        check(ResetMode::Daily, "2026-11-15T03:59:59", "2026-11-15T04:00:00", Some(ResetReason::Daily));
        check(ResetMode::Daily, "2026-11-15T04:00:00", "2026-11-16T03:59:59", None);
    }

    #[test]
    fn prefers_idle_over_daily_and_none_never_resets() {
        check(ResetMode::Both, "2026-11-01T00:00:00", "2026-11-15T13:00:00", Some(ResetReason::Idle));
        check(ResetMode::Both, "2026-11-15T03:30:00", "2026-11-15T04:10:00", Some(ResetReason::Daily));
        check(ResetMode::None, "2020-01-01T00:00:00", "2026-11-15T13:00:00", None);
    }

    #[test]
    fn replaces_invalid_values_by_defaults() {
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
            assert!(policy.mode == ResetMode::None && policy.notify, "{value}");
        }
        for (hours, want) in [(json!(1), 1), (json!("48"), 48), (json!(0), 24), (json!("day"), 24)] {
            let policy: ResetPolicy =
                serde_json::from_value(json!({"bg_process_max_age_hours": hours})).unwrap();
            assert_eq!(policy.bg_process_max_age_hours, want, "{hours}");
        }
    }

    #[test]
    fn parses_platforms_without_notices() {
        let read = |value| serde_json::from_value::<ResetPolicy>(value).unwrap();
        let listed = read(json!({"notify_exclude_platforms": ["telegram", "nowhere"]}));
        assert_eq!(listed.notify_exclude_platforms, [Platform::parse("telegram").unwrap()]);
        assert_eq!(
            read(json!({"notify_exclude_platforms": 7})).notify_exclude_platforms,
            program_platforms()
        );
        assert!(!read(json!({"notify": false})).notify);
    }

    #[test]
    fn never_reset_requires_all_policies_to_be_off() {
        let resets = || ResetPolicy { mode: ResetMode::Idle, ..ResetPolicy::default() };
        let never = ResetPolicies {
            default: ResetPolicy { mode: ResetMode::None, ..resets() },
            ..ResetPolicies::default()
        };
        assert!(never.never_reset());
        let telegram = Platform::parse("telegram").unwrap();
        for some in [
            ResetPolicies { default: resets(), ..never.clone() },
            ResetPolicies { by_platform: [(telegram, resets())].into(), ..never.clone() },
            ResetPolicies { by_chat_type: vec![(ChatType::Dm, resets())], ..never.clone() },
        ] {
            assert!(!some.never_reset(), "{some:?}");
        }
    }

    #[test]
    fn prefers_platform_over_chat_type_over_default() {
        let telegram = Platform::parse("telegram").unwrap();
        let with = |mode| ResetPolicy { mode, ..ResetPolicy::default() };
        let policies = ResetPolicies {
            default: with(ResetMode::None),
            by_platform: [(telegram, with(ResetMode::Daily))].into(),
            by_chat_type: vec![(ChatType::Group, with(ResetMode::Idle))],
        };
        assert_eq!(policies.lookup(Some(telegram), ChatType::Group).mode, ResetMode::Daily);
        assert_eq!(policies.lookup(Platform::parse("slack"), ChatType::Group).mode, ResetMode::Idle);
        assert_eq!(policies.lookup(None, ChatType::Dm).mode, ResetMode::None);
    }

    #[test]
    fn always_reports_resets_that_are_not_timed() {
        let quiet = ResetPolicy { notify: false, ..ResetPolicy::default() };
        let loud = ResetPolicy::default();
        assert!(loud.notifies(ResetReason::Idle, Platform::parse("telegram")));
        assert!(!loud.notifies(ResetReason::Idle, Platform::parse("webhook")));
        assert!(!quiet.notifies(ResetReason::Daily, None));
        assert!(quiet.notifies(ResetReason::Suspended, Platform::parse("webhook")));
        assert!(quiet.notifies(ResetReason::ResumePendingExpired, None));
    }
}
