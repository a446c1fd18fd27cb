//! Splits a long text into parts of a platform's maximum length.
//!
//! Invariants: every part measures at most `max`; a part closes the code fence it opens, and the next part reopens it;
//! only white space at a cut is lost, until the maximum number of parts is reached: then the last part names the number of
//! missing characters. Every iteration consumes at least one character.
//!
//! `split` numbers the parts. For markup that is longer than its source (escapes), `split_measured` splits the source
//! and the caller renders each part.
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::Unit;
use super::fence::{self, Fence, FenceLine};

/// Reserved for " (999/999)".
const SUFFIX_WIDTH: usize = 10;
/// Parts narrower than this get neither a number nor a truncation note.
const NARROW: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub max: usize,
    pub unit: Unit,
    /// Maximum number of parts; the rest is cut with a note.
    pub parts: usize,
}

impl Limits {
    pub const fn new(max: usize, unit: Unit) -> Self {
        Self { max, unit, parts: 20 }
    }

    /// The widest fence line that is balanced across parts.
    const fn widest_fence(&self) -> usize {
        self.max / 4
    }

    /// Available length of a part before it is numbered.
    const fn room(&self) -> usize {
        if self.max < NARROW { self.max } else { self.max - SUFFIX_WIDTH }
    }
}

/// Numbered parts; a text that fits is returned unchanged.
pub fn split(text: &str, limits: &Limits) -> Vec<String> {
    let parts = split_plain(text, limits);
    if limits.max < NARROW { parts } else { number_parts(parts) }
}

/// Unnumbered parts, each with room for a number.
pub fn split_plain(text: &str, limits: &Limits) -> Vec<String> {
    pieces(text, limits).into_iter().map(|piece| piece.text()).collect()
}

/// Numbered parts that measure at most `max` after rendering. `measure` returns the rendered length of a source text,
/// at most four times its own.
pub fn split_measured(text: &str, limits: &Limits, measure: &dyn Fn(&str) -> usize) -> Vec<String> {
    if measure(text) <= limits.max {
        return vec![text.to_owned()];
    }
    let mut cut = *limits;
    loop {
        let parts = number_parts(split_plain(text, &cut));
        let longest = parts.iter().map(|part| measure(part)).max().unwrap_or_default();
        if longest <= limits.max || cut.max <= NARROW {
            return parts;
        }
        let scaled = cut.max * limits.max / longest;
        cut.max = scaled.min(cut.max - cut.max / 16 - 1).max(NARROW);
    }
}

/// Appends " (i/n)" to each of several parts.
pub fn number_parts(parts: Vec<String>) -> Vec<String> {
    let count = parts.len();
    if count < 2 {
        return parts;
    }
    let numbered = |(at, part): (usize, String)| {
        let mark = part_suffix(&part, at + 1, count);
        part + &mark
    };
    parts.into_iter().enumerate().map(numbered).collect()
}

/// The number of a part. Behind a closing fence it stands on its own line, since the fence would not close otherwise.
pub fn part_suffix(part: &str, number: usize, count: usize) -> String {
    let last = part.rsplit('\n').next().unwrap_or_default();
    let fenced =
        fence::marker(last).is_some_and(|(indent, mark)| last[indent + mark.len()..].trim().is_empty());
    let gap = if fenced { '\n' } else { ' ' };
    format!("{gap}({number}/{count})")
}

/// One part: a slice of the source with added fence lines.
#[derive(Debug)]
struct Piece<'a> {
    before: String,
    body: &'a str,
    behind: String,
}

impl Piece<'_> {
    fn text(&self) -> String {
        [&self.before, self.body, &self.behind].concat()
    }
}

fn pieces<'a>(text: &'a str, limits: &Limits) -> Vec<Piece<'a>> {
    let most = limits.parts.clamp(1, 999);
    let mut pieces = Vec::new();
    if limits.unit.len(text) <= limits.max {
        pieces.push(Piece { before: String::new(), body: text, behind: String::new() });
        return pieces;
    }
    let mut rest = text;
    let mut open: Option<Fence> = None;
    while !rest.is_empty() {
        let cutter = Cutter { limits, open: open.as_ref(), rest };
        let whole = cutter.piece(rest.len(), "");
        if limits.unit.len(&whole.text()) <= limits.room() {
            pieces.push(whole);
            break;
        }
        if pieces.len() + 1 == most {
            pieces.push(cutter.last());
            break;
        }
        let at = cutter.cut("");
        pieces.push(cutter.piece(at, ""));
        open = fence::after(open.clone(), &rest[..at], limits.widest_fence());
        (rest, open) = next_start(&rest[at..], open, limits.widest_fence());
    }
    pieces
}

