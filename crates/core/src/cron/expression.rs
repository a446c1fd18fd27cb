//! Cron expressions of five fields, with daylight saving time.
//!
//! An expression with a fixed hour and minute follows the wall clock: a time skipped in spring runs when the clock has
//! jumped, a time repeated in autumn runs once. An expression with `*` in hour or minute follows elapsed time.

use alloc::format;
use alloc::string::{String, ToString};

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expression {
    minutes: u64,
    hours: u64,
    days: u64,
    last_day: bool,
    months: u64,
    weekdays: u64,
    /// For each weekday its occurrences in the month: bits 0 to 4 are the first to the fifth, bit 5 is the last.
    nth: [u8; 7],
    /// Whether the field restricts the day. If both fields do, a day that matches either one counts.
    by_day: bool,
    by_weekday: bool,
    fixed: bool,
}

/// Longest distance in days of two matching days: 29 February on a given weekday, across a year without one.
const HORIZON: u32 = 366 * 41;
const LAST: u8 = 1 << 5;
/// Maximum hours by which clocks are set back.
const SHIFT: i64 = 3;

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

struct Field {
    name: &'static str,
    from: u8,
    to: u8,
    words: &'static [&'static str],
    first: u8,
}

const MINUTE: Field = Field { name: "minute", from: 0, to: 59, words: &[], first: 0 };
const HOUR: Field = Field { name: "hour", from: 0, to: 23, words: &[], first: 0 };
const DAY: Field = Field { name: "day", from: 1, to: 31, words: &[], first: 0 };
const MONTH: Field = Field { name: "month", from: 1, to: 12, words: &MONTHS, first: 1 };
/// Sunday is 0 and 7.
const WEEKDAY: Field = Field { name: "weekday", from: 0, to: 7, words: &WEEKDAYS, first: 0 };

impl Expression {
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = match text.trim() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            text => text,
        };
        let text = text.to_ascii_lowercase();
        let mut fields = text.split_whitespace();
        let mut next = || {
            fields.next().ok_or_else(|| {
                "a cron expression has five fields: minute, hour, day, month and weekday".to_string()
            })
        };
        let minute = next()?;
        let hour = next()?;
        let day = next()?;
        let month = next()?;
        let weekday = next()?;
        if fields.next().is_some() {
            return Err("a cron expression has five fields: minute, hour, day, month and weekday; seconds and years are not supported".into());
        }
        let any = |field: &str| field.starts_with(['*', '?']);
        let (days, last_day) = days(day)?;
        let (weekdays, nth) = weekdays(weekday)?;
        Ok(Self {
            minutes: MINUTE.set(minute)?,
            hours: HOUR.set(hour)?,
            days,
            last_day,
            months: MONTH.set(month)?,
            weekdays,
            nth,
            by_day: !any(day),
            by_weekday: !any(weekday),
            fixed: !any(minute) && !any(hour),
        })
    }

    /// The first occurrence after `after`. `None`: there is none.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        // If the clock is set back at midnight, the last hour of yesterday may still come.
        let mut date = zone.to_datetime(after).date().yesterday().ok()?;
        for _ in 0..HORIZON {
            let found = self.first_on(date, after, zone);
            date = date.tomorrow().ok()?;
            if let Some(found) = found {
                // For the same reason an occurrence of the next day may come first.
                return self.first_on(date, after, zone).into_iter().chain([found]).min();
            }
        }
        None
    }

    fn first_on(&self, date: Date, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        if !self.is_day(date) {
            return None;
        }
        // Zone lookups are expensive: skip wall-clock times that are hours away.
        let now = zone.to_datetime(after);
        let early = now.checked_sub(SHIFT.hours()).ok()?;
        let mut found: Option<(DateTime, Timestamp)> = None;
        let times = bits(self.hours).flat_map(|hour| bits(self.minutes).map(move |minute| (hour, minute)));
        for (hour, minute) in times {
            let at = date.to_datetime(Time::new(hour, minute, 0, 0).ok()?);
            if at < early {
                continue;
            }
            if found.is_some_and(|(first, _)| first.checked_add(SHIFT.hours()).is_ok_and(|late| at > late)) {
                break;
            }
            let later = self.instants(at, zone).into_iter().flatten().filter(|moment| *moment > after).min();
            if let Some(moment) = later.filter(|moment| found.is_none_or(|(_, best)| *moment < best)) {
                found = Some((at, moment));
            }
        }
        found.map(|(_, moment)| moment)
    }

    fn is_day(&self, date: Date) -> bool {
        let day = date.day();
        if !has(self.months, date.month()) {
            return false;
        }
        let by_day = has(self.days, day) || (self.last_day && day == date.days_in_month());
        let weekday = usize::try_from(date.weekday().to_sunday_zero_offset()).unwrap_or_default();
        let which = 1u8 << ((day - 1) / 7);
        let last = if day + 7 > date.days_in_month() { LAST } else { 0 };
        let by_weekday = self.weekdays & (1 << weekday) != 0
            || [which, last].iter().any(|week| self.nth[weekday] & week != 0);
        match (self.by_day, self.by_weekday) {
            (true, true) => by_day || by_weekday,
            (_, _) => by_day && by_weekday,
        }
    }

    /// The instants of a wall-clock time: one, two or none.
    fn instants(&self, at: DateTime, zone: &TimeZone) -> [Option<Timestamp>; 2] {
        match zone.to_ambiguous_timestamp(at).offset() {
            AmbiguousOffset::Unambiguous { offset } => [offset.to_timestamp(at).ok(), None],
            AmbiguousOffset::Gap { before, .. } if self.fixed => {
                [before.to_timestamp(at).ok().and_then(|inside| gap_end(inside, zone)), None]
            }
            AmbiguousOffset::Gap { .. } => [None, None],
            AmbiguousOffset::Fold { before, .. } if self.fixed => [before.to_timestamp(at).ok(), None],
            AmbiguousOffset::Fold { before, after } => {
                [before.to_timestamp(at).ok(), after.to_timestamp(at).ok()]
            }
        }
    }
}

