use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use proptest::prelude::*;
use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct SplitVectors {
    split: Vec<SplitVector>,
}

#[derive(Deserialize)]
struct SplitVector {
    name: String,
    max: usize,
    unit: Unit,
    input: String,
    chunks: Vec<String>,
}

/// The parts that we expect where we deviate from the recorded behaviour on purpose.
fn expected(vector: &SplitVector) -> Vec<String> {
    let own_line = |part: &String| part.replace("``` (", "```\n(");
    match vector.name.as_str() {
        // The number is on its own line, so that the fence closes.
        "fence with lang reopened" => vector.chunks.iter().map(own_line).collect(),
        // The first line of a reopened block keeps its indent.
        "indented code loses first indent" => {
            let indented = |part: String| part.replacen("```py\nx", "```py\n    x", 1);
            vector.chunks.iter().map(own_line).map(indented).collect()
        }
        // A number would exceed the limit.
        "tiny budget" => ["a", "b", "c"].map(ToOwned::to_owned).to_vec(),
        _ => vector.chunks.clone(),
    }
}

#[test]
fn matches_the_recorded_splits_with_our_changes() {
    let vectors: SplitVectors =
        serde_json::from_str(include_str!("../../../../tests/vectors/platforms.json")).unwrap();
    for vector in &vectors.split {
        let parts = split(&vector.input, &Limits::new(vector.max, vector.unit));
        assert_eq!(parts, expected(vector), "{}", vector.name);
    }
}

#[track_caller]
fn check(max: usize, text: &str, want: &[&str]) {
    assert_eq!(split(text, &Limits::new(max, Unit::Chars)), want);
}

#[test]
fn reopens_no_fence_that_ends_with_its_part() {
    let code = "x".repeat(30);
    check(
        56,
        &format!("```\n{code}\n```\n{code}"),
        &[&format!("```\n{code}\n```\n(1/2)"), &format!("{code} (2/2)")],
    );
}

#[test]
fn keeps_an_opening_fence_with_its_code() {
    let text = "t".repeat(30);
    let code = "c".repeat(34);
    check(
        60,
        &format!("{text}\n```rs\n{code}\n```"),
        &[&format!("{text} (1/2)"), &format!("```rs\n{code}\n```\n(2/2)")],
    );
}

#[test]
fn reopens_a_longer_fence_with_its_own_marker() {
    let line = "abcd ".repeat(8);
    let parts = split(&format!("````md\n```\n{line}\n{line}\n```\n````"), &Limits::new(70, Unit::Chars));
    assert_eq!(parts.len(), 2);
    assert!(parts[0].ends_with("\n````\n(1/2)"), "{}", parts[0]);
    assert!(parts[1].starts_with("````md\n"), "{}", parts[1]);
}

#[test]
fn limits_the_number_of_parts_with_a_note() {
    let limits = Limits { max: 100, unit: Unit::Chars, parts: 3 };
    let parts = split(&"word ".repeat(1000), &limits);
    assert_eq!(parts.len(), 3);
    assert!(parts[2].contains("more characters cut]") && parts[2].ends_with("(3/3)"), "{}", parts[2]);
    assert!(parts.iter().all(|part| part.len() <= 100));
}

#[test]
fn splits_until_the_rendered_parts_fit() {
    let escaped = |part: &str| part.chars().map(|c| if c.is_alphanumeric() { 1 } else { 2 }).sum::<usize>();
    let limits = Limits::new(100, Unit::Chars);
    let parts = split_measured(&"a.b.c. ".repeat(60), &limits, &escaped);
    assert!(parts.iter().all(|part| escaped(part) <= 100));
    assert!(parts.len() > 4 && parts[0].contains("(1/"));
    assert_eq!(split_measured("a.b", &limits, &escaped), ["a.b"]);
}

fn markdown() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-z]{1,9}",
        2 => Just(" ".to_owned()),
        2 => Just("\n".to_owned()),
        1 => Just("\n```rust\n".to_owned()),
        1 => Just("\n```\n".to_owned()),
        1 => Just("\n~~~\n".to_owned()),
        1 => Just("\n````md\n".to_owned()),
        1 => Just("\n    ".to_owned()),
        1 => "`{1,5}",
        1 => Just("\\`".to_owned()),
        1 => Just("🙂é漢".to_owned()),
        1 => "\\PC{0,12}",
    ];
    proptest::collection::vec(piece, 0..120).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn every_part_fits_and_balances_its_fences(
        text in markdown(), max in 16usize..200, utf16: bool, parts in 1usize..30,
    ) {
        let unit = if utf16 { Unit::Utf16 } else { Unit::Chars };
        let limits = Limits { max, unit, parts };
        let parts = split(&text, &limits);
        prop_assert!(parts.len() <= limits.parts);
        for part in &parts {
            prop_assert!(unit.len(part) <= max, "{} > {max}: {part:?}", unit.len(part));
            if parts.len() > 1 {
                prop_assert_eq!(fence::after(None, part, limits.widest_fence()), None, "{:?}", part);
            }
        }
    }

    #[test]
    fn loses_only_white_space_and_closed_fences(text in markdown(), max in 16usize..120) {
        let limits = Limits { max, unit: Unit::Chars, parts: 999 };
        let mut at = 0;
        for piece in pieces(&text, &limits) {
            let start = piece.body.as_ptr() as usize - text.as_ptr() as usize;
            let lost = text[at..start].trim();
            prop_assert!(lost.is_empty() || lost.chars().all(|c| c == '`' || c == '~'), "lost {lost:?}");
            at = start + piece.body.len();
        }
        prop_assert!(text[at..].trim().trim_matches(['`', '~']).is_empty(), "lost {:?}", &text[at..]);
    }
}
