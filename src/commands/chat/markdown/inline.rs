//! Marks inside a line: bold, italic, code, struck out, links.

use anstyle::{Effects, Style};

use crate::print::{CODE, DIM};

/// A character and how it looks.
pub(super) type Cell = (char, Style);

/// The text without its marks. A mark that is never closed is a character like any other.
pub(super) fn cells(text: &str, style: Style) -> Vec<Cell> {
    let mut out = Vec::new();
    read(text, style, &mut out);
    out
}

/// Cells with the codes that switch styles.
pub(super) fn shown(cells: &[Cell]) -> String {
    let mut out = String::new();
    for run in cells.chunk_by(|a, b| a.1 == b.1) {
        let style = run[0].1;
        let text: String = run.iter().map(|(c, _)| *c).collect();
        out.push_str(&format!("{style}{text}{style:#}"));
    }
    out
}

/// Whether nothing is open at the end, so that a line may be broken there.
pub(super) fn is_closed(text: &str) -> bool {
    let count = |mark: &str| text.matches(mark).count();
    let pairs = ["**", "__", "~~", "*", "_", "`"].iter().all(|mark| count(mark).is_multiple_of(2));
    pairs && count("[") <= count("]") && count("(") <= count(")")
}

fn read(text: &str, style: Style, out: &mut Vec<Cell>) {
    let mut rest = text;
    let mut last: Option<char> = None;
    while let Some(c) = rest.chars().next() {
        let taken = match c {
            '\\' => escaped(rest, style, out),
            '`' => code(rest, out),
            '*' | '_' | '~' => marked(rest, last, style, out),
            '[' | '!' => link(rest, style, out),
            '<' => address(rest, out),
            _ => None,
        };
        let length = taken.unwrap_or_else(|| {
            out.push((c, style));
            c.len_utf8()
        });
        last = rest[..length].chars().last();
        rest = &rest[length..];
    }
}

fn escaped(text: &str, style: Style, out: &mut Vec<Cell>) -> Option<usize> {
    let next = text[1..].chars().next().filter(char::is_ascii_punctuation)?;
    out.push((next, style));
    Some(2)
}

fn code(text: &str, out: &mut Vec<Cell>) -> Option<usize> {
    let marks = text.chars().take_while(|c| *c == '`').count();
    let inner = &text[marks..];
    let end = inner.find(&text[..marks]).filter(|end| *end > 0)?;
    out.extend(inner[..end].trim_matches(' ').chars().map(|c| (c, CODE)));
    Some(marks + end + marks)
}

/// A mark opens before a word and closes behind one; `_` inside a word is part of it.
fn marked(text: &str, last: Option<char>, style: Style, out: &mut Vec<Cell>) -> Option<usize> {
    let mark = &text[..1];
    let double = text[1..].starts_with(mark);
    let (mark, effect) = match (mark, double) {
        ("~", false) => return None,
        ("~", true) => ("~~", Effects::STRIKETHROUGH),
        (_, true) => (&text[..2], Effects::BOLD),
        (_, false) => (mark, Effects::ITALIC),
    };
    if last.is_some_and(char::is_alphanumeric) {
        return None;
    }
    let inner = &text[mark.len()..];
    if inner.starts_with(char::is_whitespace) || inner.is_empty() {
        return None;
    }
    let end = inner.match_indices(mark).map(|(at, _)| at).find(|at| {
        let word = inner[..*at].chars().last().is_some_and(|c| !c.is_whitespace());
        let after = inner[at + mark.len()..].chars().next();
        let apart = !after.is_some_and(|c| c.is_alphanumeric() && mark.starts_with('_'));
        let whole = mark.len() == 2 || !inner[at + 1..].starts_with(mark);
        word && apart && whole
    })?;
    read(&inner[..end], style.effects(style.get_effects() | effect), out);
    Some(mark.len() + end + mark.len())
}

/// `[text](url)`: the text, and where it leads.
fn link(text: &str, style: Style, out: &mut Vec<Cell>) -> Option<usize> {
    let picture = usize::from(text.starts_with('!'));
    let inner = text[picture..].strip_prefix('[')?;
    let middle = inner.find("](")?;
    let (name, behind) = (&inner[..middle], &inner[middle + 2..]);
    let end = behind.find(')')?;
    let url = behind[..end].split_whitespace().next().unwrap_or_default();
    read(name, style.underline(), out);
    if name != url {
        out.extend(format!(" ({url})").chars().map(|c| (c, DIM)));
    }
    Some(picture + 1 + middle + 2 + end + 1)
}

/// `<https://…>`.
fn address(text: &str, out: &mut Vec<Cell>) -> Option<usize> {
    let end = text.find('>')?;
    let url = &text[1..end];
    if !url.contains("://") || url.contains(char::is_whitespace) {
        return None;
    }
    out.extend(url.chars().map(|c| (c, Style::new().underline())));
    Some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: &str) {
        let got: String = cells(text, Style::new()).iter().map(|(c, _)| *c).collect();
        assert_eq!(got, want, "{text}");
    }

    #[test]
    fn marks_become_styles_and_everything_else_stays() {
        check("2 * 3 *it* a*b*c", "2 * 3 it a*b*c");
        check("*all of it*", "all of it");
        check("**bold *and italic* here**", "bold and italic here");
        check("snake_case_name and _this_", "snake_case_name and this");
        check("`a*b*` ``x`y``", "a*b* x`y");
        check("~~gone~~ ~here", "gone ~here");
        check("[docs](https://x.org) ![pic](p.png)", "docs (https://x.org) pic (p.png)");
        check("<https://x.org> a < b > c", "https://x.org a < b > c");
        check("\\*no\\* [x] **open", "*no* [x] **open");
    }

    #[test]
    fn a_line_is_broken_only_where_nothing_is_open() {
        assert!(is_closed("a **b** [c](d)"));
        assert!(!is_closed("a **b") && !is_closed("`x") && !is_closed("[a") && !is_closed("[a](b"));
    }
}
