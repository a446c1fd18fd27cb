//! Inline parser: code, emphasis, links.

use super::{Inline, Style};

/// How far ahead a closing mark is searched, in bytes; bounds the work on very long lines.
const MAX_LOOKAHEAD: usize = 4096;

pub fn inline(line: &str) -> Vec<Inline> {
    InlineParser { open: vec![], in_link: false }.parse(line)
}

/// For a line that is bold as a whole.
pub(super) fn bold(line: &str) -> Vec<Inline> {
    InlineParser { open: vec![Style::Bold], in_link: false }.parse(line)
}

/// Parses a part of a line within its open styles.
#[derive(Clone)]
struct InlineParser {
    open: Vec<Style>,
    in_link: bool,
}

/// Parsed elements, and the bytes they took.
type Parsed = (Vec<Inline>, usize);

impl InlineParser {
    fn parse(&self, line: &str) -> Vec<Inline> {
        let mut parts = TextMerger(Vec::new());
        let mut at = 0;
        while let Some(c) = line[at..].chars().next() {
            let before = line[..at].chars().next_back();
            if let Some((found, taken)) = self.markup(&line[at..], c, before) {
                found.into_iter().for_each(|part| parts.push(part));
                at += taken;
                continue;
            }
            // A run of marks is text as a whole: its tail must not open a style.
            let length = if is_mark(c) { run_length(&line[at..], c) } else { c.len_utf8() };
            parts.push_text(&line[at..at + length]);
            at += length;
        }
        parts.0
    }

    fn markup(&self, rest: &str, c: char, before: Option<char>) -> Option<Parsed> {
        let rest = &rest[..rest.floor_char_boundary(MAX_LOOKAHEAD)];
        match c {
            '\\' => escaped(rest),
            '`' => code(rest),
            '!' => self.link(rest.strip_prefix('!')?).map(|(found, taken)| (found, taken + 1)),
            '[' => self.link(rest),
            '<' => address(rest),
            '*' | '_' | '~' | '|' => self.styled(rest, c, before),
            _ => None,
        }
    }

    fn styled(&self, rest: &str, c: char, before: Option<char>) -> Option<Parsed> {
        let width = run_length(rest, c);
        let word_before = match c {
            '_' => before.is_some_and(char::is_alphanumeric),
            // As in 2*3*4.
            '*' if width == 1 => before.is_some_and(|c| c.is_ascii_alphanumeric()),
            _ => false,
        };
        if word_before {
            return None;
        }
        let (width, styles): (usize, &[Style]) = match (c, width) {
            ('*' | '_', 1) => (1, &[Style::Italic]),
            ('*' | '_', 2) => (2, &[Style::Bold]),
            ('*' | '_', 3) if closing_mark(rest, c, 3).is_some() => (3, &[Style::Bold, Style::Italic]),
            ('*' | '_', 3) => (2, &[Style::Bold]),
            ('~', 2) => (2, &[Style::Strike]),
            ('|', 2) => (2, &[Style::Spoiler]),
            _ => return None,
        };
        let end = closing_mark(rest, c, width)?;
        let mut inside = self.clone();
        inside.open.extend(styles);
        let mut found = inside.parse(&rest[width..end]);
        for style in styles.iter().rev().filter(|style| !self.open.contains(style)) {
            found = vec![Inline::Styled(*style, found)];
        }
        Some((found, end + width))
    }

    /// `[text](address "title")`
    fn link(&self, rest: &str) -> Option<Parsed> {
        if self.in_link || !rest.starts_with('[') {
            return None;
        }
        let close = matching_bracket(rest)?;
        let (url, taken) = destination(rest[close + 1..].strip_prefix('(')?)?;
        let inside = Self { in_link: true, ..self.clone() };
        let text = inside.parse(&rest[1..close]);
        let taken = close + 2 + taken;
        let shown = text.iter().any(|part| !matches!(part, Inline::Text(text) if text.trim().is_empty()));
        let link = if shown { Inline::Link { text, url } } else { Inline::Text(url) };
        Some((vec![link], taken))
    }
}

