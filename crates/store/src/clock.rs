//! Conversion between Unix time and the zoneless local time of session entries.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use petasos_core::Millis;
use petasos_core::session::LocalTime;

pub fn local_time(now: Millis) -> LocalTime {
    let millis = i64::try_from(now.0).unwrap_or(i64::MAX);
    let offset =
        Timestamp::from_millisecond(millis).map_or(0, |at| TimeZone::system().to_offset(at).seconds());
    LocalTime::from_local_millis(millis.saturating_add(i64::from(offset) * 1000))
}

/// Converts local to Unix time. An ambiguous local time (end of daylight saving) resolves to the earlier instant.
pub(crate) fn unix_time(local: LocalTime) -> Millis {
    let naive = local.local_millis();
    let zoned = Timestamp::from_millisecond(naive)
        .and_then(|at| TimeZone::UTC.to_datetime(at).to_zoned(TimeZone::system()))
        .map_or(naive, |at| at.timestamp().as_millisecond());
    Millis(u64::try_from(zoned).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_time_round_trips_through_local_time() {
        for millis in [0, 1_794_766_325_741, 4_000_000_000_000] {
            assert_eq!(unix_time(local_time(Millis(millis))), Millis(millis));
        }
    }
}
