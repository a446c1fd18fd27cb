//! Local wall-clock time without a zone, as in session files.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;

/// A local time with microseconds. On the wire `2026-11-15T18:12:05[.741101]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalTime {
    /// Microseconds since 1970-01-01T00:00:00 on the local clock.
    micros: i64,
}

/// The components of a local time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Civil {
    pub year: i32,
    pub month: u8,
    pub day: u8,
    pub hour: u8,
    pub minute: u8,
    pub second: u8,
    pub micros: u32,
}

impl LocalTime {
    /// From Unix milliseconds plus the zone offset.
    pub const fn from_local_millis(millis: i64) -> Self {
        Self { micros: millis.saturating_mul(1000) }
    }

    pub const fn local_millis(self) -> i64 {
        self.micros.div_euclid(1000)
    }

    /// `None` for an invalid date or time.
    pub fn from_civil(civil: Civil) -> Option<Self> {
        let Civil { year, month, day, hour, minute, second, micros } = civil;
        let in_range = (1..=9999).contains(&year) && (1..=12).contains(&month);
        if !in_range || day == 0 || day > days_in(year, month) || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        if micros > 999_999 {
            return None;
        }
        let seconds = i64::from(hour) * 3600 + i64::from(minute) * 60 + i64::from(second);
        Some(Self { micros: days_before(year, month, day) * DAY + seconds * SECOND + i64::from(micros) })
    }

    pub fn civil(self) -> Civil {
        let days = self.micros.div_euclid(DAY);
        let within = self.micros.rem_euclid(DAY);
        let (year, month, day) = date_of(days);
        let part = |unit: i64, modulus: i64| u8::try_from(within / unit % modulus).unwrap_or_default();
        Civil {
            year,
            month,
            day,
            hour: part(3600 * SECOND, 24),
            minute: part(60 * SECOND, 60),
            second: part(SECOND, 60),
            micros: u32::try_from(within % SECOND).unwrap_or_default(),
        }
    }

    /// Parses `YYYY-MM-DD[(T| )HH:MM[:SS[.fraction]]]`. `None` for anything else, including a zone.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
        let mut date = date.split('-').map(number);
        let year = date.next()??;
        let month = date.next()??;
        let day = date.next()??;
        let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
        let mut time = time.split(':').map(number);
        let hour = time.next()??;
        let minute = time.next()??;
        let second = time.next().unwrap_or(Some(0))?;
        if date.next().is_some() || time.next().is_some() {
            return None;
        }
        Self::from_civil(Civil {
            year: i32::try_from(year).ok()?,
            month: u8::try_from(month).ok()?,
            day: u8::try_from(day).ok()?,
            hour: u8::try_from(hour).ok()?,
            minute: u8::try_from(minute).ok()?,
            second: u8::try_from(second).ok()?,
            micros: micros(fraction)?,
        })
    }

    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self { micros: self.micros.saturating_add(span_micros(span)) }
    }

    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        Self { micros: self.micros.saturating_sub(span_micros(span)) }
    }

    /// Time since `earlier`; zero if it lies ahead.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        let micros = self.micros.saturating_sub(earlier.micros);
        Duration::from_micros(u64::try_from(micros).unwrap_or_default())
    }

    /// The latest `hour`:00 at or before this time.
    #[must_use]
    pub fn last_hour(self, hour: u8) -> Self {
        let today = self.micros.div_euclid(DAY) * DAY + i64::from(hour) * 3600 * SECOND;
        Self { micros: if today > self.micros { today - DAY } else { today } }
    }
}

impl fmt::Display for LocalTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Civil { year, month, day, hour, minute, second, micros } = self.civil();
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if micros == 0 { Ok(()) } else { write!(f, ".{micros:06}") }
    }
}

impl Serialize for LocalTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LocalTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom(format!("no local time: {text:?}")))
    }
}

