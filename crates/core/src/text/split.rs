//! Cutting a long text into parts a platform takes.
//!
//! Invariants: every part measures at most `max`; a part that opens a code fence closes it, and the next
//! one opens it again; nothing but white space at a cut is lost, until the number of parts reaches its
//! cap: then the last part says how much is missing. Every round consumes at least one character.
//!
//! `split` numbers the parts. A platform whose markup is longer than its source (escapes) cuts the
//! source with `split_measured`, then renders each part: the number is ordinary text by then.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::Unit;
use super::fence::{self, Fence, Line};

/// Room kept for " (999/999)".
const INDICATOR: usize = 10;
/// Below this there is no room to spend on numbers or on a sentence about what was cut.
const NARROW: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest part, in `unit`s.
    pub max: usize,
    pub unit: Unit,
    /// Most parts; what does not fit into them is cut with a note.
    pub parts: usize,
}

impl Limits {
    pub const fn new(max: usize, unit: Unit) -> Self {
        Self { max, unit, parts: 20 }
    }

    /// Widest fence line that still leaves a part room for code between two of them.
    const fn widest_fence(&self) -> usize {
        self.max / 4
    }

    /// What a part may measure before it is numbered.
    const fn room(&self) -> usize {
        if self.max < NARROW { self.max } else { self.max - INDICATOR }
    }
}

/// The text as numbered parts; a text that fits is returned as it is.
pub fn split(text: &str, limits: &Limits) -> Vec<String> {
    let parts = split_plain(text, limits);
    if limits.max < NARROW { parts } else { number(parts) }
}

/// The parts without numbers, each with room left for one.
pub fn split_plain(text: &str, limits: &Limits) -> Vec<String> {
    pieces(text, limits).into_iter().map(|piece| piece.text()).collect()
}

/// Numbered parts whose measure *after rendering* is at most `max`. `measure` tells how long a part of the
/// source becomes; rendering must not more than quadruple it.
pub fn split_measured(text: &str, limits: &Limits, measure: &dyn Fn(&str) -> usize) -> Vec<String> {
    if measure(text) <= limits.max {
        return vec![text.to_owned()];
    }
    let mut cut = *limits;
    loop {
        let parts = number(split_plain(text, &cut));
        let longest = parts.iter().map(|part| measure(part)).max().unwrap_or_default();
        if longest <= limits.max || cut.max <= NARROW {
            return parts;
        }
        let scaled = cut.max * limits.max / longest;
        cut.max = scaled.min(cut.max - cut.max / 16 - 1).max(NARROW);
    }
}

/// Appends " (i/n)" to each of several parts.
pub fn number(parts: Vec<String>) -> Vec<String> {
    let count = parts.len();
    if count < 2 {
        return parts;
    }
    let numbered = |(at, part): (usize, String)| {
        let mark = indicator(&part, at + 1, count);
        part + &mark
    };
    parts.into_iter().enumerate().map(numbered).collect()
}

/// What to append to `part` to number it. Behind a closing fence it takes a line of its own, or the fence
/// would not close.
pub fn indicator(part: &str, number: usize, count: usize) -> String {
    let last = part.rsplit('\n').next().unwrap_or_default();
    let fenced =
        fence::marker(last).is_some_and(|(indent, mark)| last[indent + mark.len()..].trim().is_empty());
    let gap = if fenced { '\n' } else { ' ' };
    format!("{gap}({number}/{count})")
}

/// One part: a piece of the source between what had to be added around it.
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
        (rest, open) = resume(&rest[at..], open, limits.widest_fence());
    }
    pieces
}

/// Where the next part starts. Between paragraphs white space goes; inside code only the line break does,
/// so the first line keeps its indent. A fence that closes right here has been closed already.
fn resume(rest: &str, open: Option<Fence>, widest: usize) -> (&str, Option<Fence>) {
    if open.is_none() {
        return (rest.trim_start(), None);
    }
    let Some(code) = rest.strip_prefix('\n') else {
        return (rest, open);
    };
    let (first, below) = code.split_once('\n').unwrap_or((code, ""));
    match fence::line(open.as_ref(), first, widest) {
        Line::Closes => (below.trim_start(), None),
        Line::Opens(_) | Line::Plain => (code, open),
    }
}

/// Finds the end of one part.
struct Cutter<'a, 'b> {
    limits: &'b Limits,
    open: Option<&'b Fence>,
    rest: &'a str,
}

impl<'a> Cutter<'a, '_> {
    /// The part that ends at `at`, with its fences balanced and `note` below them.
    fn piece(&self, at: usize, note: &str) -> Piece<'a> {
        let widest = self.limits.widest_fence();
        let body = &self.rest[..at];
        let before = self.open.map(|fence| fence.reopening(widest)).unwrap_or_default();
        let mut behind =
            fence::after(self.open.cloned(), body, widest).map(|fence| fence.closing()).unwrap_or_default();
        behind.push_str(note);
        Piece { before, body, behind }
    }

    /// The part that takes what it can of a text we must give up on.
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

    /// The best place to cut so that the part, with `note`, fits. At least one character from the start.
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
        self.off_fence_lines(at)
    }

    /// Moves a cut out of a `code span`, unless that would leave too little.
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

    /// Keeps a fence line whole, and an opening one together with its code.
    fn off_fence_lines(&self, at: usize) -> usize {
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
        let wants_line_start = match fence::line(state.as_ref(), line, widest) {
            Line::Opens(_) => true,
            Line::Closes => inside,
            Line::Plain => false,
        };
        if !wants_line_start {
            return at;
        }
        if !self.rest[..above].trim().is_empty() {
            return above;
        }
        // Nothing stands above: at least the marker must stay in one piece.
        let marker = fence::marker(line).map_or(0, |(indent, marker)| indent + marker.len());
        at.max(start + marker)
    }
}

/// The last line break of the window, or its last space, or its end.
fn break_point(window: &str) -> usize {
    let told = |at: &usize| !window[..*at].trim().is_empty();
    let newline = window.rfind('\n').filter(told).filter(|at| *at >= window.len() / 2);
    newline.or_else(|| window.rfind(' ').filter(told)).unwrap_or(window.len())
}

fn first_char(text: &str) -> &str {
    &text[..text.chars().next().map_or(0, char::len_utf8)]
}

#[cfg(test)]
#[path = "split_tests.rs"]
mod tests;
