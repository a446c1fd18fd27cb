//! The display form of a command for approvers and models.
//!
//! Complete and unambiguous: each character is shown as it is or as `⟨U+…⟩`, including literal `⟨` and `⟩`. Only secret
//! values are redacted, with their length. The text cannot close the code fence around it.

use alloc::format;
use alloc::string::String;
use core::ops::Range;

use crate::analysis::text::is_invisible;

/// Maximum length of a displayed command; longer ones are refused by the caller.
pub const MAX_DISPLAY_CHARS: usize = 8_000;
/// Longer runs of blanks are counted, since they could push the rest of a line out of view.
const MAX_BLANKS: usize = 40;
/// Longer runs of line breaks are counted, since they could push the rest of the command out of view.
const MAX_BREAKS: usize = 8;

/// `secrets`: byte ranges of secret values, in order and without overlap.
#[must_use]
pub fn display(command: &str, secrets: &[Range<usize>]) -> String {
    let mut shown = String::with_capacity(command.len());
    let mut at = 0;
    for secret in secrets {
        let (Some(before), Some(value)) = (command.get(at..secret.start), command.get(secret.clone())) else {
            continue;
        };
        push(&mut shown, before);
        shown.push_str(&format!("⟨secret value, {} characters⟩", value.chars().count()));
        at = secret.end;
    }
    push(&mut shown, command.get(at..).unwrap_or_default());
    shown
}

/// A one-line text, such as a path, that is safe between single backticks.
#[must_use]
pub fn display_line(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '\n' | '\t' | '`') { push_code_point(&mut shown, c) } else { push_char(&mut shown, c) }
    }
    shown
}

fn push(shown: &mut String, text: &str) {
    let mut rest = text;
    let mut backticks = 0;
    while let Some(c) = rest.chars().next() {
        let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\n']).len();
        if blank > 0 {
            push_blank(shown, &rest[..blank]);
            (rest, backticks) = (&rest[blank..], 0);
            continue;
        }
        backticks = if c == '`' { backticks + 1 } else { 0 };
        if backticks == 3 {
            push_code_point(shown, c);
            backticks = 0;
        } else {
            push_char(shown, c);
        }
        rest = &rest[c.len_utf8()..];
    }
}

fn push_blank(shown: &mut String, blank: &str) {
    let breaks = blank.matches('\n').count();
    if breaks > MAX_BREAKS {
        shown.push_str(&format!("⟨{breaks} line breaks⟩\n"));
        let (_, indent) = blank.rsplit_once('\n').unwrap_or_default();
        return push_blanks(shown, indent);
    }
    for (at, line) in blank.split('\n').enumerate() {
        if at > 0 {
            shown.push('\n');
        }
        push_blanks(shown, line);
    }
}

fn push_blanks(shown: &mut String, blanks: &str) {
    if blanks.len() <= MAX_BLANKS {
        return shown.push_str(blanks);
    }
    let kind = if blanks.contains('\t') { "blanks" } else { "spaces" };
    shown.push_str(&format!("⟨{} {kind}⟩", blanks.len()));
}

fn push_char(shown: &mut String, c: char) {
    if is_invisible(c) || matches!(c, '⟨' | '⟩') { push_code_point(shown, c) } else { shown.push(c) }
}

fn push_code_point(shown: &mut String, c: char) {
    shown.push_str(&format!("⟨U+{:04X}⟩", u32::from(c)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(command: &str, want: &str) {
        assert_eq!(display(command, &[]), want, "{command:?}");
    }

    #[test]
    fn shows_ordinary_commands_unchanged() {
        for command in
            ["rm -rf ./x", "printf 'äöü 👍' |\n\twc -c", "a `b` ``c``", "echo '-----BEGIN x' ; rm y"]
        {
            check(command, command);
        }
    }

    #[test]
    fn escapes_characters_that_hide_or_reorder_text() {
        check("a\u{1b}[2Kb\rc\u{7}", "a⟨U+001B⟩[2Kb⟨U+000D⟩c⟨U+0007⟩");
        check(
            "x\u{202e}y\u{2066}z\u{200b}\u{200d}\u{feff}\u{61c}",
            "x⟨U+202E⟩y⟨U+2066⟩z⟨U+200B⟩⟨U+200D⟩⟨U+FEFF⟩⟨U+061C⟩",
        );
        check("a\u{206b}\u{1bca0}\u{e0fff}", "a⟨U+206B⟩⟨U+1BCA0⟩⟨U+E0FFF⟩");
        check("a\u{a0}b\u{2028}c\u{3000}\u{e0041}", "a⟨U+00A0⟩b⟨U+2028⟩c⟨U+3000⟩⟨U+E0041⟩");
    }

    #[test]
    fn escapes_literal_escape_brackets() {
        check("echo ⟨U+202E⟩", "echo ⟨U+27E8⟩U+202E⟨U+27E9⟩");
    }

    #[test]
    fn cannot_close_the_surrounding_fence() {
        for command in ["```", "a\n```\nb", "``````", "`````", "x ```` y"] {
            assert!(!display(command, &[]).contains("```"), "{command:?}");
        }
    }

    #[test]
    fn counts_long_runs_of_blanks() {
        check(&format!("a{}b", " ".repeat(500)), "a⟨500 spaces⟩b");
        check(&format!("a{}b", " \t".repeat(50)), "a⟨100 blanks⟩b");
        check(&format!("a{}  b", "\n ".repeat(300)), "a⟨300 line breaks⟩\n   b");
        check("a\n\n    b", "a\n\n    b");
    }

    #[test]
    fn names_the_length_of_a_hidden_secret() {
        let command = "curl -H sk-123 https://x; rm -rf y";
        assert_eq!(
            display(command, core::slice::from_ref(&(8..14))),
            "curl -H ⟨secret value, 6 characters⟩ https://x; rm -rf y",
            "only the range is replaced"
        );
        // Invalid ranges hide nothing.
        assert_eq!(display("äb", &[1..2, 5..9]), "äb");
    }

    #[test]
    fn shows_a_path_on_one_line() {
        assert_eq!(display_line("/a`b\nc"), "/a⟨U+0060⟩b⟨U+000A⟩c");
    }
}
