//! Redaction by value: known secrets are replaced in every text that leaves the gateway.
//!
//! A secret is also found in the forms that programs print: base64 at any alignment, hexadecimal, percent-encoded and
//! JSON-escaped. Short values are not searched for, because they occur in ordinary text. Without secrets nothing is
//! searched.

use alloc::borrow::Cow;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD};

const MASK: &str = "[redacted]";
/// Shorter values are not searched for.
pub const MIN_LENGTH: usize = 8;
/// Lines of a secret with several lines, and words of one with several words, are secrets if they are this long.
const MIN_PART: usize = 16;

/// A cheap handle to the patterns of all known secrets.
#[derive(Clone, Default)]
pub struct Redactor(Option<Arc<Patterns>>);

struct Patterns {
    search: AhoCorasick,
    /// Sorted, to find those that start with the end of a chunk.
    forms: Vec<String>,
    longest: usize,
}

impl Redactor {
    pub fn new<'s>(secrets: impl IntoIterator<Item = &'s str>) -> Self {
        let mut forms: Vec<String> = secrets.into_iter().flat_map(parts).flat_map(encodings).collect();
        forms.sort_unstable();
        forms.dedup();
        let search = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&forms);
        // Building fails only above two billion states.
        let Ok(search) = search else { return Self(None) };
        let longest = forms.iter().map(String::len).max().unwrap_or_default();
        Self((!forms.is_empty()).then(|| Arc::new(Patterns { search, forms, longest })))
    }

    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match &self.0 {
            Some(patterns) if patterns.search.is_match(text) => {
                let mut redacted = String::with_capacity(text.len());
                let rest = patterns.search.find_iter(text).fold(0, |start, found| {
                    redacted.push_str(&text[start..found.start()]);
                    redacted.push_str(MASK);
                    found.end()
                });
                redacted.push_str(&text[rest..]);
                Cow::Owned(redacted)
            }
            Some(_) | None => Cow::Borrowed(text),
        }
    }

    /// Like `redact`; does not copy a text without secrets.
    pub fn redact_owned(&self, text: String) -> String {
        match self.redact(&text) {
            Cow::Owned(redacted) => redacted,
            Cow::Borrowed(_) => text,
        }
    }

    /// Redacts a text that arrives in chunks.
    pub fn stream(&self) -> StreamRedactor {
        StreamRedactor { patterns: self.0.clone(), pending: String::new() }
    }
}

impl PartialEq for Redactor {
    fn eq(&self, other: &Self) -> bool {
        let forms = |redactor: &Self| redactor.0.as_ref().map(|patterns| patterns.forms.clone());
        forms(self) == forms(other)
    }
}

/// Shows the number of patterns only.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.as_ref().map_or(0, |patterns| patterns.forms.len());
        write!(f, "Redactor({count} patterns)")
    }
}

/// Holds back the end of a text that may be the start of a secret. The concatenated output is what `Redactor::redact`
/// makes of the whole text, without what is held back.
pub struct StreamRedactor {
    patterns: Option<Arc<Patterns>>,
    pending: String,
}

impl StreamRedactor {
    /// The text that can be shown after this chunk.
    pub fn push(&mut self, chunk: &str) -> String {
        let Some(patterns) = &self.patterns else { return chunk.to_owned() };
        self.pending.push_str(chunk);
        let mut shown = String::new();
        let mut start = 0;
        loop {
            let rest = &self.pending[start..];
            let held = patterns.possible_start(rest).unwrap_or(rest.len());
            match patterns.search.find(rest).filter(|found| found.start() < held) {
                Some(found) => {
                    shown.push_str(&rest[..found.start()]);
                    shown.push_str(MASK);
                    start += found.end();
                }
                None => {
                    shown.push_str(&rest[..held]);
                    start += held;
                    break;
                }
            }
        }
        self.pending.drain(..start);
        shown
    }

    /// Forgets what is held back: the text starts again.
    pub fn restart(&mut self) {
        self.pending.clear();
    }

    /// The rest of the text.
    pub fn finish(self) -> String {
        Redactor(self.patterns).redact_owned(self.pending)
    }
}

impl fmt::Debug for StreamRedactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamRedactor({} bytes held back)", self.pending.len())
    }
}

impl Patterns {
    /// Where the first suffix starts that may become a secret with more text.
    fn possible_start(&self, text: &str) -> Option<usize> {
        let first = text.len().saturating_sub(self.longest.saturating_sub(1));
        (first..text.len()).find(|at| text.is_char_boundary(*at) && self.continues(&text[*at..]))
    }

    /// Whether a pattern is longer than this text and starts with it.
    fn continues(&self, start: &str) -> bool {
        let at = self.forms.partition_point(|form| form.as_str() <= start);
        self.forms.get(at).is_some_and(|form| form.starts_with(start))
    }
}

/// A secret, and its long lines and words: a key file is printed line by line, and `Bearer TOKEN` without its first word.
fn parts(secret: &str) -> Vec<&str> {
    let secret = secret.trim();
    let mut parts = vec![secret];
    if secret.contains(char::is_whitespace) {
        let lines = secret.lines().filter(|line| !line.starts_with("-----"));
        let words = lines.flat_map(str::split_whitespace);
        parts.extend(words.filter(|word| word.len() >= MIN_PART));
    }
    parts.retain(|part| part.len() >= MIN_LENGTH);
    parts
}

