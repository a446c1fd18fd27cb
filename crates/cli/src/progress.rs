//! Who is still at work, while somebody waits for it: a few lines that are drawn anew in a terminal, and elsewhere a
//! line for whatever changes.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};

use petasos_core::Millis;

use crate::life::{Holder, Life};
use crate::print::{self, BOLD, DIM, cut, say, span, styled};

/// For terminals that do not say how large they are.
const USUAL: (usize, usize) = (80, 24);

/// Between and before the columns, and the last one of a terminal, which stays free.
const GAPS: usize = 2 + 3 * 2 + 1;
/// A session's name tells nothing if it is shorter.
const SHORTEST: usize = 6;

#[derive(Debug)]
pub enum Progress {
    /// Somebody else reads the result only.
    Silent,
    /// The lines that stand there.
    Terminal { drawn: Vec<String> },
    /// What was said last of the whole, and of each session.
    Lines { head: String, told: BTreeMap<String, String> },
}

impl Progress {
    pub fn new(json: bool) -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        match (json, std::io::stdout().is_terminal() && !dumb) {
            (true, _) => Self::Silent,
            (false, true) => Self::Terminal { drawn: Vec::new() },
            (false, false) => Self::Lines { head: String::new(), told: BTreeMap::new() },
        }
    }

    /// `head`: what is waited for.
    pub fn show(&mut self, head: &str, life: Option<&Life>) {
        let now = print::now();
        match self {
            Self::Silent => {}
            Self::Terminal { drawn } => {
                let picture = picture(head, life, whole_second(now), size());
                if *drawn != picture {
                    draw(drawn.len(), &picture);
                    *drawn = picture;
                }
            }
            Self::Lines { head: last, told } => {
                if last != head {
                    say!("{head}");
                    *last = head.to_owned();
                }
                for line in news(told, life, now) {
                    say!("  {line}");
                }
            }
        }
    }

    /// Makes room for what is said in the end.
    pub fn clear(&mut self) {
        if let Self::Terminal { drawn } = self {
            draw(drawn.len(), &[]);
            drawn.clear();
        }
    }
}

/// All times in a picture move at the same moment.
const fn whole_second(now: Millis) -> Millis {
    Millis(now.0 - now.0 % 1000)
}

/// The lines of a terminal, none of which wraps and which never fill it.
fn picture(head: &str, life: Option<&Life>, now: Millis, (width, height): (usize, usize)) -> Vec<String> {
    let rows: Vec<[String; 4]> =
        life.into_iter().flat_map(|life| life.holders.iter().map(|holder| row(life, holder, now))).collect();
    let room = height.saturating_sub(3).max(1);
    let hidden = if rows.len() > room { rows.len() + 1 - room } else { 0 };
    let shown = &rows[..rows.len() - hidden];
    let wide = |at: usize| shown.iter().map(|row| row[at].chars().count()).max().unwrap_or_default();
    let [doings, sinces, lefts] = [wide(1), wide(2), wide(3)];
    let room = width.saturating_sub(GAPS + doings + sinces + lefts);
    let keys = wide(0).min(room.max(SHORTEST));
    let line = |row: &[String; 4]| {
        let [key, doing, since, left] = row;
        let key = tail(key, keys);
        short(&format!("  {key:<keys$}  {doing:<doings$}  {since:<sinces$}  {left}"), width)
    };
    let mut lines = vec![styled(BOLD, &short(head, width))];
    lines.extend(shown.iter().map(line));
    if hidden > 0 {
        lines.push(styled(DIM, &short(&format!("  and {hidden} more"), width)));
    }
    lines
}

/// Which session, what it does, since when, and how long it still may.
fn row(life: &Life, holder: &Holder, now: Millis) -> [String; 4] {
    let left = match (holder.skipped, life.patience(holder)) {
        (true, _) => "not waited for".into(),
        (false, Some(until)) => format!("{} left", span(until.since(now))),
        (false, None) => String::new(),
    };
    let since = format!("for {}", span(now.since(holder.since)));
    [plain(&holder.key), plain(&holder.doing.words()), since, left]
}

/// What is new since the last time. Of a gateway that does not answer, nothing is.
fn news(told: &mut BTreeMap<String, String>, life: Option<&Life>, now: Millis) -> Vec<String> {
    let Some(life) = life else { return Vec::new() };
    let mut lines = Vec::new();
    told.retain(|key, _| {
        let stays = life.holders.iter().any(|holder| holder.key == *key);
        if !stays {
            lines.push(format!("{}: not at work any more", plain(key)));
        }
        stays
    });
    for holder in &life.holders {
        let what = format!("{} {} {:?}", holder.doing.words(), holder.skipped, life.patience(holder));
        if told.insert(holder.key.clone(), what.clone()) != Some(what) {
            let [key, doing, since, left] = row(life, holder, now);
            let left = if left.is_empty() { left } else { format!(", {left}") };
            lines.push(format!("{key}: {doing} {since}{left}"));
        }
    }
    lines
}

/// Names of tools and chats come from elsewhere; none of them may move the cursor.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Fits into one line; blanks stay.
fn short(line: &str, width: usize) -> String {
    let line = line.trim_end();
    if line.chars().count() < width {
        return line.to_owned();
    }
    let indent: String = line.chars().take_while(|c| *c == ' ').collect();
    let kept: String = line.chars().take(width.saturating_sub(2)).collect();
    if width < 8 { cut(line, width) } else { format!("{indent}{}…", kept.trim_start()) }
}