/// The start of the next part. Between paragraphs white space is dropped; in code only the line break is, so that the
/// first line keeps its indent. A fence that closes here is already closed.
fn next_start(rest: &str, open: Option<Fence>, widest: usize) -> (&str, Option<Fence>) {
    if open.is_none() {
        return (rest.trim_start(), None);
    }
    let Some(code) = rest.strip_prefix('\n') else {
        return (rest, open);
    };
    let (first, below) = code.split_once('\n').unwrap_or((code, ""));
    match fence::classify(open.as_ref(), first, widest) {
        FenceLine::Closes => (below.trim_start(), None),
        FenceLine::Opens(_) | FenceLine::Plain => (code, open),
    }
}

/// Finds the end of one part.
struct Cutter<'a, 'b> {
    limits: &'b Limits,
    open: Option<&'b Fence>,
    rest: &'a str,
}

impl<'a> Cutter<'a, '_> {
    /// The part that ends at `at`, with balanced fences and `note` below.
    fn piece(&self, at: usize, note: &str) -> Piece<'a> {
        let widest = self.limits.widest_fence();
        let body = &self.rest[..at];
        let before = self.open.map(|fence| fence.reopening(widest)).unwrap_or_default();
        let mut behind =
            fence::after(self.open.cloned(), body, widest).map(|fence| fence.closing()).unwrap_or_default();
        behind.push_str(note);
        Piece { before, body, behind }
    }

    /// The last allowed part of a text that is too long.
    fn last(&self) -> Piece<'a> {
        let note = self.note(self.rest.len());
        let at = self.cut(&note);
        self.piece(at, &self.note(self.rest.len() - at))
    }

    fn note(&self, bytes: usize) -> String {
        if self.limits.max < 2 * NARROW {
            return "\n…".to_owned();
        }
        let missing = self.rest[self.rest.len() - bytes..].trim().chars().count();
        format!("\n\n[… {missing} more characters cut]")
    }

    /// The best cut for a part with `note`, at least one character from the start.
    fn cut(&self, note: &str) -> usize {
        let unit = self.limits.unit;
        let frame = self.open.map_or(0, |fence| unit.len(&fence.reopening(self.limits.widest_fence())))
            + "\n```".len()
            + unit.len(note);
        let mut room = match self.limits.room().saturating_sub(frame) {
            0 => (self.limits.max / 2).max(1),
            room => room,
        };
        loop {
            let at = self.cut_within(room);
            let over = unit.len(&self.piece(at, note).text()).saturating_sub(self.limits.room());
            if over == 0 || room == 1 {
                return at;
            }
            room = room.saturating_sub(over).max(1);
        }
    }

    fn cut_within(&self, room: usize) -> usize {
        let window = self.limits.unit.prefix(self.rest, room);
        let window = if window.is_empty() { first_char(self.rest) } else { window };
        let at = self.outside_inline_code(break_point(window), window);
        self.outside_fence_lines(at)
    }

    /// Moves a cut out of a `code span`, unless the part would become too short.
    fn outside_inline_code(&self, at: usize, window: &str) -> usize {
        let piece = &self.rest[..at];
        if fence::after(self.open.cloned(), piece, self.limits.widest_fence()).is_some() {
            return at;
        }
        let ticks: Vec<usize> = piece
            .match_indices('`')
            .map(|(found, _)| found)
            .filter(|found| !piece[..*found].ends_with('\\'))
            .collect();
        let Some(last) = ticks.last().filter(|_| ticks.len() % 2 == 1) else {
            return at;
        };
        match piece[..*last].rfind([' ', '\n']) {
            Some(earlier) if earlier > window.len() / 4 => earlier,
            Some(_) | None => at,
        }
    }

    /// Keeps a fence line whole and an opening fence together with its code.
    fn outside_fence_lines(&self, at: usize) -> usize {
        let widest = self.limits.widest_fence();
        let start = self.rest[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let line = self.rest[start..].split('\n').next().unwrap_or_default();
        let inside = at < start + line.len();
        let above = start.saturating_sub(1);
        let state = if start == 0 {
            self.open.cloned()
        } else {
            fence::after(self.open.cloned(), &self.rest[..above], widest)
        };
        let wants_line_start = match fence::classify(state.as_ref(), line, widest) {
            FenceLine::Opens(_) => true,
            FenceLine::Closes => inside,
            FenceLine::Plain => false,
        };
        if !wants_line_start {
            return at;
        }
        if !self.rest[..above].trim().is_empty() {
            return above;
        }
        // No text above: keep at least the marker in one piece.
        let marker = fence::marker(line).map_or(0, |(indent, marker)| indent + marker.len());
        at.max(start + marker)
    }
}

/// The last line break of the window, its last space, or its end.
fn break_point(window: &str) -> usize {
    let has_text = |at: &usize| !window[..*at].trim().is_empty();
    let newline = window.rfind('\n').filter(has_text).filter(|at| *at >= window.len() / 2);
    newline.or_else(|| window.rfind(' ').filter(has_text)).unwrap_or(window.len())
}

fn first_char(text: &str) -> &str {
    &text[..text.chars().next().map_or(0, char::len_utf8)]
}

#[cfg(test)]
#[path = "split_tests.rs"]
mod tests;
