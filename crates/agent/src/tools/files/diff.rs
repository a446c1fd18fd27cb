//! Unified diffs: parsing, applying and formatting. Pure.

/// The changes of one file; `None` stands for `/dev/null`.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::tools) struct FileEdit {
    pub(in crate::tools) from: Option<String>,
    pub(in crate::tools) to: Option<String>,
    pub(in crate::tools) hunks: Vec<Hunk>,
}

#[derive(Debug, PartialEq, Eq)]
pub(in crate::tools) struct Hunk {
    /// Start line according to the hunk header, from 1.
    line: usize,
    old: Vec<String>,
    new: Vec<String>,
    /// The last new line has no newline character.
    open: bool,
}

const CONTEXT: usize = 3;

pub(in crate::tools) fn parse(patch: &str) -> Result<Vec<FileEdit>, String> {
    let mut edits: Vec<FileEdit> = Vec::new();
    let all: Vec<&str> = patch.lines().collect();
    let mut rest = all.as_slice();
    while let Some((line, remaining)) = rest.split_first() {
        rest = remaining;
        if let Some(from) = line.strip_prefix("--- ") {
            let to = rest.first().and_then(|line| line.strip_prefix("+++ "));
            let to = to.ok_or("A line with --- must be followed by a line with +++.")?;
            edits.push(FileEdit { from: name(from), to: name(to), hunks: Vec::new() });
            rest = &rest[1..];
            continue;
        }
        let Some(head) = line.strip_prefix("@@") else { continue };
        let edit =
            edits.last_mut().ok_or("The patch begins with @@: name the file with --- and +++ first.")?;
        let mut hunk = Hunk { line: starts_at(head), old: vec![], new: vec![], open: false };
        while let Some((line, remaining)) = rest.split_first()
            && !line.starts_with("@@")
            && !begins_file(rest, head, &hunk)
        {
            push_line(&mut hunk, line)?;
            rest = remaining;
        }
        if hunk.old.is_empty() && hunk.new.is_empty() {
            return Err("A part of the patch is empty.".to_owned());
        }
        edit.hunks.push(hunk);
    }
    if edits.is_empty() || edits.iter().any(|edit| edit.hunks.is_empty()) {
        return Err("This is not a unified diff: it needs ---, +++ and at least one @@ per file.".to_owned());
    }
    Ok(edits)
}

/// Whether these lines begin the next file. A removed line may begin with `-- ` and an added one with `++ `;
/// then the line counts of the hunk header decide. They are checked last, because models miscount.
fn begins_file(rest: &[&str], head: &str, hunk: &Hunk) -> bool {
    let [from, to, then @ ..] = rest else { return false };
    let starts_hunk =
        then.iter().find(|line| !line.trim().is_empty()).is_some_and(|line| line.starts_with("@@"));
    let is_header = from.starts_with("--- ") && to.starts_with("+++ ") && starts_hunk;
    let missing = |mark: char, have: usize| length(head, mark).is_some_and(|length| length == have + 1);
    is_header && !(missing('-', hunk.old.len()) && missing('+', hunk.new.len()))
}

fn push_line(hunk: &mut Hunk, line: &str) -> Result<(), String> {
    match line.chars().next() {
        Some('-') => hunk.old.push(line[1..].to_owned()),
        Some('+') => hunk.new.push(line[1..].to_owned()),
        Some(' ') => push_context(hunk, &line[1..]),
        // An empty context line lost its leading blank.
        None => push_context(hunk, ""),
        Some('\\') => hunk.open = true,
        // Git metadata between two files.
        Some(_) if ["diff ", "index ", "new file", "deleted file"].iter().any(|it| line.starts_with(it)) => {}
        Some(_) => {
            return Err(format!("A line of the patch begins neither with a blank nor with + or -: {line:?}"));
        }
    }
    Ok(())
}

fn push_context(hunk: &mut Hunk, line: &str) {
    hunk.old.push(line.to_owned());
    hunk.new.push(line.to_owned());
}