/// Merges adjacent text.
struct TextMerger(Vec<Inline>);

impl TextMerger {
    fn push(&mut self, part: Inline) {
        match part {
            Inline::Text(text) => self.push_text(&text),
            Inline::Code(_) | Inline::Styled(..) | Inline::Link { .. } => self.0.push(part),
        }
    }

    fn push_text(&mut self, text: &str) {
        if let Some(Inline::Text(last)) = self.0.last_mut() {
            last.push_str(text);
        } else {
            self.0.push(Inline::Text(text.to_owned()));
        }
    }
}

/// Start of the mark that closes the one at the start of `rest`.
fn closing_mark(rest: &str, c: char, width: usize) -> Option<usize> {
    let first = rest[width..].chars().next()?;
    if first.is_whitespace() {
        return None;
    }
    let mut at = width;
    let mut before = first;
    while let Some(next) = rest[at..].chars().next() {
        if next != c {
            let taken = skip_length(&rest[at..], next);
            before = rest[..at + taken].chars().next_back().unwrap_or(next);
            at += taken;
            continue;
        }
        let length = run_length(&rest[at..], c);
        let after = rest[at + length..].chars().next();
        let fits = match width {
            1 => length == 1 || length == 3,
            2 => length == 2 || (length == 3 && matches!(c, '*' | '_')),
            _ => length == width,
        };
        let in_word = c == '_' && after.is_some_and(char::is_alphanumeric);
        if fits && at > width && !before.is_whitespace() && !in_word {
            return Some(at + length - width);
        }
        at += length;
        before = c;
    }
    None
}

/// Index of the `]` that closes the `[` at the start.
fn matching_bracket(rest: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(c) = rest[at..].chars().next() {
        match c {
            '[' => depth += 1,
            ']' if depth == 1 => return Some(at),
            ']' => depth -= 1,
            _ => {}
        }
        at += skip_length(&rest[at..], c);
    }
    None
}

/// The address up to the `)` that closes the link, and the bytes taken. A title is dropped.
fn destination(rest: &str) -> Option<(String, usize)> {
    let mut url = String::new();
    let mut depth = 0_usize;
    let mut chars = rest.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => url.push(chars.next()?.1),
            ')' if depth == 0 => return Some((url, at + 1)).filter(|(url, _)| !url.is_empty()),
            ')' => depth -= 1,
            '(' => depth += 1,
            c if c.is_whitespace() => {
                let title = rest[at..].trim_start();
                let quote = title.chars().next().filter(|c| matches!(c, '"' | '\''))?;
                let end = title[1..].find(quote)? + 2;
                let close = title[end..].trim_start();
                let taken = rest.len() - close.len() + 1;
                return Some((url, taken)).filter(|(url, _)| close.starts_with(')') && !url.is_empty());
            }
            _ => {}
        }
        if c != '\\' {
            url.push(c);
        }
    }
    None
}

fn escaped(rest: &str) -> Option<Parsed> {
    let c = rest[1..].chars().next().filter(char::is_ascii_punctuation)?;
    Some((vec![Inline::Text(c.to_string())], 2))
}

fn code(rest: &str) -> Option<Parsed> {
    let taken = code_length(rest)?;
    let width = run_length(rest, '`');
    let body = &rest[width..taken - width];
    // One space on both sides separates a back-tick from the mark.
    let inner = body.strip_prefix(' ').and_then(|body| body.strip_suffix(' '));
    let body = inner.filter(|inner| !inner.trim().is_empty()).unwrap_or(body);
    Some((vec![Inline::Code(body.to_owned())], taken))
}

/// `<https://…>`
fn address(rest: &str) -> Option<Parsed> {
    let inner = &rest[1..rest.find('>')?];
    let known = inner.starts_with("https://") || inner.starts_with("http://");
    let url = Some(inner).filter(|url| known && !url.contains(char::is_whitespace))?;
    Some((vec![Inline::Text(url.to_owned())], url.len() + 2))
}

