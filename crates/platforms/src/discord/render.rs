//! Renders text as messages of at most 2000 characters.
//!
//! Discord shows Markdown except tables, which become headings and bullets. It accepts any markup, so parts
//! need no plain copy.

use petasos_core::text::{Limits, Unit, split};

use super::{Discord, MAX_MESSAGE};
use crate::{PREFIX_RESERVE, Part, markdown};

const LIMITS: Limits = Limits::new(MAX_MESSAGE - PREFIX_RESERVE, Unit::Chars);

impl Discord {
    pub fn render(&self, text: &str) -> Vec<Part> {
        parts(text, &LIMITS)
    }

    pub fn preview(&self, text: &str, cursor: &str) -> String {
        let info = MAX_MESSAGE.saturating_sub(Unit::Chars.len(cursor));
        format!("{}{cursor}", Unit::Chars.prefix(text, info))
    }
}

fn parts(text: &str, limits: &Limits) -> Vec<Part> {
    if text.trim().is_empty() {
        return Vec::new();
    }
    // A table of empty cells renders to nothing; its source is shown instead.
    let source = Some(markdown::without_tables(text)).filter(|it| !it.trim().is_empty());
    split(source.as_deref().unwrap_or(text), limits).into_iter().map(Part::plain).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(serde::Deserialize)]
    struct FormatVector {
        #[serde(rename = "in")]
        source: String,
        out: String,
    }

    #[test]
    fn renders_the_vectors() {
        let cases: Vec<FormatVector> =
            serde_json::from_str(include_str!("../../tests/vectors/discord_format.json")).expect("vectors");
        for case in cases {
            assert_eq!(parts(&case.source, &LIMITS), [Part::plain(case.out)], "{:?}", case.source);
        }
    }

    #[test]
    fn splits_long_answers_into_numbered_parts_with_whole_fences() {
        let code = "    let x = \"🙂\";\n".repeat(300);
        let source = format!("Intro.\n\n```rust\n{code}```\n\n{}", "Tail! ".repeat(400));
        let parts = parts(&source, &LIMITS);
        assert!(parts.len() > 2);
        for (at, part) in parts.iter().enumerate() {
            assert!(part.text.contains(&format!("({}/{})", at + 1, parts.len())), "{}", part.text);
            assert_eq!(part.text.matches("```").count() % 2, 0, "{}", part.text);
        }
    }

    #[test]
    fn renders_blank_text_as_no_message() {
        assert!(parts(" \n", &LIMITS).is_empty());
        assert_eq!(parts("| | |\n|-|-|\n| | |", &LIMITS).len(), 1);
    }

    proptest! {
        #[test]
        fn every_part_fits_with_a_prefix(source in "(\\PC|[\n `*|]){0,6000}") {
            for part in parts(&source, &LIMITS) {
                prop_assert!(Unit::Chars.len(&part.text) + PREFIX_RESERVE <= MAX_MESSAGE);
            }
        }
    }
}