/// The end of the gap in which this instant lies.
fn gap_end(inside: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let behind = inside.checked_add(1.second()).ok()?;
    zone.preceding(behind).next().map(|transition| transition.timestamp())
}

fn has(set: u64, number: i8) -> bool {
    u32::try_from(number).is_ok_and(|number| set & (1 << number) != 0)
}

fn bits(set: u64) -> impl Iterator<Item = i8> {
    (0..60i8).filter(move |number| has(set, *number))
}

/// The set of days and whether it contains the last day of the month.
fn days(field: &str) -> Result<(u64, bool), String> {
    let mut set = 0;
    let mut last = false;
    for part in field.split(',') {
        match part {
            "l" => last = true,
            part => set |= DAY.part(part)?,
        }
    }
    Ok((set, last))
}

fn weekdays(field: &str) -> Result<(u64, [u8; 7]), String> {
    let mut set = 0u64;
    let mut nth = [0; 7];
    for part in field.split(',') {
        let (day, which) = match (part.split_once('#'), part.strip_suffix('l')) {
            (Some((day, which)), _) => match which.parse::<u8>() {
                Ok(which @ 1..=5) => (day, 1 << (which - 1)),
                Ok(_) | Err(_) => return Err(format!("{which:?} is not one of the five weeks of a month")),
            },
            (None, Some(day)) if !day.is_empty() => (day, LAST),
            (None, Some(_) | None) => {
                set |= WEEKDAY.part(part)?;
                continue;
            }
        };
        nth[usize::from(WEEKDAY.number(day)? % 7)] |= which;
    }
    if set & (1 << 7) != 0 {
        set |= 1;
    }
    Ok((set, nth))
}

impl Field {
    fn set(&self, field: &str) -> Result<u64, String> {
        field.split(',').try_fold(0, |set, part| Ok(set | self.part(part)?))
    }

    /// `*`, `7` or `2-5`, each optionally with a step `/3`. `7/3` runs to the end of the range.
    fn part(&self, part: &str) -> Result<u64, String> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (part, None),
        };
        let by = match step.map(str::parse::<u8>) {
            None => 1,
            Some(Ok(by @ 1..)) => by,
            Some(Ok(_) | Err(_)) => return Err(format!("{part:?} has an invalid step")),
        };
        // 7 is Sunday again and must not be reached by a step.
        let end = if self.to == 7 { 6 } else { self.to };
        let (from, to) = match (range, range.split_once('-')) {
            ("*" | "?", _) => (self.from, end),
            (_, Some((from, to))) => (self.number(from)?, self.number(to)?),
            (_, None) if step.is_some() => (self.number(range)?, end),
            (_, None) => (self.number(range)?, self.number(range)?),
        };
        if from > to {
            return Err(format!("{range:?} ends before it begins in the field for the {}", self.name));
        }
        Ok((from..=to).step_by(usize::from(by)).map(|number| 1 << number).sum())
    }

    fn number(&self, text: &str) -> Result<u8, String> {
        let word = self.words.iter().position(|word| *word == text);
        let number = match word.and_then(|at| u8::try_from(at).ok()) {
            Some(at) => Some(at + self.first),
            None => text.parse().ok(),
        };
        number
            .filter(|number| (self.from..=self.to).contains(number))
            .ok_or_else(|| format!("{text:?} is not a valid {}", self.name))
    }
}
