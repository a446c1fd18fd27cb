//! Output for people: tables, ages and styles. `anstream` removes colours where the terminal does not support
//! them.
//!
//! Printing never fails: the reader may close the pipe at any moment (`petasos run | head`).

use std::fmt::Arguments;
use std::io::Write;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use petasos_config::{Problem, Severity};
use petasos_core::Millis;
pub use petasos_runtime::clock::now;
use serde::Serialize;

use crate::failure::Failure;
use crate::logs;

pub const BOLD: Style = Style::new().bold();
pub const DIM: Style = Style::new().dimmed();
pub const SUCCESS: Style = AnsiColor::Green.on_default();
pub const WARNING: Style = AnsiColor::Yellow.on_default();
pub const ERROR: Style = AnsiColor::Red.on_default();
pub const CODE: Style = AnsiColor::Cyan.on_default();

/// Prints a line to standard output and ignores a closed pipe.
#[macro_export]
macro_rules! outln {
    ($($text:tt)*) => { $crate::print::line_out(format_args!($($text)*)) };
}

/// Prints a line to standard error and ignores a closed pipe.
#[macro_export]
macro_rules! errln {
    ($($text:tt)*) => { $crate::print::line_err(format_args!($($text)*)) };
}

pub use crate::{errln, outln};

pub fn line_out(text: Arguments<'_>) {
    let mut out = anstream::stdout().lock();
    let _reader_gone = writeln!(out, "{text}").and_then(|()| out.flush());
}

pub fn line_err(text: Arguments<'_>) {
    let text = logs::redactor().redact_owned(text.to_string());
    let mut out = anstream::stderr().lock();
    let _reader_gone = writeln!(out, "{text}").and_then(|()| out.flush());
}

pub fn problem(problem: &Problem) {
    outln!("{} {problem}", severity_label(problem.severity));
}

pub fn problem_err(problem: &Problem) {
    errln!("{} {problem}", severity_label(problem.severity));
}

fn severity_label(severity: Severity) -> String {
    match severity {
        Severity::Error | Severity::Unknown => styled(ERROR, "error:"),
        Severity::Warning => styled(WARNING, "warning:"),
    }
}

pub fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::new(format!("the output cannot be written as JSON: {error}")))?;
    outln!("{text}");
    Ok(())
}

/// Pads every column except the last to its widest cell.
pub fn table(heads: &[&str], rows: &[Vec<String>]) {
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count());
        cells.chain([heads[at].chars().count()]).max().unwrap_or_default()
    };
    let line = |cells: Vec<&str>| -> String {
        let last = cells.len().saturating_sub(1);
        let padded = cells.iter().enumerate().map(|(at, cell)| {
            if at == last {
                return (*cell).to_owned();
            }
            format!("{cell}{}", " ".repeat(width(at).saturating_sub(cell.chars().count()) + 2))
        });
        padded.collect()
    };
    outln!("{}", styled(DIM, &line(heads.to_vec())));
    for row in rows {
        outln!("{}", line(row.iter().map(String::as_str).collect()));
    }
}

pub fn truncate(text: &str, max: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= max {
        return line;
    }
    let short: String = line.chars().take(max.saturating_sub(1)).collect();
    format!("{short}…")
}

/// `3 min ago`.
pub fn ago(then: Millis, now: Millis) -> String {
    match now.since(then).as_secs() {
        0..=4 => "just now".into(),
        seconds @ 5..=59 => format!("{seconds} s ago"),
        seconds @ 60..=3599 => format!("{} min ago", seconds / 60),
        seconds @ 3600..=86_399 => format!("{} h ago", seconds / 3600),
        seconds => format!("{} d ago", seconds / 86_400),
    }
}

/// `48 s`, `3 min`: rounded up, so that it reaches nothing only when it is over.
pub fn span(time: Duration) -> String {
    match time.as_millis().div_ceil(1000) {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7199 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h", seconds.div_ceil(3600)),
    }
}

/// `until 23:14 (in 58 min)`, on this machine's clock.
pub fn describe_until(then: Millis, now: Millis) -> String {
    let minutes = then.since(now).as_secs().div_ceil(60);
    match local(then) {
        Some(local) => format!("until {} (in {minutes} min)", local.strftime("%H:%M")),
        None => format!("for another {minutes} min"),
    }
}

/// `23:14:05`, on this machine's clock.
pub fn time_of_day(then: Millis) -> String {
    local(then).map_or_else(|| "later".into(), |local| local.strftime("%H:%M:%S").to_string())
}

fn local(then: Millis) -> Option<jiff::Zoned> {
    let stamp = jiff::Timestamp::from_millisecond(i64::try_from(then.0).ok()?).ok()?;
    Some(stamp.to_zoned(jiff::tz::TimeZone::system()))
}

/// `1 message`, `2 messages`.
pub fn count(number: impl TryInto<u64>, one: &str, many: &str) -> String {
    match number.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {one}"),
        number => format!("{number} {many}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ago_picks_the_unit() {
        let check = |seconds: u64, want: &str| assert_eq!(ago(Millis(0), Millis(seconds * 1000)), want);
        check(0, "just now");
        check(59, "59 s ago");
        check(3600, "1 h ago");
        check(200_000, "2 d ago");
    }

    #[test]
    fn describes_time_and_wait() {
        let text = describe_until(Millis(3_600_000), Millis(120_000));
        assert!(text.starts_with("until ") && text.ends_with("(in 58 min)"), "{text}");
        assert_eq!(
            (count(1_u64, "cat", "cats"), count(2_u64, "cat", "cats")),
            ("1 cat".into(), "2 cats".into())
        );
    }

    #[test]
    fn span_picks_the_unit() {
        let check = |ms: u64, want: &str| assert_eq!(span(Duration::from_millis(ms)), want);
        check(0, "0 s");
        check(1, "1 s");
        check(119_000, "119 s");
        check(120_001, "3 min");
        check(7_200_000, "2 h");
    }

    #[test]
    fn truncates_by_characters() {
        assert_eq!(truncate("a\n  b", 9), "a b");
        assert_eq!(truncate("äöüß", 3), "äö…");
    }
}
