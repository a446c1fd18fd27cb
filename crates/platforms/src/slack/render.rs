//! Renders Markdown as mrkdwn, in parts of at most 39,000 characters.
//!
//! mrkdwn escapes only `&`, `<` and `>`; text between the last two is an entity. Links, user mentions and
//! channels are kept, other entities are escaped, so `<!channel>` in a model's text notifies no one.

use petasos_core::text::{Limits, Unit, split_measured};

use super::{MAX_EDIT, MAX_MESSAGE, Slack};
use crate::markdown::{self, Block, Inline, Style};
use crate::{PREFIX_RESERVE, Part};

const LIMITS: Limits = Limits::new(MAX_MESSAGE - PREFIX_RESERVE, Unit::Chars);
/// Placeholders for the `<` and `>` of kept entities while Markdown is parsed. Removed from the text first.
const OPEN: char = '\u{e000}';
const CLOSE: char = '\u{e001}';

impl Slack {
    pub fn render(&self, text: &str) -> Vec<Part> {
        parts(text, &LIMITS)
    }

    /// Rendered like the answer; unclosed Markdown is text. Edits are shorter than new messages.
    pub fn preview(&self, text: &str, cursor: &str) -> String {
        preview(text, cursor)
    }
}

fn parts(text: &str, limits: &Limits) -> Vec<Part> {
    if text.trim().is_empty() {
        return Vec::new();
    }
    let protected = protect_entities(text);
    // A table of empty cells renders as nothing; then its source is sent.
    let source = Some(markdown::without_tables(&protected)).filter(|it| !it.trim().is_empty());
    let source = source.as_deref().unwrap_or(&protected);
    let measure = |part: &str| limits.unit.len(&mrkdwn(&markdown::parse(part)));
    let to_part = |part: String| {
        let blocks = markdown::parse(&part);
        Part::marked(mrkdwn(&blocks), markdown::plain(&blocks).replace(OPEN, "<").replace(CLOSE, ">"))
    };
    split_measured(source, limits, &measure).into_iter().map(to_part).collect()
}

fn preview(text: &str, cursor: &str) -> String {
    let room = MAX_EDIT.saturating_sub(Unit::Chars.len(cursor));
    let mut length = room;
    loop {
        let source = protect_entities(Unit::Chars.prefix(text, length));
        let shown = mrkdwn(&markdown::parse(&markdown::without_tables(&source)));
        if Unit::Chars.len(&shown) <= room || length == 0 {
            return format!("{shown}{cursor}");
        }
        length -= (length / 8).max(1);
    }
}

/// Replaces the angle brackets of kept entities with placeholders.
fn protect_entities(text: &str) -> String {
    let text = text.replace([OPEN, CLOSE], "");
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find('<') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        match rest.find(['<', '>', '\n']).filter(|end| rest[*end..].starts_with('>')) {
            Some(end) if is_kept_entity(&rest[..end]) => {
                out.push(OPEN);
                out.push_str(&rest[..end]);
                out.push(CLOSE);
                rest = &rest[end + 1..];
            }
            Some(_) | None => out.push('<'),
        }
    }
    out.push_str(rest);
    out
}

/// `@U123`, `#C123|name`, `https://e.org|label`; a bare address is left to Markdown.
fn is_kept_entity(inner: &str) -> bool {
    let (target, label) = inner.split_once('|').unwrap_or((inner, ""));
    let id = |rest: &str, begins: [char; 2]| {
        rest.starts_with(begins) && rest.len() > 1 && rest.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    if let Some(user) = target.strip_prefix('@') {
        return id(user, ['U', 'W']);
    }
    if let Some(channel) = target.strip_prefix('#') {
        return id(channel, ['C', 'G']);
    }
    !label.is_empty() && is_web(target) && !target.contains(char::is_whitespace)
}

fn is_web(url: &str) -> bool {
    ["https://", "http://", "mailto:"]
        .iter()
        .any(|scheme| url.len() > scheme.len() && url.starts_with(scheme))
}

fn mrkdwn(blocks: &[Block]) -> String {
    let mut out = String::new();
    for (index, block) in blocks.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        match block {
            Block::Line(line) => push_inlines(&mut out, line),
            Block::Heading(line) => push_styled(&mut out, Style::Bold, line),
            Block::Quote(line) => {
                out.push('>');
                push_inlines(&mut out, line);
            }
            Block::Code { lead, language: _, code } => {
                push_inlines(&mut out, lead);
                out.push_str("```\n");
                // Three ticks would close the block.
                push_code(&mut out, &code.replace("```", "``\u{200b}`"));
                out.push_str("\n```");
            }
        }
    }
    out
}

fn push_inlines(out: &mut String, line: &[Inline]) {
    for inline in line {
        match inline {
            Inline::Text(text) => push_escaped(out, text),
            Inline::Code(code) => {
                out.push('`');
                push_code(out, code);
                out.push('`');
            }
            Inline::Styled(style, inner) => push_styled(out, *style, inner),
            Inline::Link { text, url } if is_web(url) => push_link(out, text, url),
            Inline::Link { text, url } => {
                push_inlines(out, text);
                out.push_str(" (");
                push_escaped(out, url);
                out.push(')');
            }
        }
    }
}

fn push_styled(out: &mut String, style: Style, inner: &[Inline]) {
    let mark = match style {
        Style::Bold => "*",
        Style::Italic => "_",
        Style::Strike => "~",
        // Slack has no spoilers.
        Style::Spoiler => "",
    };
    out.push_str(mark);
    push_inlines(out, inner);
    out.push_str(mark);
}

fn push_link(out: &mut String, text: &[Inline], url: &str) {
    out.push('<');
    for c in url.chars() {
        match c {
            '<' => out.push_str("%3C"),
            '>' => out.push_str("%3E"),
            '|' => out.push_str("%7C"),
            OPEN | CLOSE => {}
            c if c.is_whitespace() => out.push_str("%20"),
            c => out.push(c),
        }
    }
    out.push('|');
    let mut label = String::new();
    push_inlines(&mut label, text);
    // A kept entity would end the link.
    out.push_str(&label.replace('<', "&lt;").replace('>', "&gt;").replace('|', "¦"));
    out.push('>');
}

fn push_escaped(out: &mut String, text: &str) {
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' | CLOSE => out.push_str("&gt;"),
            OPEN => match rest.find([OPEN, CLOSE]).filter(|end| rest[*end..].starts_with(CLOSE)) {
                Some(end) => {
                    out.push('<');
                    out.push_str(&rest[..end]);
                    out.push('>');
                    rest = &rest[end + CLOSE.len_utf8()..];
                }
                None => out.push_str("&lt;"),
            },
            c => out.push(c),
        }
    }
}

/// Code is not escaped, but `<!…>` would still notify a whole channel.
fn push_code(out: &mut String, code: &str) {
    out.push_str(&code.replace(OPEN, "<").replace(CLOSE, ">").replace("<!", "&lt;!"));
}

#[cfg(test)]
#[path = "render_tests.rs"]
mod tests;
