//! Files in an answer: `MEDIA:/path` tags and the flags beside them.
//!
//! A tag counts where somebody speaks, not where somebody quotes: those in code, in block quotes and in JSON
//! strings stay where they are. Nothing an answer says is dropped: if only flags were said, the answer is said
//! as it is. The work grows with the length of the answer and hardly faster, whatever a model repeats in it.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use crate::text::Fences;

const TAG: &str = "MEDIA:";
const VOICE: &str = "[[audio_as_voice]]";
const DOCUMENT: &str = "[[as_document]]";
/// Files of one answer; tags beyond them stay text.
const MOST: usize = 20;
/// No path of any system is longer.
const LONGEST_PATH: usize = 4096;

/// An answer, taken apart.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Media {
    /// What remains to be said; empty if it was all files.
    pub text: String,
    /// Paths as they were written, each once.
    pub files: Vec<String>,
    /// Sounds are to be sent as if they had been spoken.
    pub voice: bool,
    /// Everything is to be sent as it is, not as a picture or a film.
    pub document: bool,
}

/// Takes the files out of a complete answer. The same text gives the same parts every time.
pub fn extract(text: &str) -> Media {
    let media = taken_out(text);
    let flagged = media.voice || media.document;
    if media.files.is_empty() && (media.text.is_empty() || !flagged) {
        return Media { text: text.to_owned(), ..Media::default() };
    }
    media
}

/// What may be shown of an answer that is still growing: without tags and without what may become one.
pub fn growing(text: &str) -> String {
    let mut shown = taken_out(text).text;
    if let Some(at) = unfinished(&shown) {
        shown.truncate(at);
        shown.truncate(shown.trim_end().len());
    }
    shown
}

/// What remains of an answer that was broken off: without a tag or a flag at its end that may not be whole.
pub fn broken_off(text: &str) -> &str {
    let cut = unfinished(text).or_else(|| bare_tag_at_end(text));
    cut.map_or(text, |at| text[..at].trim_end())
}

/// Where a tag begins whose path has no quotes and reaches the end of the text: the rest of it may be missing.
fn bare_tag_at_end(text: &str) -> Option<usize> {
    let line = text.rfind('\n').map_or(0, |at| at + 1);
    let at = line + text[line..].rfind(TAG)?;
    let path = text[at + TAG.len()..].trim_start();
    let bare = !path.starts_with(['"', '\'', '`']) && !path.contains(char::is_whitespace);
    bare.then_some(at)
}

/// Where a tag or a flag begins whose end has not been said yet.
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

fn taken_out(text: &str) -> Media {
    if !text.contains(TAG) && !text.contains("[[") {
        return Media { text: text.to_owned(), ..Media::default() };
    }
    let mut media = Media::default();
    let mut fences = Fences::default();
    let mut lines: Vec<String> = Vec::new();
    for line in text.split('\n') {
        let spoken = !fences.holds(line) && !line.trim_start().starts_with('>');
        if !spoken {
            lines.push(line.to_owned());
            continue;
        }
        let rest = Scan::new(line).run(&mut media);
        let emptied = rest.len() != line.len() && rest.trim_matches([' ', '\t', '-', '*', '•']).is_empty();
        if !emptied {
            lines.push(rest);
        } else if lines.last().is_some_and(|last| last.trim().is_empty()) {
            // Of the two gaps around a line that is gone one is enough.
            lines.pop();
        }
    }
    media.text = lines.join("\n").trim().to_owned();
    media
}

/// One line, from left to right.
struct Scan<'a> {
    line: &'a str,
    at: usize,
    kept: String,
}

impl<'a> Scan<'a> {
    fn new(line: &'a str) -> Self {
        Self { line, at: 0, kept: String::with_capacity(line.len()) }
    }

    fn run(mut self, media: &mut Media) -> String {
        while let Some(c) = self.rest().chars().next() {
            let quoted = match c {
                '`' => Some(code_span(self.rest())),
                '"' => json_string(&self.line[..self.at], self.rest()),
                // What is escaped opens nothing.
                '\\' if self.rest()[1..].starts_with(['"', '\\']) => Some(2),
                _other => None,
            };
            if let Some(length) = quoted {
                self.keep(length);
            } else if !self.flag(media) && !self.tag(media) {
                self.keep(c.len_utf8());
            }
        }
        if self.kept.len() != self.line.len() {
            self.kept.truncate(self.kept.trim_end().len());
        }
        self.kept
    }