/// The end of a name, which says more than its beginning.
fn tail(name: &str, most: usize) -> String {
    let length = name.chars().count();
    if length <= most {
        return name.to_owned();
    }
    let kept: String = name.chars().skip(length + 1 - most.max(1)).collect();
    format!("…{kept}")
}

fn draw(drawn: usize, lines: &[String]) {
    let mut raw = std::io::stdout().lock();
    let plain = anstream::AutoStream::choice(&raw) == anstream::ColorChoice::Never;
    let lines: Vec<String> = match plain {
        true => lines.iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect(),
        false => lines.to_vec(),
    };
    // To move the cursor is not a matter of colours, so not for `anstream` to take away.
    let _terminal_gone = raw.write_all(frame(drawn, &lines).as_bytes()).and_then(|()| raw.flush());
}

/// Each line over the one that stands there; what stands below them goes.
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

/// Columns and rows.
fn size() -> (usize, usize) {
    let Ok(size) = rustix::termios::tcgetwinsize(std::io::stdout()) else { return USUAL };
    let or = |told: u16, usual: usize| if told == 0 { usual } else { usize::from(told) };
    (or(size.ws_col, USUAL.0), or(size.ws_row, USUAL.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: Millis = Millis(100_000);

    fn life(sessions: &[(&str, &str)]) -> Life {
        let holder = |(key, at): &(&str, &str)| json!({"key": key, "doing": {"at": at}, "since": 88_000});
        serde_json::from_value(json!({
            "state": "draining",
            "drain": {"kind": "shutdown", "deadline": 148_000},
            "holders": sessions.iter().map(holder).collect::<Vec<_>>(),
        }))
        .unwrap()
    }

    fn drawn(life: &Life, size: (usize, usize)) -> Vec<String> {
        let lines = picture("stopping", Some(life), NOW, size);
        lines.iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect()
    }

    #[test]
    fn a_picture_has_a_line_for_each_session_in_straight_columns() {
        let life = life(&[("agent:main:telegram:dm:7", "thinking"), ("web", "starting")]);
        let want = [
            "stopping",
            "  agent:main:telegram:dm:7  thinking  for 12 s  48 s left",
            "  web                       starting  for 12 s  48 s left",
        ];
        assert_eq!(drawn(&life, (80, 24)), want);
    }

    #[test]
    fn no_line_wraps_and_there_are_never_more_than_fit() {
        let many: Vec<(String, &str)> = (0..50).map(|at| (format!("session-{at}"), "thinking")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|(key, at)| (key.as_str(), *at)).collect();
        for (width, height) in [(80, 24), (20, 5), (10, 1), (4, 2), (1, 1), (0, 0)] {
            let lines = drawn(&life(&many), (width, height));
            assert!(lines.len() <= height.max(3), "{height}: {lines:?}");
            assert!(lines.iter().all(|line| line.chars().count() <= width.max(1)), "{width}: {lines:?}");
        }
        assert_eq!(drawn(&life(&many), (80, 10)).last().unwrap(), "  and 44 more");
    }

    #[test]
    fn in_a_narrow_terminal_names_are_shortened_and_not_what_they_do() {
        let life = life(&[("agent:main:telegram:dm:7", "thinking"), ("web", "starting")]);
        let want = [
            "stopping",
            "  …:dm:7  thinking  for 12 s  48 s left",
            "  web     starting  for 12 s  48 s left",
        ];
        assert_eq!(drawn(&life, (40, 24)), want);
    }

    #[test]
    fn a_picture_changes_once_in_a_second_and_lines_are_written_over() {
        let life = life(&[("a", "thinking")]);
        let at = |ms: u64| picture("stopping", Some(&life), whole_second(Millis(ms)), (80, 24));
        assert_eq!(at(100_001), at(100_999));
        assert_ne!(at(100_999), at(101_000));
        let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        assert_eq!(frame(0, &lines(&["a"])), "a\x1b[K\n");
        assert_eq!(frame(1, &lines(&["a", "b"])), "\r\x1b[1Aa\x1b[K\nb\x1b[K\n");
        assert_eq!(frame(2, &lines(&["a"])), "\r\x1b[2Aa\x1b[K\n\x1b[J");
    }

    #[test]
    fn nothing_that_others_named_moves_the_cursor() {
        let line = &drawn(&life(&[("a\x1b[2Jb\n", "thinking")]), (80, 24))[1];
        assert!(line.starts_with("  a?[2Jb?  thinking"), "{line}");
    }

    #[test]
    fn only_what_changes_is_told_elsewhere() {
        let mut told = BTreeMap::new();
        let mut hear = |sessions: &[(&str, &str)]| news(&mut told, Some(&life(sessions)), NOW);
        assert_eq!(hear(&[("a", "thinking")]), ["a: thinking for 12 s, 48 s left"]);
        assert!(hear(&[("a", "thinking")]).is_empty());
        assert_eq!(hear(&[("a", "acting"), ("b", "thinking")]).len(), 2);
        assert_eq!(hear(&[("b", "thinking")]), ["a: not at work any more"]);
        assert!(news(&mut told, None, NOW).is_empty());
    }
}
