//! What stands within one line: code, emphasis, links.

use super::{Inline, Style};

/// How far the end of something is looked for, in bytes; bounds the work on a line without end.
const REACH: usize = 4096;

pub fn inline(line: &str) -> Vec<Inline> {
    Reader { open: vec![], in_link: false }.read(line)
}

/// A line that is bold as a whole: bold within it is nothing new.
pub(super) fn bold(line: &str) -> Vec<Inline> {
    Reader { open: vec![Style::Bold], in_link: false }.read(line)
}

/// Reads one stretch of a line; knows what it is inside of.
#[derive(Clone)]
struct Reader {
    open: Vec<Style>,
    in_link: bool,
}

/// Something that was recognised, and the bytes it took.
type Found = (Vec<Inline>, usize);

impl Reader {
    fn read(&self, line: &str) -> Vec<Inline> {
        let mut parts = Parts(Vec::new());
        let mut at = 0;
        while let Some(c) = line[at..].chars().next() {
            let before = line[..at].chars().next_back();
            if let Some((found, taken)) = self.special(&line[at..], c, before) {
                found.into_iter().for_each(|part| parts.push(part));
                at += taken;
                continue;
            }
            // A run of marks is tried as a whole: its tail must not open what its head could not.
            let run = if is_mark(c) { run(&line[at..], c) } else { c.len_utf8() };
            parts.text(&line[at..at + run]);
            at += run;
        }
        parts.0
    }

    fn special(&self, rest: &str, c: char, before: Option<char>) -> Option<Found> {
        let rest = &rest[..rest.floor_char_boundary(REACH)];
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

    fn styled(&self, rest: &str, c: char, before: Option<char>) -> Option<Found> {
        let width = run(rest, c);
        let word_before = match c {
            '_' => before.is_some_and(char::is_alphanumeric),
            // 2*3*4 is a product.
            '*' if width == 1 => before.is_some_and(|c| c.is_ascii_alphanumeric()),
            _ => false,
        };
        if word_before {
            return None;
        }
        let (width, styles): (usize, &[Style]) = match (c, width) {
            ('*' | '_', 1) => (1, &[Style::Italic]),
            ('*' | '_', 2) => (2, &[Style::Bold]),
            ('*' | '_', 3) if closing(rest, c, 3).is_some() => (3, &[Style::Bold, Style::Italic]),
            ('*' | '_', 3) => (2, &[Style::Bold]),
            ('~', 2) => (2, &[Style::Strike]),
            ('|', 2) => (2, &[Style::Spoiler]),
            _ => return None,
        };
        let end = closing(rest, c, width)?;
        let mut inside = self.clone();
        inside.open.extend(styles);
        let mut found = inside.read(&rest[width..end]);
        for style in styles.iter().rev().filter(|style| !self.open.contains(style)) {
            found = vec![Inline::Styled(*style, found)];
        }
        Some((found, end + width))
    }

    /// `[text](address "title")`
    fn link(&self, rest: &str) -> Option<Found> {
        if self.in_link || !rest.starts_with('[') {
            return None;
        }
        let close = bracket(rest)?;
        let (url, taken) = destination(rest[close + 1..].strip_prefix('(')?)?;
        let inside = Self { in_link: true, ..self.clone() };
        let text = inside.read(&rest[1..close]);
        let taken = close + 2 + taken;
        let shown = text.iter().any(|part| !matches!(part, Inline::Text(text) if text.trim().is_empty()));
        let link = if shown { Inline::Link { text, url } } else { Inline::Text(url) };
        Some((vec![link], taken))
    }
}

/// Collects parts; neighbouring text becomes one.
struct Parts(Vec<Inline>);

impl Parts {
    fn push(&mut self, part: Inline) {
        match part {
            Inline::Text(text) => self.text(&text),
            Inline::Code(_) | Inline::Styled(..) | Inline::Link { .. } => self.0.push(part),
        }
    }

    fn text(&mut self, text: &str) {
        if let Some(Inline::Text(last)) = self.0.last_mut() {
            last.push_str(text);
        } else {
            self.0.push(Inline::Text(text.to_owned()));
        }
    }
}

/// Where the mark that closes the one at the start of `rest` begins.
fn closing(rest: &str, c: char, width: usize) -> Option<usize> {
    let first = rest[width..].chars().next()?;
    if first.is_whitespace() {
        return None;
    }
    let mut at = width;
    let mut before = first;
    while let Some(next) = rest[at..].chars().next() {
        if next != c {
            let taken = step(&rest[at..], next);
            before = rest[..at + taken].chars().next_back().unwrap_or(next);
            at += taken;
            continue;
        }
        let length = run(&rest[at..], c);
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

/// The `]` that belongs to the `[` at the start.
fn bracket(rest: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(c) = rest[at..].chars().next() {
        match c {
            '[' => depth += 1,
            ']' if depth == 1 => return Some(at),
            ']' => depth -= 1,
            _ => {}
        }
        at += step(&rest[at..], c);
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

fn escaped(rest: &str) -> Option<Found> {
    let c = rest[1..].chars().next().filter(char::is_ascii_punctuation)?;
    Some((vec![Inline::Text(c.to_string())], 2))
}

fn code(rest: &str) -> Option<Found> {
    let taken = code_length(rest)?;
    let width = run(rest, '`');
    let body = &rest[width..taken - width];
    // One space on both sides keeps a leading back-tick apart from the mark.
    let inner = body.strip_prefix(' ').and_then(|body| body.strip_suffix(' '));
    let body = inner.filter(|inner| !inner.trim().is_empty()).unwrap_or(body);
    Some((vec![Inline::Code(body.to_owned())], taken))
}

/// `<https://…>`
fn address(rest: &str) -> Option<Found> {
    let inner = &rest[1..rest.find('>')?];
    let known = inner.starts_with("https://") || inner.starts_with("http://");
    let url = Some(inner).filter(|url| known && !url.contains(char::is_whitespace))?;
    Some((vec![Inline::Text(url.to_owned())], url.len() + 2))
}

/// The bytes to go over at once while looking for something else: an escape, a piece of code, a character.
fn step(rest: &str, c: char) -> usize {
    match c {
        '\\' => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
        '`' => code_length(rest).unwrap_or_else(|| run(rest, '`')),
        _ => c.len_utf8(),
    }
}

/// The length of the piece of code at the start, with its marks, if it is closed.
fn code_length(rest: &str) -> Option<usize> {
    let width = run(rest, '`');
    let mut at = width;
    while let Some(next) = rest[at..].find('`') {
        at += next;
        let length = run(&rest[at..], '`');
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

fn run(text: &str, c: char) -> usize {
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
    fn emphasis_closes_where_a_reader_would_close_it() {
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
    fn what_does_not_close_is_text() {
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
    fn a_style_within_itself_is_nothing_new() {
        check("**a __b__ c**", vec![styled(Bold, vec![text("a b c")])]);
        assert_eq!(bold("a **b**"), vec![text("a b")]);
    }

    #[test]
    fn code_keeps_everything_and_hides_marks() {
        check("`a_b*c*`", vec![Inline::Code("a_b*c*".into())]);
        check("`` a`b ``", vec![Inline::Code("a`b".into())]);
        check("*a `*` b*", vec![styled(Italic, vec![text("a "), Inline::Code("*".into()), text(" b")])]);
        check(r"\*no\*", vec![text("*no*")]);
    }

    #[test]
    fn links_may_hold_parentheses_and_titles() {
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