/// Bytes to skip at once in a search: an escape, a code span or a character.
fn skip_length(rest: &str, c: char) -> usize {
    match c {
        '\\' => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
        '`' => code_length(rest).unwrap_or_else(|| run_length(rest, '`')),
        _ => c.len_utf8(),
    }
}

/// Length of the code span at the start, with its marks, if it is closed.
fn code_length(rest: &str) -> Option<usize> {
    let width = run_length(rest, '`');
    let mut at = width;
    while let Some(next) = rest[at..].find('`') {
        at += next;
        let length = run_length(&rest[at..], '`');
        if length == width {
            return Some(at + length);
        }
        at += length;
    }
    None
}

fn is_mark(c: char) -> bool {
    matches!(c, '*' | '_' | '~' | '|' | '`')
}

fn run_length(text: &str, c: char) -> usize {
    text.len() - text.trim_start_matches(c).len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Style::{Bold, Italic, Spoiler, Strike};

    fn text(text: &str) -> Inline {
        Inline::Text(text.into())
    }

    fn styled(style: Style, inner: Vec<Inline>) -> Inline {
        Inline::Styled(style, inner)
    }

    #[track_caller]
    fn check(source: &str, want: Vec<Inline>) {
        assert_eq!(inline(source), want, "{source:?}");
    }

    #[test]
    fn parses_nested_and_adjacent_emphasis() {
        check("**b**", vec![styled(Bold, vec![text("b")])]);
        check("__b__", vec![styled(Bold, vec![text("b")])]);
        check("_i_", vec![styled(Italic, vec![text("i")])]);
        check("***x***", vec![styled(Bold, vec![styled(Italic, vec![text("x")])])]);
        check("**a *b***", vec![styled(Bold, vec![text("a "), styled(Italic, vec![text("b")])])]);
        check(
            "*a **b** c*",
            vec![styled(Italic, vec![text("a "), styled(Bold, vec![text("b")]), text(" c")])],
        );
        check("~~s~~||p||", vec![styled(Strike, vec![text("s")]), styled(Spoiler, vec![text("p")])]);
        check("文**字**文", vec![text("文"), styled(Bold, vec![text("字")]), text("文")]);
    }

    #[test]
    fn unclosed_markup_is_text() {
        for source in [
            "a * b * c",
            "2*3*4",
            "snake_case_name",
            "**open",
            "*.rs, *.py",
            "a ~ b",
            "||",
            "****",
            "`",
            "[a](",
            "![",
        ] {
            check(source, vec![text(source)]);
        }
    }

    #[test]
    fn flattens_a_style_within_itself() {
        check("**a __b__ c**", vec![styled(Bold, vec![text("a b c")])]);
        assert_eq!(bold("a **b**"), vec![text("a b")]);
    }

    #[test]
    fn code_spans_keep_their_text_unparsed() {
        check("`a_b*c*`", vec![Inline::Code("a_b*c*".into())]);
        check("`` a`b ``", vec![Inline::Code("a`b".into())]);
        check("*a `*` b*", vec![styled(Italic, vec![text("a "), Inline::Code("*".into()), text(" b")])]);
        check(r"\*no\*", vec![text("*no*")]);
    }

    #[test]
    fn parses_links_with_parentheses_and_titles() {
        let link = |text: Vec<Inline>, url: &str| Inline::Link { text, url: url.into() };
        check("[a (1)](https://e.org/a_(b))", vec![link(vec![text("a (1)")], "https://e.org/a_(b)")]);
        check("[a](https://e.org \"t\") b", vec![link(vec![text("a")], "https://e.org"), text(" b")]);
        check("![alt](https://e.org/x.png)", vec![link(vec![text("alt")], "https://e.org/x.png")]);
        check("[**a**](u)", vec![link(vec![styled(Bold, vec![text("a")])], "u")]);
        check("[](https://e.org)", vec![text("https://e.org")]);
        check("<https://e.org>", vec![text("https://e.org")]);
        check("[x] (y)", vec![text("[x] (y)")]);
    }
}