/// `a/src/x.rs\t2026-01-01` becomes `src/x.rs`.
fn name(text: &str) -> Option<String> {
    let path = text.split('\t').next().unwrap_or_default().trim();
    let path = path.strip_prefix("a/").or_else(|| path.strip_prefix("b/")).unwrap_or(path);
    (path != "/dev/null").then(|| path.to_owned())
}

/// Start and length after `mark` in a hunk header such as ` -3,2 +3,4 @@`.
fn range(head: &str, mark: char) -> Option<(&str, &str)> {
    let range = head.split_whitespace().find_map(|word| word.strip_prefix(mark))?;
    Some(range.split_once(',').unwrap_or((range, "1")))
}

fn starts_at(head: &str) -> usize {
    range(head, '-').and_then(|(line, _)| line.parse().ok()).unwrap_or(1)
}

fn length(head: &str, mark: char) -> Option<usize> {
    range(head, mark)?.1.parse().ok()
}

/// Applies all hunks or none.
pub(in crate::tools) fn apply(text: &str, hunks: &[Hunk]) -> Result<String, String> {
    let crlf = text.contains("\r\n");
    let ended = text.is_empty() || text.ends_with('\n');
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut moved = 0isize;
    let mut from = 0usize;
    let mut open = !ended;
    for (number, hunk) in hunks.iter().enumerate() {
        let wanted = hunk.line.saturating_sub(1).saturating_add_signed(moved);
        let at = locate(&lines, &hunk.old, wanted, from).ok_or_else(|| {
            format!("Part {} of the patch (line {}) does not match the file.", number + 1, hunk.line)
        })?;
        let end = at + hunk.old.len();
        if end == lines.len() {
            open = hunk.open;
        }
        lines.splice(at..end, hunk.new.iter().cloned());
        from = at + hunk.new.len();
        moved += isize::try_from(hunk.new.len()).unwrap_or(0) - isize::try_from(hunk.old.len()).unwrap_or(0);
    }
    let end = if crlf { "\r\n" } else { "\n" };
    let mut text = lines.join(end);
    if !open && !lines.is_empty() {
        text.push_str(end);
    }
    Ok(text)
}

/// Position of these lines: the stated one, else the only other match.
fn locate(lines: &[String], old: &[String], wanted: usize, from: usize) -> Option<usize> {
    let fits = |at: usize| at >= from && lines.get(at..).is_some_and(|there| there.starts_with(old));
    if fits(wanted) {
        return Some(wanted);
    }
    if old.is_empty() {
        return (wanted >= from).then_some(wanted.min(lines.len()));
    }
    let mut found = (from..lines.len()).filter(|at| fits(*at));
    let only = found.next()?;
    found.next().is_none().then_some(only)
}

