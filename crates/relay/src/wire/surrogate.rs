//! Lone surrogates, such as `\ud83d`, which other implementations write: replaced, so that the line can be parsed.

use alloc::vec::Vec;

/// Replaces every lone surrogate escape with `\ufffd`.
pub(crate) fn mended(line: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(line.len());
    let mut rest = line;
    while let [first, behind @ ..] = rest {
        let taken = match (unit(rest), rest.get(6..).and_then(unit)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                out.extend_from_slice(b"\\ufffd");
                rest = &rest[6..];
                continue;
            }
            _other if *first == b'\\' && !behind.is_empty() => 2,
            _other => 1,
        };
        out.extend_from_slice(&rest[..taken]);
        rest = &rest[taken..];
    }
    out
}

fn unit(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    u16::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use super::*;

    #[test]
    fn replaces_only_lone_surrogates() {
        for (line, want) in [
            (r#"{"a":"x\ud83d"}"#, r#"{"a":"x\ufffd"}"#),
            (r#"{"a":"\ud83d\ude00"}"#, r#"{"a":"\ud83d\ude00"}"#),
            (r#"{"a":"\ude00\ud83d"}"#, r#"{"a":"\ufffd\ufffd"}"#),
            (r#"{"a":"\ud83d\ud83d\ude00"}"#, r#"{"a":"\ufffd\ud83d\ude00"}"#),
            (r#"{"a":"\\ud83d"}"#, r#"{"a":"\\ud83d"}"#),
            (r#"{"a":"\\\ud83d"}"#, r#"{"a":"\\\ufffd"}"#),
            (r#"{"a":"\u00e9\n"}"#, r#"{"a":"\u00e9\n"}"#),
            ("\\", "\\"),
            (r"\ud8", r"\ud8"),
        ] {
            assert_eq!(String::from_utf8(mended(line.as_bytes())), Ok(want.into()), "{line}");
        }
    }
}
