//! Fenced code blocks.
//!
//! A fence is a line that starts with at least three backticks or tildes. A line of the same character, at least as long
//! and with nothing behind it, closes the block.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;

/// An open code block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fence {
    marker: String,
    language: String,
}

/// The effect of a line on the open block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FenceLine {
    Opens(Fence),
    Closes,
    Plain,
}

impl Fence {
    /// The line that reopens the block in the next part, without the language if that would be wider than `widest`.
    pub(super) fn reopening(&self, widest: usize) -> String {
        let named = format!("{}{}\n", self.marker, self.language);
        if named.chars().count() > widest + 1 { format!("{}\n", self.marker) } else { named }
    }

    pub(super) fn closing(&self) -> String {
        format!("\n{}", self.marker)
    }
}

/// Tells code lines from text when a text is read line by line.
#[derive(Debug, Clone, Default)]
pub struct Fences(Option<Fence>);

impl Fences {
    /// Whether the next line is code or a fence.
    pub fn is_code(&mut self, text: &str) -> bool {
        match classify(self.0.as_ref(), text, usize::MAX) {
            FenceLine::Opens(fence) => self.0 = Some(fence),
            FenceLine::Closes => self.0 = None,
            FenceLine::Plain => return self.0.is_some(),
        }
        true
    }
}

/// Classifies one line. A fence wider than `widest` counts as plain text: a part would have no room to balance it.
pub(super) fn classify(open: Option<&Fence>, line: &str, widest: usize) -> FenceLine {
    let Some((indent, marker)) = marker(line) else {
        return FenceLine::Plain;
    };
    if indent + marker.len() > widest {
        return FenceLine::Plain;
    }
    let behind = line[indent + marker.len()..].trim();
    if let Some(open) = open {
        let same = open.marker.starts_with(&marker[..1]) && marker.len() >= open.marker.len();
        return if same && behind.is_empty() { FenceLine::Closes } else { FenceLine::Plain };
    }
    if marker.starts_with('`') && behind.contains('`') {
        return FenceLine::Plain; // inline code on a line of its own
    }
    let language = behind.split_whitespace().next().unwrap_or_default().to_owned();
    FenceLine::Opens(Fence { marker: marker.to_owned(), language })
}

/// The open block after `text`, given the one before it.
pub(super) fn after(mut open: Option<Fence>, text: &str, widest: usize) -> Option<Fence> {
    for each in text.split('\n') {
        match classify(open.as_ref(), each, widest) {
            FenceLine::Opens(fence) => open = Some(fence),
            FenceLine::Closes => open = None,
            FenceLine::Plain => {}
        }
    }
    open
}

/// The width of the indent in bytes and the fence characters behind it.
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
    fn closes_a_fence_only_by_its_own_kind() {
        check("```rust\nlet x;", Some("```rust\n"));
        check("```rust\nlet x;\n```", None);
        check("~~~\n```\n", Some("~~~\n"));
        check("````md\n```rust\nx\n```\n", Some("````md\n"));
        check("````md\n```rust\nx\n```\n````", None);
        check("```\n```rust\n", Some("```\n"));
        check("```sh\nx\n`````  ", None);
    }

    #[test]
    fn ignores_inline_code_on_its_own_line() {
        check("```one line```\n", None);
        check("``x", None);
    }

    #[test]
    fn omits_a_language_that_is_too_wide() {
        let fence = after(None, "```javascript\n", 100).unwrap();
        assert_eq!(fence.reopening(8), "```\n");
        assert_eq!(fence.closing(), "\n```");
    }
}
