//! Inline Markdown as styled characters.

use anstyle::{Effects, Style};
use petasos_platforms::markdown::{Inline, Style as Mark, inline};

use crate::print::{CODE, DIM};

pub(super) type Cell = (char, Style);

/// The text without its marks. An unclosed mark is kept as a plain character.
pub(super) fn cells(text: &str, style: Style) -> Vec<Cell> {
    let mut out = Vec::new();
    draw(&inline(text), style, &mut out);
    out
}

fn draw(parts: &[Inline], style: Style, out: &mut Vec<Cell>) {
    for part in parts {
        match part {
            Inline::Text(text) => out.extend(text.chars().map(|c| (c, style))),
            Inline::Code(code) => out.extend(code.chars().map(|c| (c, CODE))),
            Inline::Styled(Mark::Spoiler, inner) => {
                let bars = ['|', '|'].map(|c| (c, style));
                out.extend(bars);
                draw(inner, style, out);
                out.extend(bars);
            }
            Inline::Styled(Mark::Bold, inner) => draw(inner, with(style, Effects::BOLD), out),
            Inline::Styled(Mark::Italic, inner) => draw(inner, with(style, Effects::ITALIC), out),
            Inline::Styled(Mark::Strike, inner) => draw(inner, with(style, Effects::STRIKETHROUGH), out),
            Inline::Link { text, url } => {
                let start = out.len();
                draw(text, style.underline(), out);
                if !out[start..].iter().map(|cell| cell.0).eq(url.chars()) {
                    out.extend(format!(" ({url})").chars().map(|c| (c, DIM)));
                }
            }
        }
    }
}

fn with(style: Style, effect: Effects) -> Style {
    style.effects(style.get_effects() | effect)
}

pub(super) fn to_ansi(cells: &[Cell]) -> String {
    let mut out = String::new();
    for run in cells.chunk_by(|a, b| a.1 == b.1) {
        let style = run[0].1;
        let text: String = run.iter().map(|(c, _)| *c).collect();
        out.push_str(&format!("{style}{text}{style:#}"));
    }
    out
}

/// Whether every mark is closed, so that a line can be wrapped here.
pub(super) fn is_closed(text: &str) -> bool {
    let count = |mark: &str| text.matches(mark).count();
    let pairs = ["**", "__", "~~", "*", "_", "`"].iter().all(|mark| count(mark).is_multiple_of(2));
    pairs && count("[") <= count("]") && count("(") <= count(")")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: &str) {
        let got: String = cells(text, Style::new()).iter().map(|(c, _)| *c).collect();
        assert_eq!(got, want, "{text}");
    }

    #[test]
    fn converts_marks_to_styles() {
        check("2 * 3 *it* a*b*c", "2 * 3 it a*b*c");
        check("*all of it*", "all of it");
        check("**bold *and italic* here**", "bold and italic here");
        check("snake_case_name and _this_", "snake_case_name and this");
        check("`a*b*` ``x`y``", "a*b* x`y");
        check("~~gone~~ ~here", "gone ~here");
        check("[docs](https://x.org) ![pic](p.png)", "docs (https://x.org) pic (p.png)");
        check("<https://x.org> a < b > c", "https://x.org a < b > c");
        check("\\*no\\* [x] **open", "*no* [x] **open");
    }

    #[test]
    fn line_can_wrap_only_outside_marks() {
        assert!(is_closed("a **b** [c](d)"));
        assert!(!is_closed("a **b") && !is_closed("`x") && !is_closed("[a") && !is_closed("[a](b"));
    }
}
