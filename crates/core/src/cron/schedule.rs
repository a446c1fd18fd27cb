//! Schedules as users write them: `30m`, `every 2h`, a cron expression, a date.
//!
//! A schedule is evaluated relative to an anchor, the instant when it was set, and a time zone. Both are stored with the
//! text, so that it always has the same meaning.

use alloc::format;
use alloc::string::{String, ToString};
use core::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use super::expression::Expression;
use crate::Millis;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Schedule {
    Once(Millis),
    Every {
        span: Duration,
        anchor: Millis,
    },
    /// Calendar days since the anchor, at the same wall-clock time.
    Days {
        days: u32,
        anchor: Millis,
    },
    Cron(Expression),
}

const MIN_INTERVAL: Duration = Duration::from_secs(60);
const MAX_SECONDS: u64 = 10 * 366 * DAY;
const DAY: u64 = 24 * 3600;

const HELP: &str = "use 30m (once), every 2h, a cron expression such as 0 9 * * 1-5, or a time such as \
                    2027-02-03T14:00";

impl Schedule {
    pub fn parse(text: &str, anchor: Millis, zone: &TimeZone) -> Result<Self, String> {
        let text = text.trim();
        let lower = text.to_ascii_lowercase();
        if let Some(span) = lower.strip_prefix("every ") {
            return every(span.trim(), anchor);
        }
        if let Some((count, unit)) = span(&lower) {
            return Ok(Self::Once(anchor.after(Duration::from_secs(seconds(count, unit)?))));
        }
        if text.starts_with('@') || text.split_whitespace().count() >= 5 {
            let expression = Expression::parse(text)?;
            let begins = stamp(anchor).ok_or_else(|| out_of_range(text))?;
            return match expression.next(begins, zone) {
                Some(_) => Ok(Self::Cron(expression)),
                None => Err(format!("{text:?} describes a time that never occurs")),
            };
        }
        let at = instant(text, zone).ok_or_else(|| format!("{text:?} is not a schedule; {HELP}"))?;
        if at <= anchor {
            return Err(format!("{text:?} is in the past; use a later time"));
        }
        Ok(Self::Once(at))
    }

    /// The first occurrence after `after`. `None`: the schedule is over.
    pub fn next(&self, after: Millis, zone: &TimeZone) -> Option<Millis> {
        match self {
            Self::Once(at) => Some(*at).filter(|at| *at > after),
            Self::Every { span, anchor } => {
                let span = u64::try_from(span.as_millis()).ok()?;
                let gone = after.0.saturating_sub(anchor.0) / span;
                anchor.0.checked_add(span.checked_mul(gone + 1)?).map(Millis)
            }
            Self::Days { days, anchor } => next_day(*days, *anchor, after, zone),
            Self::Cron(expression) => expression.next(stamp(after)?, zone).and_then(millis),
        }
    }
}

fn every(text: &str, anchor: Millis) -> Result<Schedule, String> {
    // `every hour`
    let (count, unit) = span(text)
        .or_else(|| unit(text).map(|unit| (1, unit)))
        .ok_or_else(|| format!("\"every {text}\" is not a schedule; {HELP}"))?;
    let span = Duration::from_secs(seconds(count, unit)?);
    if span < MIN_INTERVAL {
        return Err("a schedule cannot repeat more often than once a minute".into());
    }
    match u32::try_from(count * unit / DAY) {
        Ok(days) if unit >= DAY => Ok(Schedule::Days { days, anchor }),
        Ok(_) | Err(_) => Ok(Schedule::Every { span, anchor }),
    }
}

/// `30m`, `2 hours`: a count and the seconds of its unit.
fn span(text: &str) -> Option<(u64, u64)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, name) = text.split_at(digits);
    Some((count.parse().ok()?, unit(name.trim())?))
}

fn unit(name: &str) -> Option<u64> {
    match name {
        "s" | "sec" | "secs" | "second" | "seconds" => Some(1),
        "m" | "min" | "mins" | "minute" | "minutes" => Some(60),
        "h" | "hr" | "hrs" | "hour" | "hours" => Some(3600),
        "d" | "day" | "days" => Some(DAY),
        "w" | "week" | "weeks" => Some(7 * DAY),
        _ => None,
    }
}

fn seconds(count: u64, unit: u64) -> Result<u64, String> {
    let seconds = count.checked_mul(unit).filter(|seconds| (1..=MAX_SECONDS).contains(seconds));
    seconds.ok_or_else(|| "the time must be between one second and ten years".to_string())
}

/// A time with an offset, or a wall-clock time in this zone: the first of two in autumn, in spring the time after the gap.
fn instant(text: &str, zone: &TimeZone) -> Option<Millis> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return millis(at);
    }
    let at: DateTime = text.parse().ok()?;
    millis(zone.to_ambiguous_timestamp(at).compatible().ok()?)
}

fn next_day(days: u32, anchor: Millis, after: Millis, zone: &TimeZone) -> Option<Millis> {
    let from = zone.to_datetime(stamp(anchor)?);
    let now = zone.to_datetime(stamp(after.max(anchor))?);
    let gone = u32::try_from((now.date() - from.date()).get_days()).ok()? / days;
    // The time of day can shift the result by a day.
    (gone..=gone + 2).find_map(|times| {
        let span = i64::from(times.checked_mul(days)?).days();
        let at = zone.to_ambiguous_timestamp(from.checked_add(span).ok()?).compatible().ok()?;
        millis(at).filter(|at| *at > after && *at > anchor)
    })
}

fn out_of_range(text: &str) -> String {
    format!("{text:?} cannot be calculated from the current time; check the clock")
}

fn stamp(at: Millis) -> Option<Timestamp> {
    Timestamp::from_millisecond(i64::try_from(at.0).ok()?).ok()
}

fn millis(at: Timestamp) -> Option<Millis> {
    u64::try_from(at.as_millisecond()).ok().map(Millis)
}
