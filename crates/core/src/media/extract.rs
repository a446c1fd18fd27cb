//! Extracts `MEDIA:/path` tags and the flags beside them from an answer.
//!
//! Tags in code, block quotes and JSON strings are quoted text and stay. An answer that consists only of flags is sent
//! unchanged. The running time is close to linear in the length of the answer.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use crate::text::Fences;

const TAG: &str = "MEDIA:";
const VOICE: &str = "[[audio_as_voice]]";
const DOCUMENT: &str = "[[as_document]]";
/// Maximum files per answer; further tags stay text.
const MAX_FILES: usize = 20;
const MAX_PATH_BYTES: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExtractedMedia {
    /// The text without tags; empty if there were only files.
    pub text: String,
    /// Paths as written, without duplicates.
    pub files: Vec<String>,
    /// Send audio as voice messages.
    pub voice: bool,
    /// Send images and videos as documents.
    pub document: bool,
}

/// Extracts the files of a complete answer. Deterministic.
pub fn extract(text: &str) -> ExtractedMedia {
    let media = parse(text);
    let flagged = media.voice || media.document;
    if media.files.is_empty() && (media.text.is_empty() || !flagged) {
        return ExtractedMedia { text: text.to_owned(), ..ExtractedMedia::default() };
    }
    media
}

/// The part of a streamed answer that may be shown: without tags and without an incomplete tag at the end.
pub fn preview_text(text: &str) -> String {
    let mut shown = parse(text).text;
    if let Some(at) = unfinished(&shown) {
        shown.truncate(at);
        shown.truncate(shown.trim_end().len());
    }
    shown
}

/// An answer that was cut off, without a tag or flag at its end that may be incomplete.
pub fn truncated_text(text: &str) -> &str {
    let cut = unfinished(text).or_else(|| bare_tag_at_end(text));
    cut.map_or(text, |at| text[..at].trim_end())
}

/// The start of a tag whose unquoted path reaches the end of the text: the rest of it may be missing.
fn bare_tag_at_end(text: &str) -> Option<usize> {
    let line = text.rfind('\n').map_or(0, |at| at + 1);
    let at = line + text[line..].rfind(TAG)?;
    let path = text[at + TAG.len()..].trim_start();
    let bare = !path.starts_with(['"', '\'', '`']) && !path.contains(char::is_whitespace);
    bare.then_some(at)
}

/// The start of an incomplete tag or flag.
fn unfinished(text: &str) -> Option<usize> {
    let line = text.rfind('\n').map_or(0, |at| at + 1);
    if let Some(at) = text[line..].rfind(TAG) {
        let path = text[line + at + TAG.len()..].trim_start();
        let quote = path.chars().next().filter(|c| matches!(c, '"' | '\'' | '`'));
        let open = quote.map_or(path.is_empty() || path == "~", |quote| !path[1..].contains(quote));
        return open.then_some(line + at);
    }
    let tail = text[line..].rsplit(char::is_whitespace).next().unwrap_or_default();
    let word = text.len() - tail.len();
    let half_tag = tail.len() > 2 && TAG.starts_with(tail);
    let half_flag = tail.starts_with("[[") && !tail.contains("]]");
    (half_tag || half_flag).then_some(word)
}

fn parse(text: &str) -> ExtractedMedia {
    if !text.contains(TAG) && !text.contains("[[") {
        return ExtractedMedia { text: text.to_owned(), ..ExtractedMedia::default() };
    }
    let mut media = ExtractedMedia::default();
    let mut fences = Fences::default();
    let mut lines: Vec<String> = Vec::new();
    for line in text.split('\n') {
        let plain = !fences.is_code(line) && !line.trim_start().starts_with('>');
        if !plain {
            lines.push(line.to_owned());
            continue;
        }
        let rest = LineScan::new(line).run(&mut media);
        let only_tags = rest.len() != line.len() && rest.trim_matches([' ', '\t', '-', '*', '•']).is_empty();
        if !only_tags {
            lines.push(rest);
        } else if lines.last().is_some_and(|last| last.trim().is_empty()) {
            // Keep only one of the two empty lines around a removed line.
            lines.pop();
        }
    }
    media.text = lines.join("\n").trim().to_owned();
    media
}

/// Scans one line from left to right.
struct LineScan<'a> {
    line: &'a str,
    at: usize,
    output: String,
}

impl<'a> LineScan<'a> {
    fn new(line: &'a str) -> Self {
        Self { line, at: 0, output: String::with_capacity(line.len()) }
    }

    fn run(mut self, media: &mut ExtractedMedia) -> String {
        while let Some(c) = self.rest().chars().next() {
            let quoted = match c {
                '`' => Some(code_span(self.rest())),
                '"' => json_string(&self.line[..self.at], self.rest()),
                // An escaped quote opens no string.
                '\\' if self.rest()[1..].starts_with(['"', '\\']) => Some(2),
                _other => None,
            };
            if let Some(length) = quoted {
                self.copy(length);
            } else if !self.flag(media) && !self.tag(media) {
                self.copy(c.len_utf8());
            }
        }
        if self.output.len() != self.line.len() {
            self.output.truncate(self.output.trim_end().len());
        }
        self.output
    }

