//! Markdown, lightly styled while it arrives: bold, code, headings and list marks. Everything else is left
//! as it is. Marks are held back only until the next character says what they are.

use anstyle::Style;

use crate::print::{BOLD, CODE, ITALIC};

/// Text in, text with styles out. `finish` closes what is open and ends the line.
#[derive(Debug, Default)]
pub(super) struct Styler {
    /// Not yet decided: the start of a line, or a mark that may be longer.
    held: String,
    mid_line: bool,
    bold: bool,
    italic: bool,
    /// The last character that was printed; a mark inside a word or between blanks is no mark.
    last: Option<char>,
    code: bool,
    fence: bool,
    heading: bool,
    /// Something was printed and the line is not ended.
    open: bool,
}

impl Styler {
    pub(super) fn push(&mut self, text: &str) -> String {
        let mut out = String::new();
        for c in text.chars() {
            self.held.push(c);
            self.decide(&mut out);
        }
        out
    }

    pub(super) fn finish(mut self) -> String {
        let mut out = String::new();
        let rest = std::mem::take(&mut self.held);
        if !(self.italic && rest == "*") {
            self.plain(&rest, &mut out);
        }
        if self.style().is_some() {
            out.push_str(&format!("{:#}", BOLD));
        }
        if self.open {
            out.push('\n');
        }
        out
    }

    fn decide(&mut self, out: &mut String) {
        if !self.mid_line {
            return self.line_start(out);
        }
        let held = std::mem::take(&mut self.held);
        match held.as_str() {
            "\n" => self.newline(out),
            _ if self.fence => self.plain(&held, out),
            "*" if !self.code => self.held = held,
            "**" => self.switch(out, |it| it.bold = !it.bold),
            "`" => self.switch(out, |it| it.code = !it.code),
            other if other.starts_with('*') && other.len() > 1 => {
                self.star(&other[1..], out);
                self.push_back(&other[1..], out);
            }
            other => self.plain(other, out),
        }
    }

    /// A single star: opens before a word, closes behind one, and is itself anywhere else.
    fn star(&mut self, next: &str, out: &mut String) {
        let after_word = self.last.is_some_and(|c| !c.is_whitespace());
        let before_word = !next.starts_with(char::is_whitespace);
        match (self.italic, after_word, before_word) {
            (true, true, _) => self.switch(out, |it| it.italic = false),
            (false, false, true) => self.switch(out, |it| it.italic = true),
            (true, false, _) | (false, true, _) | (false, false, false) => self.plain("*", out),
        }
    }

    /// What a line is shows in its first characters.
    fn line_start(&mut self, out: &mut String) {
        let word = self.held.trim_start_matches(' ').to_owned();
        let indent = self.held.len() - word.len();
        if "```".starts_with(word.as_str()) && word.len() < 3
            || is_part_of_heading(&word)
            || matches!(&*word, "-" | "*")
        {
            return;
        }
        let indent = " ".repeat(indent);
        self.held.clear();
        self.mid_line = true;
        match word.as_str() {
            "```" => {
                self.switch(out, |it| it.fence = !it.fence);
                self.plain(&format!("{indent}```"), out);
            }
            heading if heading.ends_with(' ') && heading.starts_with('#') && !self.fence => {
                self.switch(out, |it| it.heading = true);
            }
            "- " | "* " if !self.fence => self.plain(&format!("{indent}• "), out),
            other => {
                self.plain(&indent, out);
                self.push_back(other, out);
            }
        }
    }

    /// Characters that were held for another reason are looked at again.
    fn push_back(&mut self, text: &str, out: &mut String) {
        for c in text.chars() {
            self.held.push(c);
            self.decide(out);
        }
    }

    fn newline(&mut self, out: &mut String) {
        if self.heading || self.bold || self.italic || self.code {
            self.switch(out, |it| (it.heading, it.bold, it.italic, it.code) = (false, false, false, false));
        }
        out.push('\n');
        self.last = None;
        self.mid_line = false;
        self.open = false;
    }

    fn switch(&mut self, out: &mut String, change: impl FnOnce(&mut Self)) {
        if let Some(style) = self.style() {
            out.push_str(&format!("{style:#}"));
        }
        change(self);
        if let Some(style) = self.style() {
            out.push_str(&style.to_string());
        }
    }

    fn style(&self) -> Option<Style> {
        match (self.fence || self.code, self.bold || self.heading, self.italic) {
            (true, _, _) => Some(CODE),
            (false, true, _) => Some(BOLD),
            (false, false, true) => Some(ITALIC),
            (false, false, false) => None,
        }
    }

    fn plain(&mut self, text: &str, out: &mut String) {
        self.open |= !text.is_empty();
        self.last = text.chars().last().or(self.last);
        out.push_str(text);
    }
}

fn is_part_of_heading(word: &str) -> bool {
    !word.is_empty() && word.len() <= 6 && word.chars().all(|c| c == '#')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same text whole and letter by letter, without colours.
    #[track_caller]
    fn check(text: &str, want: &str) {
        let mut whole = Styler::default();
        let mut out = whole.push(text);
        out.push_str(&whole.finish());
        let mut single = Styler::default();
        let mut letters: String = text.chars().map(|c| single.push(&c.to_string())).collect();
        letters.push_str(&single.finish());
        assert_eq!(letters, out, "{text:?}");
        assert_eq!(anstream::adapter::strip_str(&out).to_string(), want, "{text:?}");
    }

    #[test]
    fn marks_become_styles_and_everything_else_stays() {
        check("plain", "plain\n");
        check("a **b** `c` d\n", "a b c d\n");
        check("2 * 3 *it* a*b*c", "2 * 3 it a*b*c\n");
        check("*all of it*\n", "all of it\n");
        check("# Title\ntext", "Title\ntext\n");
        check("#hash", "#hash\n");
        check("- one\n  * two\n-three", "• one\n  • two\n-three\n");
        check("**bold start**", "bold start\n");
        check("```rust\nlet a = *b; // **\n```\nend", "```rust\nlet a = *b; // **\n```\nend\n");
        check("a\n\nb", "a\n\nb\n");
        check("", "");
        check("*", "*\n");
    }
}
