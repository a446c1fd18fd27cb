//! Progress of a wait for running turns: a few lines that are redrawn in a terminal, and one line per change
//! elsewhere.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};

use petasos_core::Millis;

use crate::observe::{ActiveTurn, LifecycleStatus};
use crate::print::{self, BOLD, DIM, outln, span, styled, truncate};

const DEFAULT_SIZE: (usize, usize) = (80, 24);

/// Indentation, column gaps, and the last column of the terminal, which stays free.
const GAPS: usize = 2 + 3 * 2 + 1;
/// Shortest useful width of a session key.
const MIN_KEY_WIDTH: usize = 6;

#[derive(Debug)]
pub enum Progress {
    /// JSON output: only the result is printed.
    Silent,
    Terminal {
        drawn: Vec<String>,
    },
    /// The last title, and the last text of each session.
    Lines {
        title: String,
        reported: BTreeMap<String, String>,
    },
}

impl Progress {
    pub fn new(json: bool) -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        match (json, std::io::stdout().is_terminal() && !dumb) {
            (true, _) => Self::Silent,
            (false, true) => Self::Terminal { drawn: Vec::new() },
            (false, false) => Self::Lines { title: String::new(), reported: BTreeMap::new() },
        }
    }

    pub fn show(&mut self, title: &str, lifecycle: Option<&LifecycleStatus>) {
        let now = print::now();
        match self {
            Self::Silent => {}
            Self::Terminal { drawn } => {
                let lines = frame_lines(title, lifecycle, whole_second(now), size());
                if *drawn != lines {
                    draw(drawn.len(), &lines);
                    *drawn = lines;
                }
            }
            Self::Lines { title: last, reported } => {
                if last != title {
                    outln!("{title}");
                    *last = title.to_owned();
                }
                for line in changes(reported, lifecycle, now) {
                    outln!("  {line}");
                }
            }
        }
    }

    /// Removes the progress lines before the result is printed.
    pub fn clear(&mut self) {
        if let Self::Terminal { drawn } = self {
            draw(drawn.len(), &[]);
            drawn.clear();
        }
    }
}

/// All times of a frame change at the same moment.
const fn whole_second(now: Millis) -> Millis {
    Millis(now.0 - now.0 % 1000)
}

/// The lines of a terminal, none of which wraps and which never fill it.
fn frame_lines(
    title: &str,
    lifecycle: Option<&LifecycleStatus>,
    now: Millis,
    (width, height): (usize, usize),
) -> Vec<String> {
    let rows: Vec<[String; 4]> = lifecycle
        .into_iter()
        .flat_map(|lifecycle| lifecycle.turns.iter().map(|turn| columns(lifecycle, turn, now)))
        .collect();
    let room = height.saturating_sub(3).max(1);
    let hidden = if rows.len() > room { rows.len() + 1 - room } else { 0 };
    let shown = &rows[..rows.len() - hidden];
    let widest =
        |at: usize| shown.iter().map(|columns| columns[at].chars().count()).max().unwrap_or_default();
    let [activities, ages, remaining] = [widest(1), widest(2), widest(3)];
    let room = width.saturating_sub(GAPS + activities + ages + remaining);
    let key_width = widest(0).min(room.max(MIN_KEY_WIDTH));
    let line = |columns: &[String; 4]| {
        let [key, activity, since, left] = columns;
        let key = truncate_start(key, key_width);
        fit(&format!("  {key:<key_width$}  {activity:<activities$}  {since:<ages$}  {left}"), width)
    };
    let mut lines = vec![styled(BOLD, &fit(title, width))];
    lines.extend(shown.iter().map(line));
    if hidden > 0 {
        lines.push(styled(DIM, &fit(&format!("  and {hidden} more"), width)));
    }
    lines
}