    fn rest(&self) -> &'a str {
        &self.line[self.at..]
    }

    fn copy(&mut self, length: usize) {
        self.output.push_str(&self.rest()[..length]);
        self.at += length;
    }

    fn flag(&mut self, media: &mut ExtractedMedia) -> bool {
        let flag = [VOICE, DOCUMENT].into_iter().find(|flag| self.rest().starts_with(flag));
        let Some(flag) = flag else { return false };
        media.voice |= flag == VOICE;
        media.document |= flag == DOCUMENT;
        self.at += flag.len();
        true
    }

    fn tag(&mut self, media: &mut ExtractedMedia) -> bool {
        let before = self.line[..self.at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '/' | ':')) {
            return false;
        }
        let Some((path, length)) = self.rest().strip_prefix(TAG).and_then(path) else { return false };
        if !media.files.iter().any(|known| known == path) {
            if media.files.len() >= MAX_FILES {
                return false;
            }
            media.files.push(path.to_owned());
        }
        self.at += TAG.len() + length;
        // Quotes around the whole tag are removed with it.
        if let Some(quote) = before.filter(|c| matches!(c, '"' | '\''))
            && self.rest().starts_with(quote)
        {
            self.at += 1;
            self.output.pop();
        }
        true
    }
}

/// The path at the start of `text` and its length in `text`.
fn path(text: &str) -> Option<(&str, usize)> {
    let body = text.trim_start_matches([' ', '\t']);
    let skipped = text.len() - body.len();
    let (path, taken) = match body.chars().next()? {
        quote @ ('"' | '\'' | '`') => {
            let inside = &body[1..];
            let end = find_near(inside, |c| c == quote)?;
            (&inside[..end], end + 2)
        }
        _bare => {
            let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '`');
            let end = find_near(body, ends).or((body.len() <= MAX_PATH_BYTES).then_some(body.len()))?;
            let path = body[..end].trim_end_matches([',', ';', ':', '.', '!', '?', ')', ']', '}', '*', '\'']);
            (path, path.len())
        }
    };
    let absolute = path.len() > 1 && (path.starts_with('/') || path.starts_with("~/"));
    let sound = path.len() <= MAX_PATH_BYTES && !path.chars().any(char::is_control);
    (absolute && sound).then_some((path, skipped + taken))
}

/// Searches within the maximum length of a path.
fn find_near(text: &str, wanted: impl Fn(char) -> bool) -> Option<usize> {
    let near = text.char_indices().take_while(|(at, _)| *at <= MAX_PATH_BYTES);
    near.into_iter().find(|(_, c)| wanted(*c)).map(|(at, _)| at)
}

/// The length of the code span at the start of `text`; an unclosed run of backticks counts as text.
fn code_span(text: &str) -> usize {
    let run = text.len() - text.trim_start_matches('`').len();
    let mut at = run;
    while let Some(found) = text[at..].find('`') {
        let from = at + found;
        let width = text[from..].len() - text[from..].trim_start_matches('`').len();
        at = from + width;
        if width == run {
            return at;
        }
    }
    run
}

