//! Prepares program output for the model: strips control sequences, redacts credentials, cuts at line starts.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use regex::{Captures, Regex};

pub(super) fn readable(raw: &[u8]) -> String {
    let plain = strip_control(&String::from_utf8_lossy(raw));
    redact(plain.trim()).into_owned()
}

/// The last `most` characters, from the start of a line if possible.
pub(super) fn tail(text: &str, most: usize) -> &str {
    let Some((start, _)) =
        text.char_indices().rev().nth(most.saturating_sub(1)).filter(|(start, _)| *start > 0)
    else {
        return text;
    };
    let end = &text[start..];
    match end.find('\n') {
        // One endless line is cut anywhere.
        Some(line) if line + 1 < end.len() => &end[line + 1..],
        Some(_) | None => end,
    }
}

/// Removes escape sequences, and control characters other than newline and tab.
pub(super) fn strip_control(text: &str) -> String {
    let without = match ESCAPES.as_ref() {
        Some(escapes) => escapes.replace_all(text, ""),
        None => Cow::Borrowed(text),
    };
    without.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

pub fn redact(text: &str) -> Cow<'_, str> {
    match CREDENTIALS.as_ref() {
        Some(credentials) if credentials.is_match(text) => {
            Cow::Owned(credentials.replace_all(text, "${keep}[redacted]").into_owned())
        }
        Some(_) | None => Cow::Borrowed(text),
    }
}

/// Ranges of secret values in a command that a person or a model reviews. Only the random part of a
/// credential counts, and only in three positions: after `NAME=`, in a URL, and in a quoted HTTP header after
/// `-H` or `--header` of `curl` and `wget`. Everything else stays visible: it may be a path, an image or a
/// program that the shell would run.
pub fn secret_ranges(command: &str) -> Vec<Range<usize>> {
    let Some(positions) = SECRET_POSITIONS.as_ref() else { return vec![] };
    let secret = |found: Captures<'_>| {
        let value = found.name("value")?;
        let rest = &command[value.end()..];
        let whole = match (found.name("quote"), found.name("url")) {
            (Some(quote), _) => opens_header(&command[..quote.start()]) && rest.starts_with(quote.as_str()),
            (None, Some(_)) => rest.starts_with(['@', '/']),
            (None, None) => rest.is_empty() || rest.starts_with(ends_word),
        };
        (whole && is_random(value.as_str())).then(|| value.range())
    };
    positions.captures_iter(command).filter_map(secret).collect()
}

/// Whether the command contains a private key, which is too long to mask and must not be shown.
pub fn contains_private_key(command: &str) -> bool {
    PRIVATE_KEY.as_ref().is_none_or(|key| key.is_match(command))
}

fn ends_word(c: char) -> bool {
    c.is_ascii_whitespace() || matches!(c, '\'' | '"' | ';' | '|' | '&' | ')' | '<' | '>')
}

/// Whether a quote after `before` opens an HTTP header. `false` wherever quoting is complicated.
fn opens_header(before: &str) -> bool {
    if before.contains(['\\', '`', '#']) || ["<<", "$(", "$'", "$\""].iter().any(|hard| before.contains(hard))
    {
        return false;
    }
    let open = before.chars().fold(None, |open, c| match (open, c) {
        (None, '\'' | '"') => Some(c),
        (Some(quote), c) if quote == c => None,
        (open, _) => open,
    });
    open.is_none() && is_header_option(before)
}

/// Only for HTTP clients: `-H` has other meanings elsewhere.
fn is_header_option(before: &str) -> bool {
    let simple = before.rsplit([';', '|', '&', '(', '\n']).next().unwrap_or_default();
    let option = [" -H", " -H ", " --header ", " --header="].iter().any(|option| simple.ends_with(option));
    option && simple.split_whitespace().any(|word| matches!(word, "curl" | "wget"))
}

