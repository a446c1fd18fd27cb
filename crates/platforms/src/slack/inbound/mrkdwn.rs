//! Reads mrkdwn: `<…>` for links and mentions, and three escapes. Pure.

/// The text as its author saw it. User mentions stay `<@U…>`, so that the model can repeat them.
pub(super) fn to_plain_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        push_unescaped(&rest[..at], &mut out);
        let Some(end) = rest[at..].find('>') else {
            push_unescaped(&rest[at..], &mut out);
            return out;
        };
        push_entity(&rest[at + 1..at + end], &mut out);
        rest = &rest[at + end + 1..];
    }
    push_unescaped(rest, &mut out);
    out
}

pub(super) fn mentions(text: &str, user: &str) -> bool {
    mention_ranges(text, user).next().is_some()
}

pub(super) fn strip_mentions(text: &str, user: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for (start, end) in mention_ranges(text, user) {
        out.push_str(text[at..start].trim_end_matches(' '));
        if !out.is_empty() && !out.ends_with('\n') {
            out.push(' ');
        }
        at = end + text[end..].len() - text[end..].trim_start_matches(' ').len();
    }
    out.push_str(&text[at..]);
    out.trim().to_owned()
}

fn mention_ranges<'a>(text: &'a str, user: &'a str) -> impl Iterator<Item = (usize, usize)> + 'a {
    let starts = text.match_indices("<@").filter(move |_| !user.is_empty());
    starts.filter_map(move |(start, _)| {
        let inner = &text[start + 2..];
        let end = inner.find('>')?;
        let named = inner[..end].split('|').next() == Some(user);
        named.then_some((start, start + 2 + end + 1))
    })
}

fn push_entity(inner: &str, out: &mut String) {
    let (target, label) = inner.split_once('|').unwrap_or((inner, ""));
    match target.chars().next() {
        Some('@') if label.is_empty() => {
            out.push('<');
            out.push_str(target);
            out.push('>');
        }
        Some('@') => push_name('@', label, out),
        Some('#') if label.is_empty() => out.push_str(target),
        Some('#') => push_name('#', label, out),
        // <!here>, <!subteam^S1|@team>, <!date^…|fallback>
        Some('!') if label.is_empty() => {
            push_name('@', target[1..].split('^').next().unwrap_or_default(), out)
        }
        Some('!') => push_unescaped(label, out),
        Some(_) | None => push_link(target, label, out),
    }
}

fn push_name(mark: char, name: &str, out: &mut String) {
    out.push(mark);
    push_unescaped(name.trim_start_matches(mark), out);
}

fn push_link(target: &str, label: &str, out: &mut String) {
    let bare = target.strip_prefix("mailto:").or_else(|| target.strip_prefix("tel:")).unwrap_or(target);
    let shown = |label: &str| target.ends_with(label) || target.trim_end_matches('/').ends_with(label);
    if label.is_empty() || shown(label) {
        return push_unescaped(bare, out);
    }
    push_unescaped(label, out);
    out.push_str(" (");
    push_unescaped(target, out);
    out.push(')');
}

fn push_unescaped(text: &str, out: &mut String) {
    out.push_str(&text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_links_mentions_and_escapes() {
        for (text, want) in [
            ("a &lt;b&gt; &amp;amp; c", "a <b> &amp; c"),
            ("<https://e.org/x?a=1&amp;b=2>", "https://e.org/x?a=1&b=2"),
            ("<https://e.org|the docs>", "the docs (https://e.org)"),
            ("<http://e.org|e.org>", "http://e.org"),
            ("<mailto:a@e.org|a@e.org>", "a@e.org"),
            ("<@U2> and <@U3|bob>", "<@U2> and @bob"),
            ("<#C1|general> <#C2>", "#general #C2"),
            ("<!here> <!subteam^S1|@crew> <!channel>", "@here @crew @channel"),
            ("a < b", "a < b"),
            ("<", "<"),
            ("<>", ""),
            ("ü<@Ü>ü", "ü<@Ü>ü"),
        ] {
            assert_eq!(to_plain_text(text), want, "{text:?}");
        }
    }

    #[test]
    fn finds_and_strips_mentions_of_a_user() {
        for (text, mentioned, want) in [
            ("<@U1> hello", true, "hello"),
            ("hello <@U1>", true, "hello"),
            ("ask <@U1> now", true, "ask now"),
            ("<@U1|petasos> hello", true, "hello"),
            ("<@U1>\n/stop", true, "/stop"),
            ("<@U1> <@U1>", true, ""),
            ("<@U12> hello", false, "<@U12> hello"),
            ("&lt;@U1&gt; hello", false, "&lt;@U1&gt; hello"),
            ("<@U1", false, "<@U1"),
        ] {
            assert_eq!(
                (mentions(text, "U1"), strip_mentions(text, "U1").as_str()),
                (mentioned, want),
                "{text:?}"
            );
        }
        assert!(!mentions("<@>", ""));
    }
}
