//! Transcript ids, and validation of ids and keys from files.

use alloc::format;

use super::local::{Civil, LocalTime};
use crate::ids::SessionId;

/// `YYYYMMDD_HHMMSS_` and eight hex digits of `entropy`.
pub fn session_id(at: LocalTime, entropy: u32) -> SessionId {
    let Civil { year, month, day, hour, minute, second, micros: _ } = at.civil();
    SessionId(format!("{year:04}{month:02}{day:02}_{hour:02}{minute:02}{second:02}_{entropy:08x}"))
}

/// Other tools use ids as file names, so path separators and `..` are rejected.
pub fn is_valid_id(id: &str) -> bool {
    !id.is_empty() && !id.contains("..") && !id.contains(['/', '\\']) && !has_drive(id)
}

/// A key may contain a slash (Google Chat's `spaces/AAA`) but not start like a path.
pub fn is_valid_key(key: &str) -> bool {
    !key.is_empty() && !key.contains("..") && !key.starts_with(['/', '\\']) && !has_drive(key)
}

fn has_drive(text: &str) -> bool {
    matches!(text.as_bytes(), [letter, b':', ..] if letter.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn includes_the_start_time_in_the_id() {
        let at = LocalTime::parse("2026-11-15T18:12:05.741101").unwrap();
        assert_eq!(session_id(at, 0x13f6_a7af).as_str(), "20261115_181205_13f6a7af");
        assert_eq!(session_id(at, 0xf).as_str(), "20261115_181205_0000000f");
    }

    #[test]
    fn rejects_ids_and_keys_that_look_like_paths() {
        for id in ["../x", "a/b", "a\\b", "C:x", "a..b", ""] {
            assert!(!is_valid_id(id), "{id:?}");
        }
        for key in ["/abs", "\\abs", "c:\\x", "agent:main:..:x", ""] {
            assert!(!is_valid_key(key), "{key:?}");
        }
        assert!(is_valid_id("20261115_181205_13f6a7af"));
        assert!(is_valid_key("agent:main:google_chat:dm:spaces/AAA"));
    }
}
