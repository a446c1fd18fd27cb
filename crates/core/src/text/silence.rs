//! Answers that mean "say nothing".
//!
//! A *marker* is how the agent asks for silence: the whole answer is one of a few words, perhaps with
//! stray punctuation around it. A *narration* is a model that describes its silence instead
//! ("*(silent)*", "…"). Both judge whole answers only: a sentence that mentions a marker is a sentence.

use alloc::string::String;

/// Longer texts say something, whatever they say.
const LONGEST: usize = 64;

const MARKERS: [&str; 4] = ["NO_REPLY", "NO REPLY", "[SILENT]", "SILENT"];

const NARRATIONS: [&str; 6] = ["silent", "silence", "no reply", "no_reply", "no response", "🔇"];

/// Whether the whole text asks us to send nothing.
pub fn is_silence_marker(text: &str) -> bool {
    short(text) && MARKERS.contains(&core_of(text).as_str())
}

/// Whether a growing text may still end as a silence marker: hold it back. True for an empty one.
pub fn may_become_silence_marker(text: &str) -> bool {
    let core = core_of(text);
    short(text) && MARKERS.iter().any(|marker| marker.starts_with(core.as_str()))
}

/// Whether the whole text only describes keeping silent.
pub fn is_silence_narration(text: &str) -> bool {
    if !short(text) {
        return false;
    }
    let lower = text.trim().to_lowercase();
    let bare = lower.trim_matches(|c: char| c.is_whitespace() || "*_~`()[]{}\"'.…".contains(c));
    if bare.is_empty() {
        return lower.contains(['.', '…']);
    }
    NARRATIONS.contains(&bare)
}

fn short(text: &str) -> bool {
    text.trim().chars().nth(LONGEST).is_none()
}

/// The text in capitals, single-spaced, without what may stand around a marker. Brackets belong to one.
fn core_of(text: &str) -> String {
    let edge = |c: char| {
        c.is_whitespace() || (c.is_ascii_punctuation() && c != '[' && c != ']') || "…–—“”‘’".contains(c)
    };
    let mut core = String::new();
    for word in text.trim_matches(edge).split_whitespace() {
        if !core.is_empty() {
            core.push(' ');
        }
        core.push_str(&word.to_uppercase());
    }
    core
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Vectors {
        silence_narration: Vec<(String, bool)>,
        silence_marker: Vec<(String, bool, bool)>,
    }

    fn vectors() -> Vectors {
        serde_json::from_str(include_str!("../../../../tests/vectors/platforms.json")).unwrap()
    }

    #[test]
    fn narrations_match_the_vectors() {
        for (text, want) in vectors().silence_narration {
            assert_eq!(is_silence_narration(&text), want, "{text:?}");
        }
    }

    #[test]
    fn markers_match_the_vectors() {
        for (text, is, may_become) in vectors().silence_marker {
            assert_eq!(is_silence_marker(&text), is, "{text:?}");
            assert_eq!(may_become_silence_marker(&text), may_become, "{text:?}");
        }
    }

    #[test]
    fn brackets_are_part_of_the_marker() {
        for text in ["SILENT]", "[NO_REPLY]", "[SILENT] ok"] {
            assert!(!is_silence_marker(text), "{text:?}");
        }
        assert!(is_silence_marker("`[SILENT]`."));
    }

    #[test]
    fn a_text_that_already_says_something_is_not_held_back() {
        for text in ["Not", "NO_REPLYS", "[x", "SILENT night"] {
            assert!(!may_become_silence_marker(text), "{text:?}");
        }
        for text in ["", "*", "N", "no_", "[", "**[SIL"] {
            assert!(may_become_silence_marker(text), "{text:?}");
        }
    }

    #[test]
    fn long_or_meaningful_texts_are_never_silence() {
        assert!(!is_silence_narration(&".".repeat(65)));
        for text in ["", "*", "ok.", "silent night", "3.", "?"] {
            assert!(!is_silence_narration(text), "{text:?}");
        }
    }
}
