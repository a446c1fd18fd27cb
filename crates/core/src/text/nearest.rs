//! Spelling suggestions.

use alloc::string::String;
use alloc::vec::Vec;

/// The candidate closest to `word` within a small edit distance; the first of equally close ones. Case, `-` and `_` are
/// not distinguished.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = fold(word);
    let tolerated = (word.len() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (distance(&word, &fold(candidate)), candidate))
        .filter(|(edits, candidate)| *edits <= tolerated && *edits < candidate.chars().count())
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

fn fold(word: &str) -> Vec<char> {
    let lower: String = word.trim().to_lowercase();
    lower.chars().map(|c| if c == '-' { '_' } else { c }).collect()
}

/// Damerau-Levenshtein distance.
fn distance(from: &[char], to: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut row = Vec::with_capacity(to.len() + 1);
        row.push(i + 1);
        for (j, b) in to.iter().enumerate() {
            let mut best = (last[j] + usize::from(a != b)).min(last[j + 1] + 1).min(row[j] + 1);
            let swapped = i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == *b;
            if swapped {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = core::mem::replace(&mut last, row);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(word: &str, want: Option<&str>) {
        assert_eq!(nearest(word, ["status", "stop", "sessions", "idle_minutes", "q"]), want, "{word}");
    }

    #[test]
    fn corrects_a_typing_error() {
        check("statsu", Some("status"));
        check("Stop", Some("stop"));
        check("sotp", Some("stop"));
        check("session", Some("sessions"));
        check("idle-minuts", Some("idle_minutes"));
    }

    #[test]
    fn suggests_nothing_for_a_different_word() {
        check("weather", None);
        check("", None);
        check("x", None);
    }
}
