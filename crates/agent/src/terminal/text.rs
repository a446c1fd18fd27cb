//! What a program printed, as the model gets to read it: without control sequences, without credentials, cut where
//! a line begins.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use regex::{Captures, Regex};

/// For a field of a result.
pub(super) fn readable(raw: &[u8]) -> String {
    let plain = strip_control(&String::from_utf8_lossy(raw));
    redact(plain.trim()).into_owned()
}

/// The last `most` characters, from the beginning of a line if one begins there.
pub(super) fn tail(text: &str, most: usize) -> &str {
    let Some((start, _)) =
        text.char_indices().rev().nth(most.saturating_sub(1)).filter(|(start, _)| *start > 0)
    else {
        return text;
    };
    let end = &text[start..];
    match end.find('\n') {
        // A text of one endless line has no better place.
        Some(line) if line + 1 < end.len() => &end[line + 1..],
        Some(_) | None => end,
    }
}

/// Escape sequences, carriage returns and other control characters are for terminals.
pub(super) fn strip_control(text: &str) -> String {
    let without = match ESCAPES.as_ref() {
        Some(escapes) => escapes.replace_all(text, ""),
        None => Cow::Borrowed(text),
    };
    without.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

/// What looks like a credential is not repeated to anybody.
pub fn redact(text: &str) -> Cow<'_, str> {
    match CREDENTIALS.as_ref() {
        Some(credentials) if credentials.is_match(text) => {
            Cow::Owned(credentials.replace_all(text, "${keep}[redacted]").into_owned())
        }
        Some(_) | None => Cow::Borrowed(text),
    }
}

/// Where secret values stand in a command that a person or a model is to judge: words without a blank and without anything
/// that a shell treats specially, so no part of the command's structure is among them.
pub fn secret_words(command: &str) -> Vec<Range<usize>> {
    let Some(words) = SECRET_WORDS.as_ref() else { return vec![] };
    let key_since = command.find("PRIVATE KEY-----").unwrap_or(usize::MAX);
    let secret = |found: Captures<'_>| match (found.name("line"), found.name("keep"), found.get(0)) {
        (Some(line), _, _) => (line.start() > key_since && is_random(line.as_str())).then(|| line.range()),
        (None, Some(keep), Some(all)) => {
            let token = keep.end()..all.end();
            is_token(&command[token.clone()]).then_some(token)
        }
        (None, None, all) => all.map(|all| all.range()),
        (None, Some(_), None) => None,
    };
    words.captures_iter(command).filter_map(secret).collect()
}

/// The word behind `bearer` may be a path that the command changes: it is shown unless it looks random.
fn is_token(word: &str) -> bool {
    let path = word.starts_with(['~', '.']) || (word.contains('/') && !is_random(word));
    !path && word.bytes().any(|byte| byte.is_ascii_digit())
}

/// Base64 of random bytes has all of these; a path or a word rarely does.
fn is_random(word: &str) -> bool {
    let has = |kind: fn(&u8) -> bool| word.bytes().any(|byte| kind(&byte));
    !word.starts_with('/')
        && has(u8::is_ascii_digit)
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
}

static ESCAPES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-~])")
        .ok()
});
const TOKENS: &str = r"(?P<keep>(?i:bearer\s+))[A-Za-z0-9._~+/=-]{16,}
        | \b(?:sk|rk|pk)-[A-Za-z0-9_-]{20,}
        | \b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{20,})
        | \bxox[abeoprs]-[A-Za-z0-9-]{10,} | \bxapp-[A-Za-z0-9-]{10,}
        | \b[0-9]{8,10}:[A-Za-z0-9_-]{35}\b
        | \bAKIA[0-9A-Z]{16}\b | \bAIza[A-Za-z0-9_-]{35}\b
        | \beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}";
static CREDENTIALS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let key = r"-----BEGIN\s[A-Z\s]*PRIVATE\sKEY-----[^-]*(?:-----END\s[A-Z\s]*PRIVATE\sKEY-----)?";
    Regex::new(&format!("(?x) {TOKENS} | {key}")).ok()
});
/// A line of a private key: nothing else stands on it.
const KEY_LINE: &str = r"(?m:^[ \t]*)(?P<line>[A-Za-z0-9+/]{40,}={0,2})(?m:[ \t]*$)";
static SECRET_WORDS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(&format!("(?x) {TOKENS} | {KEY_LINE}")).ok());

