//! Lenient, line-based parser for the Markdown of models, shared by the platforms and the terminal.
//!
//! `parse` returns a tree, which each platform renders in its own dialect. Markup that is not closed on its
//! line is text, so a partial stream can be parsed. `without_tables` runs first for platforms without tables.

mod block;
mod fence;
mod inline;
mod table;

pub use block::{heading, parse};
pub use fence::Fence;
pub use inline::inline;
pub use table::{cells as table_cells, is_ruler, without_tables};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    Line(Vec<Inline>),
    Heading(Vec<Inline>),
    Quote(Vec<Inline>),
    /// `lead` is the text before the fence on its line; usually empty.
    Code {
        lead: Vec<Inline>,
        language: String,
        code: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inline {
    Text(String),
    Code(String),
    /// Never inside another of the same style.
    Styled(Style, Vec<Inline>),
    /// Never inside another link.
    Link {
        text: Vec<Inline>,
        url: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Bold,
    Italic,
    Strike,
    Spoiler,
}

pub fn plain(blocks: &[Block]) -> String {
    let mut out = String::new();
    for (index, block) in blocks.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        match block {
            Block::Line(line) | Block::Heading(line) => plain_inline(&mut out, line),
            Block::Quote(line) => {
                out.push('>');
                plain_inline(&mut out, line);
            }
            Block::Code { lead, language: _, code } => {
                plain_inline(&mut out, lead);
                out.push_str(code);
            }
        }
    }
    out
}

fn plain_inline(out: &mut String, line: &[Inline]) {
    for inline in line {
        match inline {
            Inline::Text(text) | Inline::Code(text) => out.push_str(text),
            Inline::Styled(_, inner) => plain_inline(out, inner),
            Inline::Link { text, url } => {
                let start = out.len();
                plain_inline(out, text);
                if out[start..] != *url {
                    out.push_str(" (");
                    out.push_str(url);
                    out.push(')');
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_drops_the_markup() {
        for (source, want) in [
            ("# Title", "Title"),
            ("**b** *i* ~~s~~ ||p|| `c`", "b i s p c"),
            ("[text](https://e.org)", "text (https://e.org)"),
            ("[https://e.org](https://e.org)", "https://e.org"),
            ("> quote", "> quote"),
            ("```py\nx = 1\n```", "x = 1"),
            ("a * b * c", "a * b * c"),
        ] {
            assert_eq!(plain(&parse(source)), want, "{source:?}");
        }
    }
}
