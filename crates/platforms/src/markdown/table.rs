//! Tables for platforms without them: each row becomes a bold heading and a list.

use std::borrow::Cow;

use super::fence::Fence;

/// Titles are repeated in every row, so long ones are truncated.
const MAX_TITLE: usize = 80;

/// Replaces tables by headings and bullets, except within fences.
pub fn without_tables(text: &str) -> Cow<'_, str> {
    if !text.contains('|') {
        return Cow::Borrowed(text);
    }
    let lines: Vec<&str> = text.split('\n').collect();
    let mut out: Vec<String> = Vec::new();
    let mut fence: Option<Fence<'_>> = None;
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        at += 1;
        let table = if fence.is_none() { convert_table(line, &lines[at..]) } else { None };
        if let Some((rows, taken)) = table {
            out.push(rows);
            at += taken;
            continue;
        }
        fence = match fence {
            Some(fence) if fence.closed_by(line) => None,
            Some(fence) => Some(fence),
            None => Fence::opened_by(line),
        };
        out.push((*line).to_owned());
    }
    Cow::Owned(out.join("\n"))
}

/// The converted table that `head` begins, and the number of its lines below.
fn convert_table(head: &str, below: &[&str]) -> Option<(String, usize)> {
    let ruler = below.first()?;
    let titles = cells(head);
    if !head.contains('|') || !is_ruler(ruler) || cells(ruler).len() != titles.len() {
        return None;
    }
    let rows: Vec<&str> = below[1..].iter().copied().take_while(|line| line.contains('|')).collect();
    if rows.is_empty() {
        return None;
    }
    let shown: Vec<String> = rows.iter().map(|line| row(&titles, &cells(line))).collect();
    Some((shown.join("\n\n"), rows.len() + 1))
}

fn row(titles: &[String], cells: &[String]) -> String {
    let shown = |cell: &&String| !cell.is_empty();
    let heading = cells.first().filter(shown).map(|cell| format!("**{}**", cell.replace("**", "")));
    let bullets = cells.iter().enumerate().skip(1).filter(|(_, cell)| shown(cell));
    let bullets = bullets.map(|(at, cell)| bullet(titles.get(at).map_or("", String::as_str), cell));
    heading.into_iter().chain(bullets).collect::<Vec<_>>().join("\n")
}

fn bullet(title: &str, cell: &str) -> String {
    match title.char_indices().nth(MAX_TITLE) {
        Some((end, _)) => format!("• {}…: {cell}", &title[..end]),
        None if title.is_empty() => format!("• {cell}"),
        None => format!("• {title}: {cell}"),
    }
}

/// `|---|:--:|`
pub fn is_ruler(line: &str) -> bool {
    let dashes = |cell: &String| {
        let cell = cell.strip_prefix(':').unwrap_or(cell);
        let cell = cell.strip_suffix(':').unwrap_or(cell);
        !cell.is_empty() && cell.chars().all(|c| c == '-')
    };
    line.contains('|') && cells(line).iter().all(dashes)
}

/// The cells between the bars; `\|` is a bar within a cell.
pub fn cells(line: &str) -> Vec<String> {
    let line = line.trim();
    let line = line.strip_prefix('|').unwrap_or(line);
    let line = line.strip_suffix('|').filter(|it| !it.ends_with('\\')).unwrap_or(line);
    let mut cells = vec![String::new()];
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.peek() == Some(&'|') => {
                chars.next();
                cells.last_mut().into_iter().for_each(|cell| cell.push('|'));
            }
            '|' => cells.push(String::new()),
            c => cells.last_mut().into_iter().for_each(|cell| cell.push(c)),
        }
    }
    cells.into_iter().map(|cell| cell.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_rows_to_headings_and_bullets() {
        for (source, want) in [
            ("| A | B |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\nafter", "**1**\n• B: 2\n\n**3**\n• B: 4\nafter"),
            ("A | B\n:-- | --:\n**x** | a \\| b", "**x**\n• B: a | b"),
            ("| A | B |\n|---|---|\n|  | 2 |", "• B: 2"),
            ("| A | B |\n|---|---|\n| 1 |  |", "**1**"),
            ("| A | B |\n|---|---|\n| 1 | 2 | 3 |", "**1**\n• B: 2\n• 3"),
        ] {
            assert_eq!(without_tables(source), want, "{source:?}");
        }
    }

    #[test]
    fn keeps_text_that_is_not_a_table() {
        for source in [
            "a | b",
            "| A | B |\n|---|---|",
            "```\n| A | B |\n|---|---|\n| 1 | 2 |\n```",
            "| A |\n|---|---|\n| 1 | 2 |",
            "a || b\nc",
        ] {
            assert_eq!(without_tables(source), source);
        }
    }

    #[test]
    fn truncates_long_titles() {
        let source = format!("|A|{}|\n|-|-|\n|1|2|", "t".repeat(500));
        assert!(without_tables(&source).len() < 100);
    }
}