fn number(digits: &str) -> Option<u32> {
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

/// A fraction of a second, truncated to six digits.
fn micros(fraction: &str) -> Option<u32> {
    number(fraction.get(..fraction.len().min(9))?)?;
    let six: String = fraction.chars().chain(core::iter::repeat('0')).take(6).collect();
    number(&six)
}

fn span_micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

const fn is_leap(year: i32) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

const fn days_in(year: i32, month: u8) -> u8 {
    match month {
        2 => 28 + is_leap(year) as u8,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 to a date, with years that begin in March so that the leap day comes last.
fn days_before(year: i32, month: u8, day: u8) -> i64 {
    let year = i64::from(year) - i64::from(month <= 2);
    let month = (i64::from(month) + 9) % 12;
    let in_year = (153 * month + 2) / 5 + i64::from(day) - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + in_year - 719_468
}

fn date_of(days: i64) -> (i32, u8, u8) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let in_era = days.rem_euclid(146_097);
    let year = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * in_year + 2) / 153;
    let day = in_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    (
        i32::try_from(year).unwrap_or(i32::MAX),
        u8::try_from(month).unwrap_or(1),
        u8::try_from(day).unwrap_or(1),
    )
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn round_trips_with_microseconds() {
        for text in [
            "2026-11-15T18:12:05.741101",
            "2026-11-15T18:12:05",
            "1970-01-01T00:00:00",
            "2024-02-29T23:59:59.000001",
        ] {
            assert_eq!(LocalTime::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn parses_shorter_forms() {
        for (text, want) in [
            ("2026-11-15", "2026-11-15T00:00:00"),
            ("2026-11-15 18:12", "2026-11-15T18:12:00"),
            ("2026-11-15T18:12:05.7", "2026-11-15T18:12:05.700000"),
            ("2026-11-15T18:12:05.123456789", "2026-11-15T18:12:05.123456"),
        ] {
            assert_eq!(LocalTime::parse(text).map(|time| time.to_string()).as_deref(), Some(want));
        }
    }

    #[test]
    fn rejects_text_that_is_no_local_time() {
        for text in [
            "",
            "not-a-timestamp",
            "2026-13-01",
            "2026-02-29",
            "2026-11-15T24:00:00",
            "2026-11-15T18:12:05Z",
            "2026-11-15T18:12:05+01:00",
            "2026-11-15T18",
            "2026-11-15-01T18:12:05",
            "2026-11-15T18:12:05:01",
            "2026-11-15T18:12:05.",
            "+2026-11-15",
            "0-1-1",
            "1e9",
            "2026-11-15T18:12:05.12345é78",
        ] {
            assert_eq!(LocalTime::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn refuses_every_field_outside_its_range() {
        let last =
            Civil { year: 9999, month: 12, day: 31, hour: 23, minute: 59, second: 59, micros: 999_999 };
        assert_eq!(LocalTime::from_civil(last).map(LocalTime::civil), Some(last));
        for outside in [
            Civil { year: 10_000, ..last },
            Civil { year: 0, ..last },
            Civil { month: 13, ..last },
            Civil { month: 0, ..last },
            Civil { day: 32, ..last },
            Civil { day: 0, ..last },
            Civil { month: 11, ..last },
            Civil { hour: 24, ..last },
            Civil { minute: 60, ..last },
            Civil { second: 60, ..last },
            Civil { micros: 1_000_000, ..last },
        ] {
            assert_eq!(LocalTime::from_civil(outside), None, "{outside:?}");
        }
    }

    #[test]
    fn converts_dates_consistently_over_centuries() {
        assert_eq!(LocalTime::parse("2026-11-15T18:12:05").unwrap().local_millis(), 1_794_766_325_000);
        let mut day = LocalTime::parse("1890-01-01").unwrap();
        for _ in 0..90_000 {
            assert_eq!(LocalTime::from_civil(day.civil()), Some(day));
            assert_eq!(LocalTime::from_local_millis(day.local_millis()), day);
            day = day.after(Duration::from_secs(86_400));
        }
        assert_eq!(day.to_string(), "2136-05-31T00:00:00");
    }

    #[test]
    fn finds_the_last_hour_today_or_yesterday() {
        for (now, want) in [
            ("2026-11-15T04:00:00", "2026-11-15T04:00:00"),
            ("2026-11-15T03:59:59", "2026-11-14T04:00:00"),
            ("2026-11-15T23:00:00", "2026-11-15T04:00:00"),
        ] {
            assert_eq!(LocalTime::parse(now).unwrap().last_hour(4).to_string(), want);
        }
    }
}
