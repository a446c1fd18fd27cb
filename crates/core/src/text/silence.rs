//! Silent answers.
//!
//! A *marker* (`NO_REPLY`, `[SILENT]`) is the agent's request to send nothing, perhaps with punctuation around it. A
//! *narration* describes the silence instead ("*(silent)*", "…"). Only whole answers are judged, never parts of one.

use alloc::string::String;

/// Longer texts, in characters, are never silent.
const MAX_CHARS: usize = 64;

const MARKERS: [&str; 4] = ["NO_REPLY", "NO REPLY", "[SILENT]", "SILENT"];

const NARRATIONS: [&str; 6] = ["silent", "silence", "no reply", "no_reply", "no response", "🔇"];

/// Whether the whole text requests silence.
pub fn is_silence_marker(text: &str) -> bool {
    is_short(text) && MARKERS.contains(&marker_text(text).as_str())
}

/// Whether a streamed text may still become a marker and must not be shown yet. True for an empty text.
pub fn may_become_silence_marker(text: &str) -> bool {
    let core = marker_text(text);
    is_short(text) && MARKERS.iter().any(|marker| marker.starts_with(core.as_str()))
}

/// Whether the whole text only describes silence.
pub fn is_silence_narration(text: &str) -> bool {
    if !is_short(text) {
        return false;
    }
    let lower = text.trim().to_lowercase();
    let bare = lower.trim_matches(|c: char| c.is_whitespace() || "*_~`()[]{}\"'.…".contains(c));
    if bare.is_empty() {
        return lower.contains(['.', '…']);
    }
    NARRATIONS.contains(&bare)
}

fn is_short(text: &str) -> bool {
    text.trim().chars().nth(MAX_CHARS).is_none()
}

/// The text in upper case, single-spaced, without surrounding punctuation except brackets.
fn marker_text(text: &str) -> String {
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
    struct SilenceVectors {
        silence_narration: Vec<(String, bool)>,
        silence_marker: Vec<(String, bool, bool)>,
    }

    fn vectors() -> SilenceVectors {
        serde_json::from_str(include_str!("../../../../tests/vectors/platforms.json")).unwrap()
    }

    #[test]
    fn recognises_the_recorded_narrations() {
        for (text, want) in vectors().silence_narration {
            assert_eq!(is_silence_narration(&text), want, "{text:?}");
        }
    }

    #[test]
    fn recognises_the_recorded_markers() {
        for (text, is, may_become) in vectors().silence_marker {
            assert_eq!(is_silence_marker(&text), is, "{text:?}");
            assert_eq!(may_become_silence_marker(&text), may_become, "{text:?}");
        }
    }

    #[test]
    fn requires_the_brackets_of_a_marker() {
        for text in ["SILENT]", "[NO_REPLY]", "[SILENT] ok"] {
            assert!(!is_silence_marker(text), "{text:?}");
        }
        assert!(is_silence_marker("`[SILENT]`."));
    }

    #[test]
    fn holds_back_only_prefixes_of_a_marker() {
        for text in ["Not", "NO_REPLYS", "[x", "SILENT night"] {
            assert!(!may_become_silence_marker(text), "{text:?}");
        }
        for text in ["", "*", "N", "no_", "[", "**[SIL"] {
            assert!(may_become_silence_marker(text), "{text:?}");
        }
    }

    #[test]
    fn never_treats_long_or_meaningful_texts_as_silence() {
        assert!(!is_silence_narration(&".".repeat(65)));
        for text in ["", "*", "ok.", "silent night", "3.", "?"] {
            assert!(!is_silence_narration(text), "{text:?}");
        }
    }
}
