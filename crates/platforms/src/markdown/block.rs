//! Block parser: lines and code blocks.

use super::fence::Fence;
use super::inline::{bold, inline};
use super::{Block, Inline};

pub fn parse(text: &str) -> Vec<Block> {
    let lines: Vec<&str> = text.split('\n').collect();
    let mut blocks = Vec::new();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        at += 1;
        let (lead, rest) = split_at_fence(line, &lines[at..]);
        let Some(fence) = rest.and_then(Fence::opened_by) else {
            blocks.push(parse_line(line));
            continue;
        };
        let end = lines[at..].iter().position(|line| fence.closed_by(line)).map_or(lines.len(), |n| at + n);
        blocks.push(Block::Code {
            lead: inline(lead),
            language: fence.language.to_owned(),
            code: lines[at..end].join("\n"),
        });
        at = end + 1;
    }
    blocks
}

/// A fence begins its line. Models also put one at the end of a sentence; it counts if it is closed below.
fn split_at_fence<'a>(line: &'a str, below: &[&str]) -> (&'a str, Option<&'a str>) {
    if Fence::opened_by(line).is_some() {
        return ("", Some(line));
    }
    let Some(at) = line.rfind("```") else {
        return (line, None);
    };
    let (lead, rest) = line.split_at(at);
    let opens = lead.matches("```").count().is_multiple_of(2) && !lead.ends_with('`');
    let closes = || Fence::opened_by(rest).is_some_and(|fence| below.iter().any(|it| fence.closed_by(it)));
    if opens && closes() { (lead, Some(rest)) } else { (line, None) }
}

fn parse_line(line: &str) -> Block {
    let body = line.trim_start();
    let indent = &line[..line.len() - body.len()];
    if let Some(title) = heading(body) {
        return Block::Heading(bold(title));
    }
    if let Some(quote) = body.strip_prefix('>') {
        return Block::Quote(inline(innermost_quote(quote)));
    }
    if let Some(item) = body.strip_prefix("* ").or_else(|| body.strip_prefix("+ ")) {
        let mut parts = vec![Inline::Text(format!("{indent}• "))];
        parts.extend(inline(item));
        return Block::Line(parts);
    }
    Block::Line(inline(line))
}

/// The title of a line that begins with `#`.
pub fn heading(body: &str) -> Option<&str> {
    let title = body.trim_start_matches('#');
    let depth = body.len() - title.len();
    if !(1..=6).contains(&depth) || !title.starts_with(' ') {
        return None;
    }
    let title = title.trim();
    let bare = title.trim_end_matches('#');
    let title = if bare.ends_with(' ') { bare.trim_end() } else { title };
    Some(title).filter(|title| !title.is_empty())
}

/// Nested quotes are flattened.
fn innermost_quote(mut quote: &str) -> &str {
    while let Some(deeper) = quote.trim_start().strip_prefix('>') {
        quote = deeper;
    }
    quote
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Vec<Inline> {
        vec![Inline::Text(text.into())]
    }

    fn code(lead: Vec<Inline>, language: &str, code: &str) -> Block {
        Block::Code { lead, language: language.into(), code: code.into() }
    }

    #[test]
    fn parses_every_kind_of_block() {
        for (source, want) in [
            ("# A #", vec![Block::Heading(text("A"))]),
            ("#tag", vec![Block::Line(text("#tag"))]),
            ("# ", vec![Block::Line(text("# "))]),
            ("> > q", vec![Block::Quote(text(" q"))]),
            ("a\n\nb", vec![Block::Line(text("a")), Block::Line(vec![]), Block::Line(text("b"))]),
            ("```py\n# x\n```\nb", vec![code(vec![], "py", "# x"), Block::Line(text("b"))]),
            ("~~~\n```\n~~~", vec![code(vec![], "", "```")]),
            ("```\nnever closed", vec![code(vec![], "", "never closed")]),
            ("so: ```\nx\n```", vec![code(text("so: "), "", "x")]),
            ("so: ```\nx", vec![Block::Line(text("so: ```")), Block::Line(text("x"))]),
        ] {
            assert_eq!(parse(source), want, "{source:?}");
        }
    }
}