    fn rest(&self) -> &'a str {
        &self.line[self.at..]
    }

    fn keep(&mut self, length: usize) {
        self.kept.push_str(&self.rest()[..length]);
        self.at += length;
    }

    fn flag(&mut self, media: &mut Media) -> bool {
        let flag = [VOICE, DOCUMENT].into_iter().find(|flag| self.rest().starts_with(flag));
        let Some(flag) = flag else { return false };
        media.voice |= flag == VOICE;
        media.document |= flag == DOCUMENT;
        self.at += flag.len();
        true
    }

    fn tag(&mut self, media: &mut Media) -> bool {
        let before = self.line[..self.at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '/' | ':')) {
            return false;
        }
        let Some((path, length)) = self.rest().strip_prefix(TAG).and_then(path) else { return false };
        if !media.files.iter().any(|known| known == path) {
            if media.files.len() >= MOST {
                return false;
            }
            media.files.push(path.to_owned());
        }
        self.at += TAG.len() + length;
        // Quotes around the whole tag go with it.
        if let Some(quote) = before.filter(|c| matches!(c, '"' | '\''))
            && self.rest().starts_with(quote)
        {
            self.at += 1;
            self.kept.pop();
        }
        true
    }
}

/// The path at the beginning of `text`, and how much of `text` it takes.
fn path(text: &str) -> Option<(&str, usize)> {
    let body = text.trim_start_matches([' ', '\t']);
    let skipped = text.len() - body.len();
    let (path, taken) = match body.chars().next()? {
        quote @ ('"' | '\'' | '`') => {
            let inside = &body[1..];
            let end = find(inside, |c| c == quote)?;
            (&inside[..end], end + 2)
        }
        _bare => {
            let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '`');
            let end = find(body, ends).or((body.len() <= LONGEST_PATH).then_some(body.len()))?;
            let path = body[..end].trim_end_matches([',', ';', ':', '.', '!', '?', ')', ']', '}', '*', '\'']);
            (path, path.len())
        }
    };
    let absolute = path.len() > 1 && (path.starts_with('/') || path.starts_with("~/"));
    let sound = path.len() <= LONGEST_PATH && !path.chars().any(char::is_control);
    (absolute && sound).then_some((path, skipped + taken))
}

/// No further away than a path is long.
fn find(text: &str, wanted: impl Fn(char) -> bool) -> Option<usize> {
    let near = text.char_indices().take_while(|(at, _)| *at <= LONGEST_PATH);
    near.into_iter().find(|(_, c)| wanted(*c)).map(|(at, _)| at)
}

/// How long the code span at the beginning of `text` is. A run that nothing closes is just backticks, all of them.
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

/// How long the string at the beginning of `text` is, if what stands around it makes it one of JSON.
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
    fn a_tag_is_taken_out_however_it_is_quoted() {
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
    fn what_is_quoted_stays_where_it_is() {
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
    fn what_is_no_tag_is_text() {
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
    fn flags_count_for_the_whole_answer() {
        let media = extract("[[audio_as_voice]]\nMEDIA:/a.ogg\nListen [[as_document]]");
        assert_eq!((media.voice, media.document), (true, true));
        assert_eq!((media.text.as_str(), media.files), ("Listen", vec!["/a.ogg".to_owned()]));
    }

    #[test]
    fn an_answer_of_flags_alone_is_said_as_it_is() {
        for text in [" [[as_document]]\n", "  ", ""] {
            assert_eq!(extract(text), Media { text: text.into(), ..Media::default() });
        }
    }

    #[test]
    fn an_answer_names_a_bounded_number_of_files() {
        let text: Vec<String> = (0..30).map(|n| format!("MEDIA:/{n}.png")).collect();
        let media = extract(&text.join("\n"));
        assert_eq!((media.files.len(), media.text.lines().count()), (MOST, 10));
    }

    #[test]
    fn a_growing_answer_shows_no_half_tag() {
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
            assert_eq!(growing(text), want, "{text:?}");
        }
    }

    /// With work that grows as the square of the length this takes minutes.
    #[test]
    fn what_is_repeated_for_ever_is_read_in_no_time() {
        for unit in ["`", "\\\"", "\"", "MEDIA:\"", "[[", "` `` "] {
            let text = format!("MEDIA: {}", unit.repeat(200_000 / unit.len()));
            check(&text, &text, &[]);
        }
    }

    #[test]
    fn whole_text_is_kept_byte_for_byte_when_there_is_nothing_to_take_out() {
        let text = "a  b\t\n\n\n\nc   \n  d [[x]] MEDIA";
        check(text, text, &[]);
    }

    #[test]
    fn a_broken_off_answer_names_no_file_by_half_its_path() {
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
            assert_eq!(broken_off(text), want, "{text:?}");
        }
    }

    #[test]
    fn growing_text_may_end_behind_wide_white_space() {
        for text in ["Bonjour\u{a0}!", "\u{6771}\u{4eac}\u{3000}\u{99c5}", "a\u{2003}"] {
            assert_eq!(growing(text), text);
        }
    }
}
