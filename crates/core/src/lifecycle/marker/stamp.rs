//! Timestamps in shared files: ISO 8601 with an offset, or seconds with a fraction.

use alloc::format;
use alloc::string::String;

use crate::session::LocalTime;
use crate::time::Millis;

/// For example `2026-11-15T18:11:39.573000+00:00`.
pub fn format(at: Millis) -> String {
    let millis = i64::try_from(at.0).unwrap_or(i64::MAX);
    format!("{}+00:00", LocalTime::from_local_millis(millis))
}

/// Parses a time with `Z`, with an offset, or in UTC. A time before 1970 becomes the epoch.
pub fn parse(text: &str) -> Option<Millis> {
    let (clock, offset) = without_zone(text.trim())?;
    let millis = LocalTime::parse(clock)?.local_millis().saturating_sub(offset * 1000);
    Some(Millis(u64::try_from(millis).unwrap_or_default()))
}

/// Seconds since the epoch.
pub fn seconds(at: Millis) -> f64 {
    at.0 as f64 / 1000.0
}

/// Rounds to milliseconds and saturates.
pub fn from_seconds(seconds: f64) -> Millis {
    Millis((seconds * 1000.0 + 0.5) as u64)
}

/// The text before the zone, and the zone in seconds east of Greenwich.
fn without_zone(text: &str) -> Option<(&str, i64)> {
    if let Some(clock) = text.strip_suffix(['Z', 'z']) {
        return Some((clock, 0));
    }
    // Dates contain hyphens: only text after the hour can be a zone.
    let Some(sign) = text.rfind(['+', '-']).filter(|at| text[..*at].contains(':')) else {
        return Some((text, 0));
    };
    let (clock, zone) = text.split_at(sign);
    let (hours, minutes) = match zone.get(1..)?.split_once(':') {
        Some(parts) => parts,
        None if zone.len() == 5 => (zone.get(1..3)?, zone.get(3..)?),
        None => (zone.get(1..)?, "00"),
    };
    let hours = two_digits(hours)?;
    let minutes = two_digits(minutes)?;
    if hours > 23 || minutes > 59 {
        return None;
    }
    let seconds = hours * 3600 + minutes * 60;
    Some((clock, if zone.starts_with('-') { -seconds } else { seconds }))
}

fn two_digits(text: &str) -> Option<i64> {
    let plain = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const AT: u64 = 1_794_766_299_573;

    #[test]
    fn parses_all_notations_of_an_instant() {
        for text in [
            "2026-11-15T18:11:39.573193+00:00",
            "2026-11-15T18:11:39.573Z",
            "2026-11-15T18:11:39.573z",
            "2026-11-15T18:11:39.573193",
            " 2026-11-15 18:11:39.573193 ",
            "2026-11-15T20:11:39.573193+02:00",
            "2026-11-15T12:41:39.573193-05:30",
            "2026-11-15T12:41:39.573193-0530",
            "2026-11-16T02:11:39.573+08",
            "2026-11-16T18:10:39.573+23:59",
        ] {
            assert_eq!(parse(text), Some(Millis(AT)), "{text:?}");
        }
    }

    #[test]
    fn rejects_invalid_times() {
        for text in [
            "",
            "Z",
            "+00:00",
            "soon",
            "2026-11-15T18:11:39+24:00",
            "2026-11-15T18:11:39+00:60",
            "2026-11-15T18:11:39+0:00",
            "2026-11-15T18:11:39+é",
            "2026-11-15T18:11:39+",
            "2026-11-15T25:11:39Z",
            "1794766299",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn clamps_times_before_the_epoch() {
        assert_eq!(parse("0001-01-01T00:00:00+00:00"), Some(Millis(0)));
    }

    #[test]
    fn saturates_seconds_out_of_range() {
        for (seconds, want) in [(-1.0, 0), (f64::NAN, 0), (1000.0004, 1_000_000), (1e300, u64::MAX)] {
            assert_eq!(from_seconds(seconds), Millis(want), "{seconds}");
        }
    }

    #[test]
    fn formats_with_microseconds_and_offset() {
        assert_eq!(format(Millis(AT)), "2026-11-15T18:11:39.573000+00:00");
        assert_eq!(format(Millis(AT - 573)), "2026-11-15T18:11:39+00:00");
    }

    proptest! {
        #[test]
        fn round_trips_formatted_times(millis in 0..250_000_000_000_000_u64) {
            prop_assert_eq!(parse(&format(Millis(millis))), Some(Millis(millis)));
            prop_assert_eq!(from_seconds(seconds(Millis(millis))), Millis(millis));
        }

        #[test]
        fn never_panics_on_arbitrary_text(text in ".*") {
            parse(&text);
        }
    }
}
