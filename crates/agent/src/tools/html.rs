//! A web page as text: what a reader sees of it, with its links. Pure, one pass, no page too broken.

/// Elements whose content is not for readers.
const HIDDEN: [&str; 8] = ["script", "style", "noscript", "template", "svg", "head", "iframe", "object"];
/// Elements that begin on a line of their own.
const BLOCKS: [&str; 22] = [
    "p",
    "div",
    "section",
    "article",
    "header",
    "footer",
    "main",
    "nav",
    "ul",
    "ol",
    "table",
    "tr",
    "blockquote",
    "pre",
    "form",
    "figure",
    "dl",
    "dd",
    "dt",
    "aside",
    "hr",
    "address",
];

/// The title, and the text.
pub fn readable(page: &str) -> (Option<String>, String) {
    let mut out = Text::default();
    // Looked for once, wherever it may be: a page can be made of beginnings of titles.
    let mut title = None;
    let mut sought = false;
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        out.say(&rest[..at]);
        rest = &rest[at..];
        if let Some(comment) = rest.strip_prefix("<!--") {
            rest = comment.find("-->").map_or("", |end| &comment[end + 3..]);
            continue;
        }
        // `a < b` is no tag. Known before its end is looked for: there may be none, and very many of these.
        if !begins_tag(&rest[1..]) {
            out.say("<");
            rest = &rest[1..];
            continue;
        }
        let Some(end) = rest.find('>') else {
            rest = "";
            break;
        };
        let tag = Tag::of(&rest[1..end]);
        rest = &rest[end + 1..];
        if tag.name == "title" && !tag.closes && !sought {
            sought = true;
            title = rest.find("</").map(|end| collapsed(&decoded(&rest[..end])));
        }
        if HIDDEN.contains(&tag.name.as_str()) && !tag.closes && !tag.alone {
            if tag.name == "head" && !sought {
                sought = true;
                title = between(rest, "<title", "</title").map(|found| collapsed(&decoded(found)));
            }
            rest = after_end(rest, &tag.name);
            continue;
        }
        out.tag(&tag);
    }
    out.say(rest);
    (title.filter(|title| !title.is_empty()), out.done())
}

fn begins_tag(inner: &str) -> bool {
    inner.trim_start_matches('/').starts_with(|c: char| c.is_ascii_alphabetic() || c == '!' || c == '?')
}

struct Tag {
    name: String,
    closes: bool,
    alone: bool,
    href: Option<String>,
}

impl Tag {
    fn of(inner: &str) -> Self {
        let closes = inner.starts_with('/');
        let inner = inner.trim_start_matches('/');
        let name: String = inner.chars().take_while(char::is_ascii_alphanumeric).collect();
        let href = between(inner, "href=\"", "\"").or_else(|| between(inner, "href='", "'"));
        Self { name: name.to_ascii_lowercase(), closes, alone: inner.ends_with('/'), href: href.map(decoded) }
    }
}

#[derive(Default)]
struct Text {
    text: String,
    /// A blank is owed before the next word.
    gap: bool,
    /// Inside `<pre>`: blanks count.
    exact: usize,
    links: Vec<(usize, String)>,
}

impl Text {
    fn say(&mut self, raw: &str) {
        let said = decoded(raw);
        if self.exact > 0 {
            self.text.push_str(&said);
            return;
        }
        for (at, word) in said.split(|c: char| c.is_whitespace() || c == '\u{a0}').enumerate() {
            self.gap |= at > 0;
            if word.is_empty() {
                continue;
            }
            if self.gap && !self.text.is_empty() && !self.text.ends_with(['\n', ' ']) {
                self.text.push(' ');
            }
            self.gap = false;
            self.text.push_str(word);
        }
    }

    fn tag(&mut self, tag: &Tag) {
        let name = tag.name.as_str();
        match name {
            "br" => self.line(1),
            "li" if !tag.closes => {
                self.line(1);
                self.text.push_str("- ");
            }
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.line(2);
                if !tag.closes {
                    let level = usize::from(name.as_bytes()[1] - b'0');
                    self.text.push_str(&"#".repeat(level));
                    self.text.push(' ');
                }
            }
            "td" | "th" if tag.closes => self.say(" | "),
            "a" if !tag.closes => {
                // A blank before the link is one before its text.
                let href = tag
                    .href
                    .clone()
                    .filter(|href| !href.starts_with('#') && !href.starts_with("javascript:"));
                self.links.push((self.text.len(), href.unwrap_or_default()));
            }
            "a" => self.link(),
            "pre" => {
                self.line(2);
                self.exact = if tag.closes { self.exact.saturating_sub(1) } else { self.exact + 1 };
            }
            name if BLOCKS.contains(&name) => self.line(2),
            _ => {}
        }
    }

    /// Puts the address behind the text of the link that ends here.
    fn link(&mut self) {
        let Some((from, href)) = self.links.pop() else { return };
        let said = self.text.get(from..).map(str::trim).unwrap_or_default();
        if !href.is_empty() && !said.is_empty() && said != href {
            self.text.push_str(&format!(" ({href})"));
        }
    }

    /// At least this many line ends.
    fn line(&mut self, ends: usize) {
        self.gap = false;
        let kept = self.text.trim_end_matches(' ').len();
        self.text.truncate(kept);
        if self.text.is_empty() {
            return;
        }
        let there = self.text.bytes().rev().take(ends).take_while(|byte| *byte == b'\n').count();
        (there..ends).for_each(|_| self.text.push('\n'));
    }

    fn done(self) -> String {
        self.text.trim().to_owned()
    }
}