/// Columns of one turn: session, activity, age and remaining time.
fn columns(lifecycle: &LifecycleStatus, turn: &ActiveTurn, now: Millis) -> [String; 4] {
    let left = match (turn.skipped, lifecycle.deadline_of(turn)) {
        (true, _) => "skipped".into(),
        (false, Some(until)) => format!("{} left", span(until.since(now))),
        (false, None) => String::new(),
    };
    let since = format!("for {}", span(now.since(turn.since)));
    [
        without_control_characters(&turn.key),
        without_control_characters(&turn.activity.description()),
        since,
        left,
    ]
}

/// The changes since the last call; none while the gateway does not answer.
fn changes(
    reported: &mut BTreeMap<String, String>,
    lifecycle: Option<&LifecycleStatus>,
    now: Millis,
) -> Vec<String> {
    let Some(lifecycle) = lifecycle else { return Vec::new() };
    let mut lines = Vec::new();
    reported.retain(|key, _| {
        let stays = lifecycle.turns.iter().any(|turn| turn.key == *key);
        if !stays {
            lines.push(format!("{}: finished", without_control_characters(key)));
        }
        stays
    });
    for turn in &lifecycle.turns {
        let what =
            format!("{} {} {:?}", turn.activity.description(), turn.skipped, lifecycle.deadline_of(turn));
        if reported.insert(turn.key.clone(), what.clone()) != Some(what) {
            let [key, activity, since, left] = columns(lifecycle, turn, now);
            let left = if left.is_empty() { left } else { format!(", {left}") };
            lines.push(format!("{key}: {activity} {since}{left}"));
        }
    }
    lines
}

