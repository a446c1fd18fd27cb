//! Fenced code blocks, line by line.
//!
//! A fence is a line that starts with three or more backticks or tildes. It is closed by a line of the
//! same character, at least as long, with nothing behind it; anything else inside is code, so a longer
//! fence may hold a shorter one.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;

/// A code block that is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fence {
    marker: String,
    language: String,
}

/// What a line does to the state before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    Opens(Fence),
    Closes,
    Plain,
}

impl Fence {
    /// The line that opens the block again, with its newline. A language that would make the line wider
    /// than `widest` is left out.
    pub(super) fn reopening(&self, widest: usize) -> String {
        let named = format!("{}{}\n", self.marker, self.language);
        if named.chars().count() > widest + 1 { format!("{}\n", self.marker) } else { named }
    }

    /// What ends the block below a line of code.
    pub(super) fn closing(&self) -> String {
        format!("\n{}", self.marker)
    }
}

/// Which lines are code, for whoever reads a text line by line.
#[derive(Debug, Clone, Default)]
pub struct Fences(Option<Fence>);

impl Fences {
    /// Whether this line, the one behind the last asked for, is code or a fence around it.
    pub fn holds(&mut self, text: &str) -> bool {
        match line(self.0.as_ref(), text, usize::MAX) {
            Line::Opens(fence) => self.0 = Some(fence),
            Line::Closes => self.0 = None,
            Line::Plain => return self.0.is_some(),
        }
        true
    }
}

/// Reads one line. Fences whose indent and marker are wider than `widest` count as plain text: a part
/// would have no room to balance them.
pub(super) fn line(open: Option<&Fence>, line: &str, widest: usize) -> Line {
    let Some((indent, marker)) = marker(line) else {
        return Line::Plain;
    };
    if indent + marker.len() > widest {
        return Line::Plain;
    }
    let behind = line[indent + marker.len()..].trim();
    if let Some(open) = open {
        let same = open.marker.starts_with(&marker[..1]) && marker.len() >= open.marker.len();
        return if same && behind.is_empty() { Line::Closes } else { Line::Plain };
    }
    if marker.starts_with('`') && behind.contains('`') {
        return Line::Plain; // inline code on a line of its own
    }
    let language = behind.split_whitespace().next().unwrap_or_default().to_owned();
    Line::Opens(Fence { marker: marker.to_owned(), language })
}

/// The state after `text`, given the state before it.
pub(super) fn after(mut open: Option<Fence>, text: &str, widest: usize) -> Option<Fence> {
    for each in text.split('\n') {
        match line(open.as_ref(), each, widest) {
            Line::Opens(fence) => open = Some(fence),
            Line::Closes => open = None,
            Line::Plain => {}
        }
    }
    open
}

/// Width of the indent (bytes, all of them white space) and the run of fence characters behind it.
pub(super) fn marker(line: &str) -> Option<(usize, &str)> {
    let body = line.trim_start();
    let first = body.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let width = body.len() - body.trim_start_matches(first).len();
    (width >= 3).then(|| (line.len() - body.len(), &body[..width]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: Option<&str>) {
        let open = after(None, text, 100);
        assert_eq!(open.map(|fence| fence.reopening(100)).as_deref(), want, "{text:?}");
    }

    #[test]
    fn a_fence_is_closed_by_its_own_kind_only() {
        check("```rust\nlet x;", Some("```rust\n"));
        check("```rust\nlet x;\n```", None);
        check("~~~\n```\n", Some("~~~\n"));
        check("````md\n```rust\nx\n```\n", Some("````md\n"));
        check("````md\n```rust\nx\n```\n````", None);
        check("```\n```rust\n", Some("```\n"));
        check("```sh\nx\n`````  ", None);
    }

    #[test]
    fn inline_code_on_its_own_line_is_no_fence() {
        check("```one line```\n", None);
        check("``x", None);
    }

    #[test]
    fn a_language_too_wide_is_left_out() {
        let fence = after(None, "```javascript\n", 100).unwrap();
        assert_eq!(fence.reopening(8), "```\n");
        assert_eq!(fence.closing(), "\n```");
    }
}