fn encodings(secret: &str) -> Vec<String> {
    let bytes = secret.as_bytes();
    let mut forms = vec![secret.to_owned(), hexadecimal(bytes), hexadecimal(bytes).to_ascii_uppercase()];
    forms.push(percent_encoded(bytes));
    forms.extend(
        serde_json::to_string(secret).ok().and_then(|quoted| Some(quoted.get(1..quoted.len() - 1)?.into())),
    );
    for offset in 0..3 {
        forms.push(base64_inside(bytes, offset, |padded| BASE64_STANDARD_NO_PAD.encode(padded)));
        forms.push(base64_inside(bytes, offset, |padded| BASE64_URL_SAFE_NO_PAD.encode(padded)));
    }
    forms
}

/// The characters of a base64 text that depend only on the secret, if it starts `offset` bytes after a group.
fn base64_inside(secret: &[u8], offset: usize, encode: impl Fn(&[u8]) -> String) -> String {
    let mut padded = vec![0; offset];
    padded.extend_from_slice(secret);
    let encoded = encode(&padded);
    let start = (offset * 8).div_ceil(6);
    let end = padded.len() * 8 / 6;
    encoded[start..end].to_owned()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn percent_encoded(bytes: &[u8]) -> String {
    let encode = |byte: &u8| match *byte {
        plain if plain.is_ascii_alphanumeric() || b"-_.~".contains(&plain) => char::from(plain).into(),
        other => format!("%{other:02X}"),
    };
    bytes.iter().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use proptest::prelude::*;

    use super::*;

    const SECRET: &str = "s3cr3t/value+1 \"x\"";

    #[test]
    fn redacts_plain_and_encoded_forms() {
        let redactor = Redactor::new([SECRET]);
        let base64 = |text: &str| BASE64_STANDARD_NO_PAD.encode(text);
        for (text, want) in [
            (format!("a {SECRET} b"), "a [redacted] b"),
            (serde_json::to_string(SECRET).unwrap(), "\"[redacted]\""),
            ("key=s3cr3t%2Fvalue%2B1%20%22x%22&b".to_string(), "key=[redacted]&b"),
            (hexadecimal(SECRET.as_bytes()), "[redacted]"),
            (base64(SECRET), "[redacted]"),
            (base64(&format!("a{SECRET}")), "YX[redacted]"),
            (base64(&format!("ab{SECRET}")), "YWJ[redacted]"),
        ] {
            let redacted = redactor.redact(&text);
            // A last character may hold bits of what follows.
            assert!(redacted.starts_with(want), "{text}: {redacted}");
            assert!(redacted.len() <= want.len() + 1, "{text}: {redacted}");
        }
        assert!(matches!(redactor.redact("nothing here"), Cow::Borrowed("nothing here")));
    }

    #[test]
    fn ignores_short_values_and_keeps_the_longest_match() {
        assert_eq!(Redactor::new(["short", "", "1234567"]).redact("short 1234567"), "short 1234567");
        let redactor = Redactor::new(["abcdefgh", "abcdefghij"]);
        assert_eq!(redactor.redact("abcdefghij abcdefghi"), "[redacted] [redacted]i");
    }

    #[test]
    fn redacts_lines_and_words_of_long_secrets() {
        let key = "-----BEGIN KEY-----\nMIIBVgIBADANBgkqhkiG9w0B\nshort\n-----END KEY-----";
        let redactor = Redactor::new([key, "Bearer abcdefgh12345678"]);
        let text = "1: MIIBVgIBADANBgkqhkiG9w0B\n2: short, abcdefgh12345678, Bearer";
        assert_eq!(redactor.redact(text), "1: [redacted]\n2: short, [redacted], Bearer");
    }

    #[test]
    fn holds_back_a_secret_that_is_split_over_chunks() {
        let redactor = Redactor::new(["abcdefgh-secret"]);
        let mut stream = redactor.stream();
        assert_eq!(stream.push("see abcd"), "see ");
        assert_eq!(stream.push("efgh-sec"), "");
        assert_eq!(stream.push("ret and abcdX"), "[redacted] and abcdX");
        assert_eq!(stream.push(" abcdefgh"), " ");
        stream.restart();
        assert_eq!(stream.push("-secret abc"), "-secret ");
        assert_eq!(stream.finish(), "abc");
    }

    #[test]
    fn debug_output_shows_no_secret() {
        let redactor = Redactor::new(["abcdefgh"]);
        let mut stream = redactor.stream();
        stream.push("abcd");
        assert!(!format!("{redactor:?} {stream:?}").contains("abcd"));
    }

    proptest! {
        #[test]
        fn chunks_are_redacted_like_the_whole(
            secrets in proptest::collection::vec("[ab]{8,12}", 1..4),
            chunks in proptest::collection::vec("[abß]{0,9}", 0..12),
        ) {
            let redactor = Redactor::new(secrets.iter().map(String::as_str));
            let mut stream = redactor.stream();
            let mut shown: String = chunks.iter().map(|chunk| stream.push(chunk)).collect();
            shown.push_str(&stream.finish());
            let whole = redactor.redact_owned(chunks.concat());
            prop_assert_eq!(shown, whole);
        }
    }
}