/// What a non-zero exit code means where it is no failure.
pub(super) fn meaning(command: &str, code: i32) -> Option<&'static str> {
    let last = command.rsplit(['|', ';', '&']).next().unwrap_or(command);
    let mut words = last.split_whitespace().skip_while(|word| word.contains('=') || *word == "sudo");
    let program = words.next()?.rsplit('/').next()?;
    Some(match (program, code) {
        ("grep" | "egrep" | "fgrep" | "rg" | "ag" | "ack", 1) => "No matches found (not an error)",
        ("diff" | "cmp" | "colordiff", 1) => "The files differ (not an error)",
        ("find", 1) => "Some directories could not be read (the rest is listed)",
        ("test" | "[", 1) => "The condition is false (not an error)",
        ("git", 1) => "Git found a difference or nothing to do (often not an error)",
        ("curl", 6) => "The host name could not be resolved",
        ("curl", 7) => "The connection was refused",
        ("curl", 22) => "The server answered with an HTTP error",
        ("curl", 28) => "The request took too long",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_sequences_are_for_terminals() {
        for (raw, want) in [
            ("\x1b[31mred\x1b[0m", "red"),
            ("\x1b]0;title\x07text", "text"),
            ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
            ("a\r\nb\tc\n", "a\nb\tc"),
            ("\x1b(Bplain\x07", "plain"),
        ] {
            assert_eq!(readable(raw.as_bytes()), want, "{raw:?}");
        }
        assert_eq!(readable(b"\xff ok"), "\u{fffd} ok");
    }

    #[test]
    fn credentials_are_not_repeated() {
        for secret in [
            "sk-abcdefghijklmnopqrstuvwx",
            "ghp_abcdefghijklmnopqrstuvwx",
            "xoxb-1234567890-abc",
            "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1",
            "AKIAIOSFODNN7EXAMPLE",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijklmnop",
        ] {
            let shown = redact(&format!("key={secret} end")).into_owned();
            assert_eq!(shown, "key=[redacted] end", "{secret}");
        }
        assert_eq!(redact("Authorization: Bearer abcdefghijklmnop123"), "Authorization: Bearer [redacted]");
        assert_eq!(redact("task-force 12:30 sketch"), "task-force 12:30 sketch");
    }

    #[test]
    fn finds_secret_words_and_nothing_around_them() {
        let line = "MIIEpAIBAAKCAQEA7bq1x2Jc9Zf0rV3mT8kLw5yHn4sPdQeRuGiOaXtBvCzM1234";
        for (command, want) in [
            ("curl -H 'Authorization: Bearer abcdefghijklmnop123' x; rm y", vec!["abcdefghijklmnop123"]),
            ("rm -rf bearer /home/ada/important/documents2024", vec![]),
            ("rm -rf bearer ~/important/documents2024", vec![]),
            ("K=sk-abcdefghijklmnopqrstuvwx;rm -rf y", vec!["sk-abcdefghijklmnopqrstuvwx"]),
            ("echo -----BEGIN RSA PRIVATE KEY----- ; rm -rf y", vec![]),
            ("echo '-----BEGIN PRIVATE KEY-----\nreboot\n-----END PRIVATE KEY-----'", vec![]),
            (
                &format!("echo '-----BEGIN PRIVATE KEY-----\n{line}\n-----END PRIVATE KEY-----'\nrm y"),
                vec![line],
            ),
            (&format!("{line}\nrm y"), vec![]),
            (&format!("# PRIVATE KEY-----\n{line} ; rm y"), vec![]),
        ] {
            let found: Vec<_> = secret_words(command).into_iter().map(|range| &command[range]).collect();
            assert_eq!(found, want, "{command}");
        }
    }

    #[test]
    fn a_tail_begins_with_a_line_if_it_can() {
        assert_eq!(tail("short", 10), "short");
        assert_eq!(tail("one\ntwo\nthree", 7), "three");
        assert_eq!(tail("abcdefgh", 3), "fgh");
        assert_eq!(tail("äöü", 2), "öü");
        assert_eq!(tail("abc\n", 2), "c\n");
    }

    #[test]
    fn some_codes_are_no_failures() {
        assert!(meaning("cat x | grep y", 1).is_some());
        assert!(meaning("LANG=C /usr/bin/diff a b", 1).is_some());
        assert!(meaning("curl -f http://x", 22).is_some());
        assert_eq!(meaning("grep x y", 2), None);
        assert_eq!(meaning("make", 1), None);
        assert_eq!(meaning("", 1), None);
    }
}
