//! Renders streamed Markdown for a terminal, line by line: headings, lists, quotes, code, tables, links.
//!
//! A line is shown when it is complete, or when it is wider than the terminal and can be wrapped where no
//! mark is open. A table is shown when it is complete.

mod inline;
mod table;

use anstyle::Style;
use petasos_platforms::markdown::{Fence, heading};

use crate::print::{BOLD, CODE, DIM, styled};
use inline::{Cell, cells, is_closed};

/// Incremental renderer: text in, whole lines out.
#[derive(Debug)]
pub(super) struct Renderer {
    width: usize,
    line: String,
    hanging: Option<Prefix>,
    fence: Option<Fence<'static>>,
    table: Vec<String>,
}

/// Prefix of a line and of the lines it wraps into.
#[derive(Debug, Clone)]
struct Prefix {
    first: String,
    rest: String,
    width: usize,
    style: Style,
}

impl Renderer {
    pub(super) fn new(width: usize) -> Self {
        Self { width: width.max(20), line: String::new(), hanging: None, fence: None, table: Vec::new() }
    }

    pub(super) fn push(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((line, after)) = rest.split_once('\n') {
            self.line.push_str(line);
            let line = std::mem::take(&mut self.line);
            self.line_end(line.trim_end_matches('\r'), &mut out);
            rest = after;
        }
        self.line.push_str(rest);
        self.wrap_early(&mut out);
        out
    }

    pub(super) fn finish(mut self) -> String {
        let mut out = String::new();
        let rest = std::mem::take(&mut self.line);
        if !rest.is_empty() {
            self.line_end(&rest, &mut out);
        }
        self.end_table(&mut out);
        out
    }

    pub(super) fn render(width: usize, text: &str) -> String {
        let mut renderer = Self::new(width);
        let out = renderer.push(text);
        out + &renderer.finish()
    }

    fn line_end(&mut self, line: &str, out: &mut String) {
        if let Some(prefix) = self.hanging.take() {
            return wrap(line.trim_start(), &prefix, self.width, out);
        }
        let trimmed = line.trim_start();
        if let Some(fence) = &self.fence {
            if fence.closed_by(trimmed) {
                self.fence = None;
            } else {
                push_line(out, &format!("    {}", styled(CODE, line)));
            }
            return;
        }
        if trimmed.starts_with('|') {
            return self.table.push(trimmed.trim_end().to_owned());
        }
        self.end_table(out);
        match Fence::opened_by(trimmed) {
            Some(fence) => {
                if !fence.language.is_empty() {
                    push_line(out, &format!("    {}", styled(DIM, fence.language)));
                }
                self.fence = Some(fence.detached());
            }
            None if is_rule(trimmed) => push_line(out, &styled(DIM, &"─".repeat(self.width.min(40)))),
            None => {
                let (prefix, text) = prefix(line);
                wrap(text, &prefix, self.width, out);
            }
        }
    }

    /// Renders the beginning of a paragraph that already fills its line.
    fn wrap_early(&mut self, out: &mut String) {
        loop {
            let start = self.line.trim_start();
            let is_deferred = self.fence.is_some() || start.starts_with(['|', '#', '`', '~']);
            if is_deferred || self.line.chars().count() <= self.width + 1 {
                return;
            }
            let (prefix, text) = match &self.hanging {
                Some(prefix) => (prefix.clone(), start),
                None => prefix(&self.line),
            };
            let available = self.width.saturating_sub(prefix.width).max(1);
            let spaces = text.char_indices().take(available + 1).filter(|(_, c)| *c == ' ').map(|(at, _)| at);
            let Some(at) = spaces.filter(|at| *at > 0 && is_closed(&text[..*at])).last() else { return };
            let now = text[..at].to_owned();
            let later = text[at..].trim_start().to_owned();
            self.end_table(out);
            wrap(&now, &prefix, usize::MAX, out);
            self.hanging = Some(Prefix { first: prefix.rest.clone(), ..prefix });
            self.line = later;
        }
    }

    fn end_table(&mut self, out: &mut String) {
        let rows = std::mem::take(&mut self.table);
        if !rows.is_empty() {
            table::draw(&rows, out);
        }
    }
}