fn collapsed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<&'a str> {
    let start = find(text, from)? + from.len();
    // `<title lang="en">`
    let start = if from.starts_with('<') { start + text[start..].find('>')? + 1 } else { start };
    let end = find(&text[start..], to)?;
    Some(&text[start..start + end])
}

/// What follows the end of an element; nothing, if it has none.
fn after_end<'a>(text: &'a str, name: &str) -> &'a str {
    let Some(at) = find(text, &format!("</{name}")) else { return "" };
    text[at..].find('>').map_or("", |end| &text[at + end + 1..])
}

/// Without regard to case; both are found at ASCII.
fn find(text: &str, what: &str) -> Option<usize> {
    text.as_bytes().windows(what.len()).position(|window| window.eq_ignore_ascii_case(what.as_bytes()))
}

fn decoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.char_indices().take(12).find(|(_, c)| *c == ';').map(|(end, _)| end);
        match end.and_then(|end| entity(&rest[1..end]).map(|c| (c, end))) {
            Some((c, end)) => {
                out.push(c);
                rest = &rest[end + 1..];
            }
            None => {
                out.push('&');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

fn entity(name: &str) -> Option<char> {
    if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(hex) => u32::from_str_radix(hex, 16).ok()?,
            None => number.parse().ok()?,
        };
        return char::from_u32(code).filter(|c| !c.is_control() || c.is_whitespace());
    }
    Some(match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => ' ',
        "mdash" => '—',
        "ndash" => '–',
        "hellip" => '…',
        "lsquo" => '‘',
        "rsquo" => '’',
        "ldquo" => '“',
        "rdquo" => '”',
        "laquo" => '«',
        "raquo" => '»',
        "copy" => '©',
        "euro" => '€',
        "auml" => 'ä',
        "ouml" => 'ö',
        "uuml" => 'ü',
        "Auml" => 'Ä',
        "Ouml" => 'Ö',
        "Uuml" => 'Ü',
        "szlig" => 'ß',
        "eacute" => 'é',
        "middot" => '·',
        "bull" => '•',
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(page: &str, want: &str) {
        assert_eq!(readable(page).1, want, "{page}");
    }

    #[test]
    fn a_page_reads_as_it_is_seen() {
        check("<p>One\n two</p><p>three<br>four</p>", "One two\n\nthree\nfour");
        check("<h2>Head</h2>text <b>bold</b>er", "## Head\n\ntext bolder");
        check("<ul><li>a</li><li>b <a href=\"/x?a=1&amp;b=2\">c</a></li></ul>", "- a\n- b c (/x?a=1&b=2)");
        check("a &lt;b&gt; &#8364;&#x41; &unknown; & more", "a <b> €A &unknown; & more");
        check("x<script>if (a < b) { alert('</p>') }</script>y<style>p{}</style>z", "xyz");
        check("<!-- <p>hidden</p> -->seen", "seen");
        check("1 < 2 and 3 > 2", "1 < 2 and 3 > 2");
        check("<pre>  a\n    b</pre>", "a\n    b");
        check("<table><tr><td>a</td><td>b</td></tr></table>", "a | b |");
        check("broken <a href=\"x", "broken");
        check("<script>never ends", "");
    }

    #[test]
    fn a_page_that_is_made_to_be_slow_is_read_in_one_pass() {
        let most = 1_000_000;
        let begun = std::time::Instant::now();
        for page in [
            format!("{}>", "<".repeat(most)),
            "</".repeat(most),
            "<head></head>".repeat(most / 10),
            "<title>".repeat(most / 7),
            format!("<pre>{}{}", "\n".repeat(most), "<p>".repeat(most / 3)),
            "<a href=x>".repeat(most / 10),
            "&".repeat(most),
        ] {
            readable(&page);
        }
        // Seconds even without optimisation; minutes if any of them is read again and again.
        assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
    }

    #[test]
    fn the_title_is_found_and_the_head_is_not_read() {
        let page =
            "<!doctype html><html><head><TITLE> A &amp;\n B </TITLE><meta></head><body>text</body></html>";
        assert_eq!(readable(page), (Some("A & B".into()), "text".into()));
        assert_eq!(readable("text").0, None);
    }
}
