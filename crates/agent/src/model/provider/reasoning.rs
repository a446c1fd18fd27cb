//! Removes reasoning blocks from streamed model text.
//!
//! A block opens only at the start of a line, so that a sentence may mention the tags; a closing tag without
//! a block is removed anywhere. Text that may still become a tag is held back.

const NAMES: [&str; 5] = ["think", "thinking", "reasoning", "thought", "reasoning_scratchpad"];

#[derive(Debug)]
pub(crate) struct ReasoningFilter {
    /// Held back: may be the beginning of a tag.
    held: String,
    inside: Option<&'static str>,
    /// Only white space since the last newline.
    line_start: bool,
    /// Drops white space: at the start of the text and after a block.
    swallow: bool,
}

impl ReasoningFilter {
    pub(crate) fn new() -> Self {
        Self { held: String::new(), inside: None, line_start: true, swallow: true }
    }

    /// For a text that continues an earlier one: leading spaces are kept.
    pub(crate) fn continuing() -> Self {
        Self { swallow: false, line_start: false, ..Self::new() }
    }

    /// Returns the visible part of the text received so far.
    pub(crate) fn push(&mut self, text: &str) -> String {
        self.held.push_str(text);
        let mut shown = String::new();
        while let Some(first) = self.held.chars().next() {
            match self.next_tag() {
                Tag::Maybe => break,
                Tag::No => {
                    self.held.drain(..first.len_utf8());
                    self.emit(first, &mut shown);
                }
                Tag::Open(name, length) => {
                    self.held.drain(..length);
                    self.inside = Some(name);
                }
                Tag::Close(length) => {
                    self.held.drain(..length);
                    self.swallow = self.inside.take().is_some() || self.swallow;
                    self.line_start = self.swallow || self.line_start;
                }
            }
        }
        shown
    }

    pub(crate) fn finish(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        let mut shown = String::new();
        for c in held.chars() {
            self.emit(c, &mut shown);
        }
        shown
    }

    pub(crate) fn thinking(&self) -> bool {
        self.inside.is_some()
    }

    fn emit(&mut self, c: char, shown: &mut String) {
        if self.inside.is_some() || (self.swallow && c.is_whitespace()) {
            return;
        }
        self.swallow = false;
        self.line_start = c == '\n' || (self.line_start && c.is_whitespace());
        shown.push(c);
    }

    fn next_tag(&self) -> Tag {
        let Some(rest) = self.held.strip_prefix('<') else { return Tag::No };
        let (closing, rest) = match rest.strip_prefix('/') {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        // Opening tags count only at the start of a line; inside a block only its own closing tag counts.
        if !closing && !rest.is_empty() && (self.inside.is_some() || !self.line_start) {
            return Tag::No;
        }
        let mut maybe = false;
        for name in NAMES {
            let length = name.len().min(rest.len());
            if !rest.is_char_boundary(length) || !rest[..length].eq_ignore_ascii_case(&name[..length]) {
                continue;
            }
            match rest[length..].chars().next() {
                Some('>') if length == name.len() => return matched_tag(closing, name, self.inside),
                Some(_) => {}
                None => maybe = true,
            }
        }
        if maybe { Tag::Maybe } else { Tag::No }
    }
}

enum Tag {
    No,
    Maybe,
    Open(&'static str, usize),
    Close(usize),
}

fn matched_tag(closing: bool, name: &'static str, inside: Option<&str>) -> Tag {
    match (closing, inside) {
        (false, _) => Tag::Open(name, name.len() + 2),
        (true, Some(open)) if open != name => Tag::No,
        (true, _) => Tag::Close(name.len() + 3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: &str) {
        for size in 1..=text.chars().count().max(1) {
            let mut filter = ReasoningFilter::new();
            let mut shown = String::new();
            let letters: Vec<char> = text.chars().collect();
            for piece in letters.chunks(size) {
                shown.push_str(&filter.push(&piece.iter().collect::<String>()));
            }
            shown.push_str(&filter.finish());
            assert_eq!(shown, want, "pieces of {size}: {text:?}");
        }
    }

    #[test]
    fn removes_blocks_split_at_any_position() {
        check("<think>hm, 1 < 2</think>\n\nYes.", "Yes.");
        check("Hello.\n<Thinking>a</THINKING>\nBye.", "Hello.\nBye.");
        check("<REASONING_SCRATCHPAD>a <think> b</REASONING_SCRATCHPAD>c", "c");
        check("<thought>never closed", "");
    }

    #[test]
    fn keeps_tags_mentioned_in_a_sentence() {
        check("Use the <think> tag.", "Use the <think> tag.");
        check("a < b and <b>c</b>", "a < b and <b>c</b>");
        check("<thin", "<thin");
        check("1 <", "1 <");
    }

    #[test]
    fn removes_closing_tags_without_block() {
        check("Done</think>.", "Done.");
    }

    #[test]
    fn continuation_keeps_leading_space() {
        assert_eq!(ReasoningFilter::continuing().push(" world"), " world");
        assert_eq!(ReasoningFilter::new().push("\n\nhello"), "hello");
    }
}