/// Splits a line into its prefix (heading, quote or list mark) and its text.
fn prefix(line: &str) -> (Prefix, &str) {
    let text = line.trim_start();
    let indent = line.len() - text.len();
    let plain = |first: String, style: Style| {
        let width = first.chars().count();
        Prefix { rest: " ".repeat(width), first, width, style }
    };
    if let Some(title) = heading(text) {
        return (plain(String::new(), BOLD), title);
    }
    if text.starts_with('>') {
        let depth = text.chars().take_while(|c| matches!(c, '>' | ' ')).filter(|c| *c == '>').count();
        let bars = "│ ".repeat(depth);
        let shown = styled(DIM, &bars);
        let prefix = Prefix { first: shown.clone(), rest: shown, width: bars.chars().count(), style: DIM };
        return (prefix, text.trim_start_matches(['>', ' ']));
    }
    let space = " ".repeat(indent);
    for (mark, shown) in [
        ("- [ ] ", "☐ "),
        ("- [x] ", "☑ "),
        ("- [X] ", "☑ "),
        ("* [ ] ", "☐ "),
        ("- ", "• "),
        ("* ", "• "),
        ("+ ", "• "),
    ] {
        if let Some(text) = text.strip_prefix(mark) {
            return (plain(format!("{space}{shown}"), Style::new()), text);
        }
    }
    let digits = text.chars().take_while(char::is_ascii_digit).count();
    if (1..=9).contains(&digits) && (text[digits..].starts_with(". ") || text[digits..].starts_with(") ")) {
        return (plain(format!("{space}{}", &text[..digits + 2]), Style::new()), &text[digits + 2..]);
    }
    (plain(space, Style::new()), text)
}

fn is_rule(line: &str) -> bool {
    let marks: String = line.chars().filter(|c| !c.is_whitespace()).collect();
    marks.len() >= 3 && ['-', '*', '_'].iter().any(|mark| marks.chars().all(|c| c == *mark))
}

/// Wraps a paragraph at `width`; a longer word stays whole.
fn wrap(text: &str, prefix: &Prefix, width: usize, out: &mut String) {
    let cells = cells(text.trim_end(), prefix.style);
    let available = width.saturating_sub(prefix.width).max(1);
    let mut rest = cells.as_slice();
    let mut before = &prefix.first;
    loop {
        if rest.len() <= available {
            return push_line(out, format!("{before}{}", inline::to_ansi(rest)).trim_end());
        }
        let space = |cell: &Cell| cell.0 == ' ';
        let fits = rest[..=available].iter().rposition(space).filter(|at| *at > 0);
        let Some(at) = fits.or_else(|| rest.iter().skip(available).position(space).map(|at| at + available))
        else {
            return push_line(out, &format!("{before}{}", inline::to_ansi(rest)));
        };
        push_line(out, &format!("{before}{}", inline::to_ansi(&rest[..at])));
        rest = &rest[at + 1..];
        before = &prefix.rest;
    }
}

fn push_line(out: &mut String, line: &str) {
    out.push_str(line);
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Renders the text at once and letter by letter, without colours.
    #[track_caller]
    fn check(text: &str, want: &str) {
        let whole = Renderer::render(60, text);
        let mut single = Renderer::new(60);
        let mut letters: String = text.chars().map(|c| single.push(&c.to_string())).collect();
        letters.push_str(&single.finish());
        assert_eq!(letters, whole, "{text:?}");
        assert_eq!(anstream::adapter::strip_str(&whole).to_string(), want, "{text:?}");
    }

    #[test]
    fn renders_blocks_and_keeps_plain_text() {
        check("plain", "plain\n");
        check("a **b** `c` d\n", "a b c d\n");
        check("# Title\ntext", "Title\ntext\n");
        check("#hash", "#hash\n");
        check("- one\n  * two\n-three\n- [x] done", "• one\n  • two\n-three\n☑ done\n");
        check("1. one\n12) two", "1. one\n12) two\n");
        check("> said\n>> deeper", "│ said\n│ │ deeper\n");
        check("```rust\nlet a = *b; // **\n```\nend", "    rust\n    let a = *b; // **\nend\n");
        check("~~~\n```\n~~~", "    ```\n");
        check("a\n\nb", "a\n\nb\n");
        check("", "");
        check("*", "*\n");
    }

    #[test]
    fn aligns_table_columns() {
        check("| a | long |\n|---|:--|\n| **xx** | y |\nend", "a   long\n──  ────\nxx  y\nend\n");
        check("| no table", "| no table\n");
    }

    #[test]
    fn wraps_long_lines_with_hanging_indent() {
        let out = Renderer::render(20, "- one two three four five six");
        assert_eq!(out, "• one two three four\n  five six\n");
        let url = "https://example.org/a/very/long/path";
        assert_eq!(Renderer::render(20, url), format!("{url}\n"));
    }

    #[test]
    fn shows_long_paragraph_before_it_ends() {
        let mut renderer = Renderer::new(20);
        assert_eq!(renderer.push("one two three four five "), "one two three four\n");
        assert_eq!(renderer.push("six"), "");
        assert_eq!(renderer.finish(), "five six\n");
    }
}
