//! Text into messages: mrkdwn, at most 39,000 characters each.
//!
//! mrkdwn has no escapes for its marks, only for `&`, `<` and `>`; whatever stands between the last two is a
//! command to Slack. Links and people that the text calls are let through, everything else is escaped: a
//! model that writes `<!channel>` wakes nobody.

use petasos_core::text::{Limits, Unit, split_measured};

use super::{MAX_EDIT, MAX_MESSAGE, Slack};
use crate::markdown::{self, Block, Inline, Style};
use crate::{MARK_ROOM, Part};

const LIMITS: Limits = Limits::new(MAX_MESSAGE - MARK_ROOM, Unit::Chars);
/// Stand for the `<` and `>` of what is let through while Markdown is read, which has a meaning of its own
/// for them. A text cannot contain them: they are taken out first.
const OPEN: char = '\u{e000}';
const CLOSE: char = '\u{e001}';

impl Slack {
    pub fn render(&self, text: &str) -> Vec<Part> {
        parts(text, &LIMITS)
    }

    /// Marked up like the answer itself: Markdown that is not closed yet is read as text. An edit takes less
    /// than a new message.
    pub fn preview(&self, text: &str, cursor: &str) -> String {
        preview(text, cursor)
    }
}

fn parts(text: &str, limits: &Limits) -> Vec<Part> {
    if text.trim().is_empty() {
        return Vec::new();
    }
    let held = held(text);
    // A table of empty cells leaves nothing; then its source is what there is to say.
    let source = Some(markdown::without_tables(&held)).filter(|it| !it.trim().is_empty());
    let source = source.as_deref().unwrap_or(&held);
    let measure = |part: &str| limits.unit.len(&mrkdwn(&markdown::parse(part)));
    let marked = |part: String| {
        let blocks = markdown::parse(&part);
        Part::marked(mrkdwn(&blocks), markdown::plain(&blocks).replace(OPEN, "<").replace(CLOSE, ">"))
    };
    split_measured(source, limits, &measure).into_iter().map(marked).collect()
}

fn preview(text: &str, cursor: &str) -> String {
    let room = MAX_EDIT.saturating_sub(Unit::Chars.len(cursor));
    let mut take = room;
    loop {
        let source = held(Unit::Chars.prefix(text, take));
        let shown = mrkdwn(&markdown::parse(&markdown::without_tables(&source)));
        if Unit::Chars.len(&shown) <= room || take == 0 {
            return format!("{shown}{cursor}");
        }
        take -= (take / 8).max(1);
    }
}

/// The text with what is let through out of Markdown's sight.
fn held(text: &str) -> String {
    let text = text.replace([OPEN, CLOSE], "");
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find('<') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        match rest.find(['<', '>', '\n']).filter(|end| rest[*end..].starts_with('>')) {
            Some(end) if is_let_through(&rest[..end]) => {
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
fn is_let_through(inner: &str) -> bool {
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
    for (at, block) in blocks.iter().enumerate() {
        if at > 0 {
            out.push('\n');
        }
        match block {
            Block::Line(line) => inlines(&mut out, line),
            Block::Heading(line) => styled(&mut out, Style::Bold, line),
            Block::Quote(line) => {
                out.push('>');
                inlines(&mut out, line);
            }
            Block::Code { lead, language: _, code } => {
                inlines(&mut out, lead);
                out.push_str("```\n");
                // Three ticks would close the block.
                verbatim(&mut out, &code.replace("```", "``\u{200b}`"));
                out.push_str("\n```");
            }
        }
    }
    out
}

fn inlines(out: &mut String, line: &[Inline]) {
    for inline in line {
        match inline {
            Inline::Text(text) => escaped(out, text),
            Inline::Code(code) => {
                out.push('`');
                verbatim(out, code);
                out.push('`');
            }
            Inline::Styled(style, inner) => styled(out, *style, inner),
            Inline::Link { text, url } if is_web(url) => link(out, text, url),
            Inline::Link { text, url } => {
                inlines(out, text);
                out.push_str(" (");
                escaped(out, url);
                out.push(')');
            }
        }
    }
}

fn styled(out: &mut String, style: Style, inner: &[Inline]) {
    let mark = match style {
        Style::Bold => "*",
        Style::Italic => "_",
        Style::Strike => "~",
        // Slack cannot hide anything.
        Style::Spoiler => "",
    };
    out.push_str(mark);
    inlines(out, inner);
    out.push_str(mark);
}

fn link(out: &mut String, text: &[Inline], url: &str) {
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
    inlines(&mut label, text);
    // What is let through elsewhere would end the link here.
    out.push_str(&label.replace('<', "&lt;").replace('>', "&gt;").replace('|', "¦"));
    out.push('>');
}

fn escaped(out: &mut String, text: &str) {
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

/// Code is shown as it is, but `<!…>` would still call everybody.
fn verbatim(out: &mut String, code: &str) {
    out.push_str(&code.replace(OPEN, "<").replace(CLOSE, ">").replace("<!", "&lt;!"));
}

#[cfg(test)]
#[path = "render_tests.rs"]
mod tests;