/// The length of the string at the start of `text`, if its surroundings make it a JSON string.
fn json_string(before: &str, text: &str) -> Option<usize> {
    let mut escaped = false;
    let closing = text.char_indices().skip(1).find(|&(_, c)| {
        let closes = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        closes
    });
    let length = closing?.0 + 1;
    let opened = before.trim_end().ends_with([':', '[', ',', '{']) && !before.ends_with(TAG);
    let closed = text[length..].trim_start().starts_with([':', ']', '}']);
    (opened || closed).then_some(length)
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::vec;

    use super::*;

    #[track_caller]
    fn check(text: &str, want: &str, files: &[&str]) {
        let media = extract(text);
        assert_eq!((media.text.as_str(), media.files.as_slice()), (want, &owned(files)[..]), "{text:?}");
    }

    fn owned(files: &[&str]) -> Vec<String> {
        files.iter().map(|file| (*file).to_owned()).collect()
    }

    #[test]
    fn extracts_quoted_and_unquoted_tags() {
        check("Here it is.\nMEDIA:/tmp/a.png\nBye.", "Here it is.\nBye.", &["/tmp/a.png"]);
        check("MEDIA:~/a.png", "", &["~/a.png"]);
        check("MEDIA: /tmp/a.png", "", &["/tmp/a.png"]);
        check("MEDIA:\"/tmp/my cat.png\" done", "done", &["/tmp/my cat.png"]);
        check("MEDIA:'/tmp/my cat.png'", "", &["/tmp/my cat.png"]);
        check("MEDIA:`/tmp/my cat.png`", "", &["/tmp/my cat.png"]);
        check("\"MEDIA:/tmp/a.png\"", "", &["/tmp/a.png"]);
        check("See (MEDIA:/tmp/a.png).", "See ().", &["/tmp/a.png"]);
        check("**MEDIA:/tmp/a.png**", "", &["/tmp/a.png"]);
        check("- MEDIA:/tmp/a.png\n- MEDIA:/tmp/b.pdf", "", &["/tmp/a.png", "/tmp/b.pdf"]);
        check("MEDIA:/a.png and MEDIA:/a.png, twice", "and , twice", &["/a.png"]);
        check("one\n\nMEDIA:/a.png\n\ntwo", "one\n\ntwo", &["/a.png"]);
    }

    #[test]
    fn leaves_quoted_tags_in_the_text() {
        for text in [
            "```\nMEDIA:/tmp/a.png\n```",
            "~~~sh\necho MEDIA:/tmp/a.png\n~~~",
            "write `MEDIA:/tmp/a.png` to send",
            "``MEDIA:/tmp/a.png ` ``",
            "> MEDIA:/tmp/a.png",
            "{\"note\": \"MEDIA:/tmp/a.png\"}",
            "[\"x\", \"MEDIA:/tmp/a.png\"]",
            "{\"a\": \"say \\\"MEDIA:/tmp/a.png\\\"\", \"b\": 1}",
            "`[[as_document]]`",
        ] {
            check(text, text, &[]);
        }
    }

    #[test]
    fn leaves_text_that_is_no_tag() {
        for text in [
            "MEDIA: is a word",
            "MEDIA:relative.png",
            "MEDIA:https://e.org/a.png",
            "MULTIMEDIA:/tmp/a.png",
            "media:/tmp/a.png",
            "MEDIA:\"/tmp/never closed",
            "![a](https://e.org/a.png)",
            "see [[wiki]]",
        ] {
            check(text, text, &[]);
        }
        check(&format!("MEDIA:/{}", "x".repeat(5000)), &format!("MEDIA:/{}", "x".repeat(5000)), &[]);
    }

    #[test]
    fn applies_flags_to_the_whole_answer() {
        let media = extract("[[audio_as_voice]]\nMEDIA:/a.ogg\nListen [[as_document]]");
        assert_eq!((media.voice, media.document), (true, true));
        assert_eq!((media.text.as_str(), media.files), ("Listen", vec!["/a.ogg".to_owned()]));
    }

    #[test]
    fn sends_an_answer_of_flags_alone_unchanged() {
        for text in [" [[as_document]]\n", "  ", ""] {
            assert_eq!(extract(text), ExtractedMedia { text: text.into(), ..ExtractedMedia::default() });
        }
    }

    #[test]
    fn limits_the_number_of_files() {
        let text: Vec<String> = (0..30).map(|n| format!("MEDIA:/{n}.png")).collect();
        let media = extract(&text.join("\n"));
        assert_eq!((media.files.len(), media.text.lines().count()), (MAX_FILES, 10));
    }

    #[test]
    fn hides_incomplete_tags_of_a_streamed_answer() {
        for (text, want) in [
            ("Here:\nMEDIA:/tmp/a", "Here:"),
            ("Here:\nMEDIA:", "Here:"),
            ("Here:\nMEDIA:\"/tmp/my c", "Here:"),
            ("Here: MEDIA:`", "Here:"),
            ("Here:\nMEDI", "Here:"),
            ("Here M", "Here M"),
            ("Now [[audio_as", "Now"),
            ("MEDIA:/tmp/a.png", ""),
            ("plain", "plain"),
        ] {
            assert_eq!(preview_text(text), want, "{text:?}");
        }
    }

    /// Takes minutes if the running time is quadratic.
    #[test]
    fn parses_long_repetitions_in_linear_time() {
        for unit in ["`", "\\\"", "\"", "MEDIA:\"", "[[", "` `` "] {
            let text = format!("MEDIA: {}", unit.repeat(200_000 / unit.len()));
            check(&text, &text, &[]);
        }
    }

    #[test]
    fn keeps_a_text_without_tags_byte_for_byte() {
        let text = "a  b\t\n\n\n\nc   \n  d [[x]] MEDIA";
        check(text, text, &[]);
    }

    #[test]
    fn truncated_text_names_no_file_by_half_its_path() {
        for (text, want) in [
            ("Here it is.\nMEDIA:/srv/repo", "Here it is."),
            ("Here it is.\nMEDIA:", "Here it is."),
            ("Here it is.\nMEDIA:\"/srv/my re", "Here it is."),
            ("MEDIA:/srv/a.txt\nMED", "MEDIA:/srv/a.txt"),
            ("MEDIA:/srv/a.txt\nand", "MEDIA:/srv/a.txt\nand"),
            ("MEDIA:\"/srv/a b.txt\"", "MEDIA:\"/srv/a b.txt\""),
            ("MEDIA:/srv/a.txt is", "MEDIA:/srv/a.txt is"),
            ("No file.", "No file."),
        ] {
            assert_eq!(truncated_text(text), want, "{text:?}");
        }
    }

    #[test]
    fn accepts_wide_white_space_at_the_end_of_a_stream() {
        for text in ["Bonjour\u{a0}!", "\u{6771}\u{4eac}\u{3000}\u{99c5}", "a\u{2003}"] {
            assert_eq!(preview_text(text), text);
        }
    }
}
