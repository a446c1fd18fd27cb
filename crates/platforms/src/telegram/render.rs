//! Renders text as MarkdownV2 parts of at most 4096 UTF-16 units, each with a plain copy.
//!
//! The source is split first and formatted afterwards, so no escape, fence or emphasis is torn. Escaping
//! makes a text longer, so the split measures the formatted text.

use petasos_core::text::{Limits, Unit, split_measured};

use super::{MAX_MESSAGE, Telegram};
use crate::markdown::{self, Block, Inline, Style};
use crate::{PREFIX_RESERVE, Part};

const LIMITS: Limits = Limits::new(MAX_MESSAGE - PREFIX_RESERVE, Unit::Utf16);

impl Telegram {
    pub fn render(&self, text: &str) -> Vec<Part> {
        parts(text, &LIMITS)
    }

    pub fn preview(&self, text: &str, cursor: &str) -> String {
        let room = MAX_MESSAGE.saturating_sub(Unit::Utf16.len(cursor));
        format!("{}{cursor}", Unit::Utf16.prefix(text, room))
    }
}

fn parts(text: &str, limits: &Limits) -> Vec<Part> {
    if text.trim().is_empty() {
        return Vec::new();
    }
    // A table of empty cells renders to nothing; its source is shown instead.
    let source = Some(markdown::without_tables(text)).filter(|it| !it.trim().is_empty());
    let source = source.as_deref().unwrap_or(text);
    let measure = |part: &str| limits.unit.len(&markdown_v2(&markdown::parse(part)));
    let marked = |part: String| {
        let blocks = markdown::parse(&part);
        let plain = markdown::plain(&blocks);
        if plain.trim().is_empty() {
            // Only markup (an empty code block): Telegram refuses messages without text.
            return Part::plain(limits.unit.prefix(part.trim(), limits.max));
        }
        Part::marked(markdown_v2(&blocks), plain)
    };
    split_measured(source, limits, &measure).into_iter().map(marked).collect()
}

fn markdown_v2(blocks: &[Block]) -> String {
    let mut out = MarkdownWriter::default();
    for (at, block) in blocks.iter().enumerate() {
        if at > 0 {
            out.text.push('\n');
        }
        match block {
            Block::Line(line) => out.line(line),
            Block::Heading(line) => out.styled(Style::Bold, line),
            Block::Quote(line) => {
                out.text.push('>');
                out.line(line);
            }
            Block::Code { lead, language, code } => {
                out.line(lead);
                out.text.push_str("```");
                out.text.push_str(language);
                out.text.push('\n');
                out.code(code);
                out.text.push_str("\n```");
            }
        }
    }
    out.text
}

#[derive(Default)]
struct MarkdownWriter {
    text: String,
    italic_end: Option<usize>,
}

impl MarkdownWriter {
    fn line(&mut self, line: &[Inline]) {
        for inline in line {
            match inline {
                Inline::Text(text) => self.escaped(text, is_reserved),
                Inline::Code(code) => {
                    self.text.push('`');
                    self.code(code);
                    self.text.push('`');
                }
                Inline::Styled(style, inner) => self.styled(*style, inner),
                Inline::Link { text, url } => {
                    self.text.push('[');
                    self.line(text);
                    self.text.push_str("](");
                    self.escaped(url, |c| matches!(c, '(' | ')' | '\\'));
                    self.text.push(')');
                }
            }
        }
    }

    fn styled(&mut self, style: Style, inner: &[Inline]) {
        let mark = match style {
            Style::Bold => "*",
            Style::Italic => "_",
            Style::Strike => "~",
            Style::Spoiler => "||",
        };
        if style == Style::Italic && self.italic_end == Some(self.text.len()) {
            // Two underscores in a row mean underline; an empty bold separates them.
            self.text.push_str("**");
        }
        self.text.push_str(mark);
        self.line(inner);
        self.text.push_str(mark);
        if style == Style::Italic {
            self.italic_end = Some(self.text.len());
        }
    }

    fn code(&mut self, code: &str) {
        self.escaped(code, |c| matches!(c, '`' | '\\'));
    }

    fn escaped(&mut self, text: &str, reserved: fn(char) -> bool) {
        for c in text.chars() {
            if reserved(c) {
                self.text.push('\\');
            }
            self.text.push(c);
        }
    }
}

fn is_reserved(c: char) -> bool {
    "_*[]()~`>#+-=|{}.!\\".contains(c)
}

#[cfg(test)]
#[path = "render_tests.rs"]
mod tests;
