//! How a platform counts the length of a text.

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
        text.chars().map(|c| self.of(c)).sum()
    }

    pub const fn of(self, c: char) -> usize {
        match self {
            Self::Chars => 1,
            Self::Utf16 => c.len_utf16(),
        }
    }

    /// The longest prefix of `text` that measures at most `max`, never cutting a character.
    pub fn prefix(self, text: &str, max: usize) -> &str {
        let mut measured = 0;
        for (at, c) in text.char_indices() {
            measured += self.of(c);
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
    fn an_emoji_is_one_character_and_two_utf16_units() {
        assert_eq!(Unit::Chars.len("a🙂"), 2);
        assert_eq!(Unit::Utf16.len("a🙂"), 3);
        assert_eq!(Unit::Utf16.prefix("a🙂b", 2), "a");
        assert_eq!(Unit::Utf16.prefix("a🙂b", 3), "a🙂");
    }
}