/// Names of tools and chats come from outside and must not move the cursor.
fn without_control_characters(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Truncates to one line and keeps the indentation.
fn fit(line: &str, width: usize) -> String {
    let line = line.trim_end();
    if line.chars().count() < width {
        return line.to_owned();
    }
    let indent: String = line.chars().take_while(|c| *c == ' ').collect();
    let kept: String = line.chars().take(width.saturating_sub(2)).collect();
    if width < 8 { truncate(line, width) } else { format!("{indent}{}…", kept.trim_start()) }
}

/// The end of a name, which is more specific than its beginning.
fn truncate_start(name: &str, max: usize) -> String {
    let length = name.chars().count();
    if length <= max {
        return name.to_owned();
    }
    let kept: String = name.chars().skip(length + 1 - max.max(1)).collect();
    format!("…{kept}")
}

fn draw(drawn: usize, lines: &[String]) {
    let mut raw = std::io::stdout().lock();
    let plain = anstream::AutoStream::choice(&raw) == anstream::ColorChoice::Never;
    let lines: Vec<String> = if plain {
        lines.iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect()
    } else {
        lines.to_vec()
    };
    // Cursor movement is not a colour, so `anstream` must not strip it.
    let _terminal_gone = raw.write_all(frame(drawn, &lines).as_bytes()).and_then(|()| raw.flush());
}

/// Overwrites the drawn lines and clears the rest below them.
fn frame(drawn: usize, lines: &[String]) -> String {
    let mut text = String::new();
    if drawn > 0 {
        text.push_str(&format!("\r\x1b[{drawn}A"));
    }
    for line in lines {
        text.push_str(&format!("{line}\x1b[K\n"));
    }
    if drawn > lines.len() {
        text.push_str("\x1b[J");
    }
    text
}

fn size() -> (usize, usize) {
    let Ok(size) = rustix::termios::tcgetwinsize(std::io::stdout()) else { return DEFAULT_SIZE };
    let or = |reported: u16, usual: usize| if reported == 0 { usual } else { usize::from(reported) };
    (or(size.ws_col, DEFAULT_SIZE.0), or(size.ws_row, DEFAULT_SIZE.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: Millis = Millis(100_000);

    fn lifecycle(sessions: &[(&str, &str)]) -> LifecycleStatus {
        let turn = |(key, at): &(&str, &str)| json!({"key": key, "doing": {"at": at}, "since": 88_000});
        serde_json::from_value(json!({
            "state": "draining",
            "drain": {"kind": "shutdown", "deadline": 148_000},
            "holders": sessions.iter().map(turn).collect::<Vec<_>>(),
        }))
        .unwrap()
    }

    fn drawn(lifecycle: &LifecycleStatus, size: (usize, usize)) -> Vec<String> {
        let lines = frame_lines("stopping", Some(lifecycle), NOW, size);
        lines.iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect()
    }

    #[test]
    fn draws_one_aligned_line_per_session() {
        let lifecycle = lifecycle(&[("agent:main:telegram:dm:7", "thinking"), ("web", "starting")]);
        let want = [
            "stopping",
            "  agent:main:telegram:dm:7  thinking  for 12 s  48 s left",
            "  web                       starting  for 12 s  48 s left",
        ];
        assert_eq!(drawn(&lifecycle, (80, 24)), want);
    }

    #[test]
    fn frame_fits_terminal_size() {
        let many: Vec<(String, &str)> = (0..50).map(|at| (format!("session-{at}"), "thinking")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|(key, at)| (key.as_str(), *at)).collect();
        for (width, height) in [(80, 24), (20, 5), (10, 1), (4, 2), (1, 1), (0, 0)] {
            let lines = drawn(&lifecycle(&many), (width, height));
            assert!(lines.len() <= height.max(3), "{height}: {lines:?}");
            assert!(lines.iter().all(|line| line.chars().count() <= width.max(1)), "{width}: {lines:?}");
        }
        assert_eq!(drawn(&lifecycle(&many), (80, 10)).last().unwrap(), "  and 44 more");
    }

    #[test]
    fn narrow_terminal_shortens_names_only() {
        let lifecycle = lifecycle(&[("agent:main:telegram:dm:7", "thinking"), ("web", "starting")]);
        let want = [
            "stopping",
            "  …:dm:7  thinking  for 12 s  48 s left",
            "  web     starting  for 12 s  48 s left",
        ];
        assert_eq!(drawn(&lifecycle, (40, 24)), want);
    }

    #[test]
    fn frame_changes_once_a_second_and_overwrites_lines() {
        let lifecycle = lifecycle(&[("a", "thinking")]);
        let at = |ms: u64| frame_lines("stopping", Some(&lifecycle), whole_second(Millis(ms)), (80, 24));
        assert_eq!(at(100_001), at(100_999));
        assert_ne!(at(100_999), at(101_000));
        let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        assert_eq!(frame(0, &lines(&["a"])), "a\x1b[K\n");
        assert_eq!(frame(1, &lines(&["a", "b"])), "\r\x1b[1Aa\x1b[K\nb\x1b[K\n");
        assert_eq!(frame(2, &lines(&["a"])), "\r\x1b[2Aa\x1b[K\n\x1b[J");
    }

    #[test]
    fn control_characters_in_names_are_replaced() {
        let line = &drawn(&lifecycle(&[("a\x1b[2Jb\n", "thinking")]), (80, 24))[1];
        assert!(line.starts_with("  a?[2Jb?  thinking"), "{line}");
    }

    #[test]
    fn without_terminal_only_changes_are_reported() {
        let mut reported = BTreeMap::new();
        let mut changes_of =
            |sessions: &[(&str, &str)]| changes(&mut reported, Some(&lifecycle(sessions)), NOW);
        assert_eq!(changes_of(&[("a", "thinking")]), ["a: thinking for 12 s, 48 s left"]);
        assert!(changes_of(&[("a", "thinking")]).is_empty());
        assert_eq!(changes_of(&[("a", "acting"), ("b", "thinking")]).len(), 2);
        assert_eq!(changes_of(&[("b", "thinking")]), ["a: finished"]);
        assert!(changes(&mut reported, None, NOW).is_empty());
    }
}
