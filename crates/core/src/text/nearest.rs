//! The known word that a mistyped one most likely meant.

use alloc::string::String;
use alloc::vec::Vec;

/// The candidate closest to `word`, if it is close enough to be a slip and not another word. Case and
/// the choice between `-` and `_` do not count. Of equally close candidates the first one wins.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = folded(word);
    let tolerated = (word.len() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (distance(&word, &folded(candidate)), candidate))
        .filter(|(far, candidate)| *far <= tolerated && *far < candidate.chars().count())
        .min_by_key(|(far, _)| *far)
        .map(|(_, candidate)| candidate)
}

fn folded(word: &str) -> Vec<char> {
    let lower: String = word.trim().to_lowercase();
    lower.chars().map(|c| if c == '-' { '_' } else { c }).collect()
}

/// Edits that turn one word into the other: insert, delete, replace, or swap two neighbours.
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
    fn a_slip_of_the_finger_finds_its_word() {
        check("statsu", Some("status"));
        check("Stop", Some("stop"));
        check("sotp", Some("stop"));
        check("session", Some("sessions"));
        check("idle-minuts", Some("idle_minutes"));
    }

    #[test]
    fn a_different_word_finds_nothing() {
        check("weather", None);
        check("", None);
        check("x", None);
    }
}
