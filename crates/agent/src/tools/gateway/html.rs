//! Converts an HTML page to text with its links. Pure, one pass, tolerates any markup.

const HIDDEN: [&str; 8] = ["script", "style", "noscript", "template", "svg", "head", "iframe", "object"];
/// Elements that begin on a new line.
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

/// Returns the title and the text.
pub fn html_to_text(page: &str) -> (Option<String>, String) {
    let mut out = TextBuilder::default();
    // The title is searched once: a page may consist of opening title tags.
    let mut title = None;
    let mut searched = false;
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        out.push_text(&rest[..at]);
        rest = &rest[at..];
        if let Some(comment) = rest.strip_prefix("<!--") {
            rest = comment.find("-->").map_or("", |end| &comment[end + 3..]);
            continue;
        }
        // `a < b` is no tag. Checked before `>` is searched, which would be slow on a page of `<` alone.
        if !begins_tag(&rest[1..]) {
            out.push_text("<");
            rest = &rest[1..];
            continue;
        }
        let Some(end) = rest.find('>') else {
            rest = "";
            break;
        };
        let tag = Tag::of(&rest[1..end]);
        rest = &rest[end + 1..];
        if tag.name == "title" && !tag.closes && !searched {
            searched = true;
            title = rest.find("</").map(|end| collapse(&decode(&rest[..end])));
        }
        if HIDDEN.contains(&tag.name.as_str()) && !tag.closes && !tag.alone {
            if tag.name == "head" && !searched {
                searched = true;
                title = between(rest, "<title", "</title").map(|found| collapse(&decode(found)));
            }
            rest = after_end(rest, &tag.name);
            continue;
        }
        out.push_tag(&tag);
    }
    out.push_text(rest);
    (title.filter(|title| !title.is_empty()), out.finish())
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
        Self { name: name.to_ascii_lowercase(), closes, alone: inner.ends_with('/'), href: href.map(decode) }
    }
}

#[derive(Default)]
struct TextBuilder {
    text: String,
    /// A space is pending before the next word.
    pending_space: bool,
    /// Inside `<pre>`, white space is kept.
    pre_depth: usize,
    links: Vec<(usize, String)>,
}

impl TextBuilder {
    fn push_text(&mut self, raw: &str) {
        let decoded = decode(raw);
        if self.pre_depth > 0 {
            self.text.push_str(&decoded);
            return;
        }
        for (at, word) in decoded.split(|c: char| c.is_whitespace() || c == '\u{a0}').enumerate() {
            self.pending_space |= at > 0;
            if word.is_empty() {
                continue;
            }
            if self.pending_space && !self.text.is_empty() && !self.text.ends_with(['\n', ' ']) {
                self.text.push(' ');
            }
            self.pending_space = false;
            self.text.push_str(word);
        }
    }

    fn push_tag(&mut self, tag: &Tag) {
        let name = tag.name.as_str();
        match name {
            "br" => self.break_line(1),
            "li" if !tag.closes => {
                self.break_line(1);
                self.text.push_str("- ");
            }
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.break_line(2);
                if !tag.closes {
                    let level = usize::from(name.as_bytes()[1] - b'0');
                    self.text.push_str(&"#".repeat(level));
                    self.text.push(' ');
                }
            }
            "td" | "th" if tag.closes => self.push_text(" | "),
            "a" if !tag.closes => {
                // A pending space counts as part of the link text, which is trimmed.
                let href = tag
                    .href
                    .clone()
                    .filter(|href| !href.starts_with('#') && !href.starts_with("javascript:"));
                self.links.push((self.text.len(), href.unwrap_or_default()));
            }
            "a" => self.close_link(),
            "pre" => {
                self.break_line(2);
                self.pre_depth =
                    if tag.closes { self.pre_depth.saturating_sub(1) } else { self.pre_depth + 1 };
            }
            name if BLOCKS.contains(&name) => self.break_line(2),
            _ => {}
        }
    }

    /// Appends the address to the text of the link that ends here.
    fn close_link(&mut self) {
        let Some((from, href)) = self.links.pop() else { return };
        let text = self.text.get(from..).map(str::trim).unwrap_or_default();
        if !href.is_empty() && !text.is_empty() && text != href {
            self.text.push_str(&format!(" ({href})"));
        }
    }

    /// Ensures at least this many newlines.
    fn break_line(&mut self, ends: usize) {
        self.pending_space = false;
        let kept = self.text.trim_end_matches(' ').len();
        self.text.truncate(kept);
        if self.text.is_empty() {
            return;
        }
        let there = self.text.bytes().rev().take(ends).take_while(|byte| *byte == b'\n').count();
        (there..ends).for_each(|_| self.text.push('\n'));
    }

    fn finish(self) -> String {
        self.text.trim().to_owned()
    }
}

fn collapse(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<&'a str> {
    let start = find(text, from)? + from.len();
    // `<title lang="en">`
    let start = if from.starts_with('<') { start + text[start..].find('>')? + 1 } else { start };
    let end = find(&text[start..], to)?;
    Some(&text[start..start + end])
}

/// The text after the end of an element; empty if the element does not end.
fn after_end<'a>(text: &'a str, name: &str) -> &'a str {
    let Some(at) = find(text, &format!("</{name}")) else { return "" };
    text[at..].find('>').map_or("", |end| &text[at + end + 1..])
}

/// Ignores case; all patterns are ASCII.
fn find(text: &str, what: &str) -> Option<usize> {
    text.as_bytes().windows(what.len()).position(|window| window.eq_ignore_ascii_case(what.as_bytes()))
}

fn decode(text: &str) -> String {
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
    use petasos_runtime::clock;

    #[track_caller]
    fn check(page: &str, want: &str) {
        assert_eq!(html_to_text(page).1, want, "{page}");
    }

    #[test]
    fn converts_page_to_visible_text() {
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
    fn reads_pathological_pages_in_one_pass() {
        let most = 1_000_000;
        let begun = clock::monotonic();
        for page in [
            format!("{}>", "<".repeat(most)),
            "</".repeat(most),
            "<head></head>".repeat(most / 10),
            "<title>".repeat(most / 7),
            format!("<pre>{}{}", "\n".repeat(most), "<p>".repeat(most / 3)),
            "<a href=x>".repeat(most / 10),
            "&".repeat(most),
        ] {
            html_to_text(&page);
        }
        // One pass takes seconds even without optimisation; quadratic time would take minutes.
        assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
    }

    #[test]
    fn extracts_title_and_skips_head() {
        let page =
            "<!doctype html><html><head><TITLE> A &amp;\n B </TITLE><meta></head><body>text</body></html>";
        assert_eq!(html_to_text(page), (Some("A & B".into()), "text".into()));
        assert_eq!(html_to_text("text").0, None);
    }
}