pub(in crate::tools) fn format_diff(path: &str, before: Option<&str>, after: Option<&str>) -> String {
    let old: Vec<_> = before.unwrap_or_default().lines().collect();
    let new: Vec<_> = after.unwrap_or_default().lines().collect();
    let same = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let rest = old.len().min(new.len()) - same;
    let tail = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let start = same.saturating_sub(CONTEXT);
    let old_end = old.len() - tail;
    let new_end = new.len() - tail;
    let after_end = (old_end + CONTEXT).min(old.len());
    let from = before.map_or("/dev/null".to_owned(), |_| format!("a/{path}"));
    let to = after.map_or("/dev/null".to_owned(), |_| format!("b/{path}"));
    let trailing = after_end - old_end;
    let mut text = format!(
        "--- {from}\n+++ {to}\n@@ -{},{} +{},{} @@\n",
        start + 1,
        after_end - start,
        start + 1,
        new_end + trailing - start
    );
    let mut push = |mark: char, lines: &[&str]| {
        for line in lines {
            text.push(mark);
            text.push_str(line);
            text.push('\n');
        }
    };
    push(' ', &old[start..same]);
    push('-', &old[same..old_end]);
    push('+', &new[same..new_end]);
    push(' ', &old[old_end..after_end]);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, patch: &str, want: Result<&str, &str>) {
        let done =
            parse(&format!("--- a/x\n+++ b/x\n{patch}")).and_then(|edits| apply(text, &edits[0].hunks));
        match (done, want) {
            (Ok(done), Ok(want)) => assert_eq!(done, want),
            (Err(why), Err(want)) => assert!(why.contains(want), "{why}"),
            (done, _) => panic!("{done:?}"),
        }
    }

    #[test]
    fn applies_hunks_where_their_lines_match() {
        check("a\nb\nc\n", "@@ -2 +2 @@\n-b\n+B\n", Ok("a\nB\nc\n"));
        check("a\nb\nc\n", "@@ -1,3 +1,4 @@\n a\n b\n+x\n c\n", Ok("a\nb\nx\nc\n"));
        // The stated position is wrong, but only one other matches.
        check("0\n0\na\nb\n", "@@ -1 +1 @@\n-b\n+B\n", Ok("0\n0\na\nB\n"));
        check("b\nx\nb\n", "@@ -9 +9 @@\n-b\n+B\n", Err("does not match"));
        check("a\n", "@@ -1 +1 @@\n-b\n+B\n", Err("Part 1"));
        check("", "@@ -0,0 +1,2 @@\n+a\n+b\n", Ok("a\nb\n"));
        check("a\nb\nc\nd\n", "@@ -1 +1,2 @@\n-a\n+A\n+A\n@@ -4 +5 @@\n-d\n+D\n", Ok("A\nA\nb\nc\nD\n"));
        check("a\r\nb\r\n", "@@ -1 +1 @@\n-a\n+A\n", Ok("A\r\nb\r\n"));
        check("a\nb", "@@ -1 +1 @@\n-a\n+A\n", Ok("A\nb"));
        check("a\nb", "@@ -2 +2 @@\n-b\n+B\n\\ No newline at end of file\n", Ok("a\nB"));
        check("a\n\nb\n", "@@ -1,3 +1,3 @@\n a\n\n-b\n+B\n", Ok("a\n\nB\n"));
        check("a\n", "@@ -1 +1 @@\n*nonsense\n", Err("begins neither"));
        check("a\n", "", Err("not a unified diff"));
        check("a\n", "@@ -18446744073709551615 +1 @@\n-a\n+b\n", Ok("b\n"));
        check("a\n", "@@ -99999999999999999999 +1 @@\n-a\n+b\n", Ok("b\n"));
    }

    #[test]
    fn hunk_lines_may_look_like_file_headers() {
        // Comments in SQL and Lua look like this.
        check("-- old\nx\n", "@@ -1,2 +1,2 @@\n--- old\n+-- new\n x\n", Ok("-- new\nx\n"));
        check("a\n-- b\n", "@@ -1,2 +1 @@\n a\n--- b\n", Ok("a\n"));
        check("-- a\nx\n", "@@ -1,2 +1,2 @@\n--- a\n+++ b\n x\n", Ok("++ b\nx\n"));
        let twice = "@@ -1 +1 @@\n--- a\n+++ b\n@@ -3 +3 @@\n-c\n+C\n";
        check("-- a\nx\nc\n", twice, Ok("++ b\nx\nC\n"));
        // A miscounted hunk header does not hide the next file.
        for head in ["@@ -1,9 +1,9 @@", "@@ -1 +1 @@", "@@"] {
            let edits =
                parse(&format!("--- a/x\n+++ b/x\n{head}\n-a\n+b\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n-c\n+d\n"));
            let names: Vec<_> = edits.unwrap().into_iter().map(|edit| edit.to.unwrap()).collect();
            assert_eq!(names, ["x", "y"], "{head}");
        }
    }

    #[test]
    fn shown_difference_can_be_applied() {
        let before = "1\n2\n3\n4\n5\n6\n7\n8\n";
        let after = "1\n2\n3\n4\nfive\n6\n7\n8\n";
        let shown = format_diff("x", Some(before), Some(after));
        assert_eq!(shown, "--- a/x\n+++ b/x\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n");
        let edits = parse(&shown).unwrap();
        assert_eq!(apply(before, &edits[0].hunks).unwrap(), after);
        assert!(format_diff("x", None, Some("a\n")).starts_with("--- /dev/null\n+++ b/x\n"));
    }
}