/// Random text switches between character kinds often; names and paths do so rarely.
fn is_random(value: &str) -> bool {
    let longest = value.split(|c: char| !c.is_ascii_alphanumeric()).max_by_key(|piece| piece.len());
    let piece = longest.unwrap_or_default().as_bytes();
    let has = |kind: fn(&u8) -> bool| piece.iter().any(kind);
    let kind = |byte: u8| (byte.is_ascii_digit(), byte.is_ascii_uppercase());
    let changes = piece.windows(2).filter(|pair| kind(pair[0]) != kind(pair[1])).count();
    piece.len() >= 12
        && has(u8::is_ascii_digit)
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
        && changes * 5 >= piece.len() * 2
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
/// A private key in PEM form (RFC 7468), with the characters that quoting and line numbers add between its
/// lines. Without an end line it ends with the last whole line of base64.
const KEY: &str = r#"-----BEGIN\s[A-Z\s]*PRIVATE\sKEY-----
        (?: (?:\\[nr]|[\s|>:"',]|\b[0-9]{1,6}[:|\t\ ])+ (?: (?:Proc-Type|DEK-Info):[^\n\\]* | [A-Za-z0-9+/=]{40,} ) )*
        (?: (?:\\[nr]|[\s|>:"',]|\b[0-9]{1,6}[:|\t\ ])* [A-Za-z0-9+/=]{0,76}
            (?:\\[nr]|[\s|>:"',]|\b[0-9]{1,6}[:|\t\ ])* -----END\s[A-Z\s]*PRIVATE\sKEY----- )?"#;
static CREDENTIALS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(&format!("(?x) {TOKENS} | {KEY}")).ok());
static PRIVATE_KEY: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"PRIVATE KEY-----[\s\S]{0,400}?[A-Za-z0-9+/]{40}").ok());
/// Prefixes that identify the issuer; they stay visible.
const MARKED: &str =
    r"(?:(?:sk|rk|pk)[_-] | gh[pousr]_ | github_pat_ | glpat- | xox[abeoprs]- | xapp- | AIza | eyJ)";
static SECRET_POSITIONS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let url = r"\bhttps?://[A-Za-z0-9._-]*:";
    let bot = r"\bhttps://api\.telegram\.org/bot[0-9]{8,10}:";
    let name = r"\b[A-Za-z_][A-Za-z0-9_-]*=[\x22']?";
    let header = r"(?P<quote>[\x22'])[A-Za-z-]+:\x20?(?i:(?:bearer|token|basic)\x20)?";
    let pattern = format!(
        r"(?x) (?: {name} {MARKED} | (?P<url>{url} {MARKED} | {bot}) | {header} {MARKED}? )
            (?P<value>[A-Za-z0-9._~+-]{{16,}}=*)"
    );
    Regex::new(&pattern).ok()
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strips_control_sequences() {
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
    fn redacts_credentials() {
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
    fn masks_values_only_where_a_command_names_a_credential() {
        let value = "aB3dE5fG7hI9jK1lM3nO5pQ7";
        for command in [
            "curl -H 'Authorization: Bearer {}' x; rm y",
            "curl -H \"X-Api-Key: sk-{}\" x",
            "curl --header 'X-Api-Key: {}' x",
            "curl -sS --header='X-Api-Key:{}' x",
            "K=sk-{};rm -rf y",
            "OPENAI_API_KEY='sk-proj-{}' ./run",
            "./run --token=ghp_{}",
            "git clone https://ada:github_pat_{}@example.org/x",
            "curl https://api.telegram.org/bot123456789:{}/getMe",
        ] {
            let command = command.replace("{}", value);
            let found: Vec<_> = secret_ranges(&command).into_iter().map(|range| &command[range]).collect();
            assert!(matches!(found[..], [found] if found.ends_with(value)), "{command}: {found:?}");
        }
    }

    #[test]
    fn shows_everything_that_may_be_a_path_or_a_program() {
        let key = "MIIEpAIBAAKCAQEA7bq1x2Jc9Zf0rV3mT8kLw5yHn4sPdQeRuGiOaXtBvCzM1234";
        for command in [
            "echo bearer\n/tmp/aB3dE5fG7hI9jK1lM3nO5pQ7",
            "echo bearer\naB3dE5fG7hI9jK1lM3nO5pQ7",
            "rm -rf bearer ~/important/documents2024",
            "rm -rf bearer Important/Documents2024/Of/Ada",
            "rm -rf bearer aB3dE5fG7hI9jK1lM3nO5pQ7",
            "rm -rf sk-aB3dE5fG7hI9jK1lM3nO5pQ7",
            "rm -rf /srv/sk-aB3dE5fG7hI9jK1lM3nO5pQ7/data",
            "rm -rf --dir=/srv/sk-aB3dE5fG7hI9jK1lM3nO5pQ7",
            "rm -rf --dir=sk-important-project-backups-2024",
            "rm -rf --dir=sk-MyImportantProjectBackup2024",
            "true; sk-aB3dE5fG7hI9jK1lM3nO5pQ7",
            "x=a: sk-aB3dE5fG7hI9jK1lM3nO5pQ7",
            "x='a 'b: sk-aB3dE5fG7hI9jK1lM3nO5pQ7''",
            "x=\\'a 'b: sk-aB3dE5fG7hI9jK1lM3nO5pQ7'",
            "x='b: sk-aB3dE5fG7hI9jK1lM3nO5pQ7 /etc'",
            "docker run 'img:aB3dE5fG7hI9kL1m'",
            "ssh \"host: aB3dE5fG7hI9jK1lM3nO5pQ7\"",
            "curl -H; sh 'x: aB3dE5fG7hI9jK1lM3nO5pQ7'",
            "curl x; sudo -H 'x: aB3dE5fG7hI9jK1lM3nO5pQ7'",
            "x=sk-aB3dE5fG7hI9jK1lM3nO5pQ7$(reboot)",
            "rm -rf --dir=sk-aB3dE5fG7hI9jK1lM3nO5pQ7/data",
            "echo '-----BEGIN PRIVATE KEY-----\nreboot\n-----END PRIVATE KEY-----'",
            &format!("# PRIVATE KEY-----\n{key}\nrm y"),
        ] {
            assert!(secret_ranges(command).is_empty(), "{command}");
        }
        assert!(contains_private_key(&format!("cat > k <<X\n-----BEGIN PRIVATE KEY-----\n{key}\nX")));
        assert!(!contains_private_key("grep -r -- '-----BEGIN PRIVATE KEY-----' ."));
    }

    #[test]
    fn redacts_private_key_and_nothing_after_it() {
        let line = "MIIEpAIBAAKCAQEA7bq1x2Jc9Zf0rV3mT8kLw5yHn4sPdQeRuGiOaXtBvCzM1234";
        let begin = "-----BEGIN RSA PRIVATE KEY-----";
        let end = "-----END RSA PRIVATE KEY-----";
        for (text, want) in [
            (format!("a\n{begin}\n{line}\n{line}\nabc=\n{end}\nb"), "a\n[redacted]\nb"),
            (format!("a\n{begin}\nProc-Type: 4,ENCRYPTED\n\n{line}\n{end}\nb"), "a\n[redacted]\nb"),
            (format!("{{\"key\": \"{begin}\\n{line}\\n{end}\\n\"}}"), "{\"key\": \"[redacted]\\n\"}"),
            (format!("1\t{begin}\n2\t{line}\n3\t{end}\n4\tb"), "1\t[redacted]\n4\tb"),
            (format!("{begin}\n{line}\ndone\nbuild finished"), "[redacted]\ndone\nbuild finished"),
            (format!("./x:{begin}\n./y: 3 files follow"), "./x:[redacted]\n./y: 3 files follow"),
        ] {
            assert_eq!(redact(&text), want, "{text}");
        }
    }

    #[test]
    fn tail_starts_at_a_line_if_possible() {
        assert_eq!(tail("short", 10), "short");
        assert_eq!(tail("one\ntwo\nthree", 7), "three");
        assert_eq!(tail("abcdefgh", 3), "fgh");
        assert_eq!(tail("äöü", 2), "öü");
        assert_eq!(tail("abc\n", 2), "c\n");
    }
}
