//! Units in which platforms measure text length.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Unicode code points.
    Chars,
    /// UTF-16 code units (Telegram counts an emoji as two).
    Utf16,
}

impl Unit {
    pub fn len(self, text: &str) -> usize {
        text.chars().map(|c| self.width(c)).sum()
    }

    pub const fn width(self, c: char) -> usize {
        match self {
            Self::Chars => 1,
            Self::Utf16 => c.len_utf16(),
        }
    }

    /// The longest prefix of at most `max` units, on a character boundary.
    pub fn prefix(self, text: &str, max: usize) -> &str {
        let mut measured = 0;
        for (at, c) in text.char_indices() {
            measured += self.width(c);
            if measured > max {
                return &text[..at];
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_an_emoji_as_one_char_or_two_utf16_units() {
        assert_eq!(Unit::Chars.len("a🙂"), 2);
        assert_eq!(Unit::Utf16.len("a🙂"), 3);
        assert_eq!(Unit::Utf16.prefix("a🙂b", 2), "a");
        assert_eq!(Unit::Utf16.prefix("a🙂b", 3), "a🙂");
    }
}
