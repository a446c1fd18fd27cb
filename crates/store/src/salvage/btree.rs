//! Reads the rows of one table page by page from a file that may be damaged.
//!
//! A page that contradicts its parent is rejected: keys must lie in the range given by the parent, and a page belongs to
//! one tree and one parent only. Every unreadable range is reported.

use std::collections::HashSet;

use rusqlite::types::Value;

use crate::salvage::pages::Pages;

const LEAF_TABLE: u8 = 13;
const INNER_TABLE: u8 = 5;
const LEAF_INDEX: u8 = 10;
const INNER_INDEX: u8 = 2;
/// Page kinds in the pointer map.
const ROOT: u8 = 1;
const FREE: u8 = 2;
const CHILD: u8 = 5;
/// Our trees have at most four levels.
const MAX_DEPTH: usize = 20;
/// A longer row has a damaged length.
const MAX_RECORD_BYTES: usize = 256 << 20;

#[derive(Debug)]
pub(crate) struct Record {
    /// `None` in a table without row ids.
    pub(crate) rowid: Option<i64>,
    pub(crate) values: Vec<Value>,
}

/// An unreadable part of a table, as row ids: exclusive below, inclusive above.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) after: Option<i64>,
    pub(crate) upto: Option<i64>,
    pub(crate) why: String,
}

/// Walks the trees of one file and records the pages used.
#[derive(Debug)]
pub(crate) struct Trees<'a> {
    pages: &'a Pages,
    used: HashSet<u32>,
}

#[derive(Debug, Default)]
pub(crate) struct WalkStep {
    pub(crate) records: Vec<Record>,
    pub(crate) gaps: Vec<Gap>,
    /// Pages read so far, by all walks.
    pub(crate) used: usize,
}

#[derive(Debug, Clone, Copy)]
struct Bounds {
    after: Option<i64>,
    upto: Option<i64>,
}

impl Bounds {
    fn holds(self, key: i64) -> bool {
        self.after.is_none_or(|after| key > after) && self.upto.is_none_or(|upto| key <= upto)
    }

    fn gap(self, why: impl Into<String>) -> Gap {
        Gap { after: self.after, upto: self.upto, why: why.into() }
    }
}

impl<'a> Trees<'a> {
    pub(crate) fn new(pages: &'a Pages) -> Self {
        Self { pages, used: HashSet::new() }
    }

    /// Passes all rows below a root page to `each`, page by page.
    pub(crate) fn walk(&mut self, root: u32, each: &mut dyn FnMut(WalkStep)) {
        self.visit(root, None, Bounds { after: None, upto: None }, 0, each);
    }

    pub(crate) fn used(&self) -> usize {
        self.used.len()
    }

    fn visit(
        &mut self,
        number: u32,
        parent: Option<u32>,
        bounds: Bounds,
        depth: usize,
        each: &mut dyn FnMut(WalkStep),
    ) {
        let used = self.used.len();
        let lost = |why: String| WalkStep { records: Vec::new(), gaps: vec![bounds.gap(why)], used };
        if parent.is_some_and(|parent| self.has_other_owner(number, parent)) {
            return each(lost(format!("page {number} is owned by another page")));
        }
        if depth > MAX_DEPTH || !self.used.insert(number) {
            return each(lost(format!("page {number} is referred to twice")));
        }
        let Some(bytes) = self.pages.page(number) else {
            return each(lost(format!("page {number} is missing")));
        };
        if self.pages.is_stale(number) {
            each(lost(format!("page {number} is damaged in the write-ahead log; an older version was used")));
        }
        let Some(page) = TreePage::of(number, &bytes) else {
            return each(lost(format!("page {number} is not a table page")));
        };
        match page.kind {
            LEAF_TABLE => each(self.leaf(&page, bounds)),
            LEAF_INDEX => each(self.keys(&page, bounds, 0)),
            INNER_TABLE => self.inner(&page, bounds, depth, each),
            _ => {
                for child in page.children() {
                    self.visit(child, Some(page.number), bounds, depth + 1, each);
                }
                each(self.keys(&page, bounds, 4));
            }
        }
    }

    /// Whether the pointer map lists this page as a root, as free, or as the child of another inner page.
    fn has_other_owner(&self, number: u32, parent: u32) -> bool {
        match self.pages.owner(number) {
            Some((ROOT | FREE, 0)) => true,
            Some((CHILD, owner)) if owner != parent => {
                let bytes = self.pages.page(owner);
                let page = bytes.as_deref().and_then(|bytes| TreePage::of(owner, bytes));
                page.is_some_and(|page| matches!(page.kind, INNER_TABLE | INNER_INDEX))
            }
            _ => false,
        }
    }

    fn inner(&mut self, page: &TreePage<'_>, bounds: Bounds, depth: usize, each: &mut dyn FnMut(WalkStep)) {
        let mut after = bounds.after;
        let mut covered = 0;
        let used = self.used.len();
        let gap = |bounds: Bounds, why: String, each: &mut dyn FnMut(WalkStep)| {
            each(WalkStep { records: Vec::new(), gaps: vec![bounds.gap(why)], used });
        };
        for cell in page.cells() {
            let key = cell.and_then(|at| varint(page.bytes, at + 4));
            let key = key.map(|(key, length)| (key as i64, length)).filter(|(key, _)| bounds.holds(*key));
            let (Some((key, length)), Some(child)) = (key, cell.and_then(|at| page.word(at))) else {
                gap(Bounds { after, ..bounds }, format!("a cell of page {} is damaged", page.number), each);
                continue;
            };
            covered += 4 + length;
            self.visit(child, Some(page.number), Bounds { after, upto: Some(key) }, depth + 1, each);
            after = Some(key);
        }
        if !page.is_covered(covered) {
            gap(bounds, format!("page {} may have led to more rows", page.number), each);
        }
        self.visit(page.right, Some(page.number), Bounds { after, ..bounds }, depth + 1, each);
    }

    fn leaf(&mut self, page: &TreePage<'_>, bounds: Bounds) -> WalkStep {
        let mut walked = WalkStep { used: self.used.len(), ..WalkStep::default() };
        let mut last = bounds;
        let mut broken = false;
        let mut covered = 0;
        for cell in page.cells() {
            let row = cell.and_then(|at| self.row(page, at));
            match row.filter(|(rowid, ..)| last.holds(*rowid)) {
                Some((rowid, values, length)) => {
                    if std::mem::take(&mut broken) {
                        let gap = Bounds { after: last.after, upto: Some(rowid - 1) };
                        walked.gaps.push(gap.gap(format!("rows of page {} are damaged", page.number)));
                    }
                    last.after = Some(rowid);
                    covered += length;
                    walked.records.push(Record { rowid: Some(rowid), values });
                }
                None => broken = true,
            }
        }
        if broken {
            walked.gaps.push(last.gap(format!("rows of page {} are damaged", page.number)));
        } else if !page.is_covered(covered) {
            walked.gaps.push(bounds.gap(format!("page {} may have held more rows", page.number)));
        }
        walked
    }

    fn row(&mut self, page: &TreePage<'_>, at: usize) -> Option<(i64, Vec<Value>, usize)> {
        let (size, one) = varint(page.bytes, at)?;
        let (rowid, two) = varint(page.bytes, at + one)?;
        let payload = Payload { size: usize::try_from(size).ok()?, at: at + one + two, head: one + two };
        let (bytes, length) = self.payload(page, &payload, page.bytes.len() - 35)?;
        Some((rowid as i64, record(&bytes)?, length))
    }

    /// Rows of a table without row ids, stored in index pages.
    fn keys(&mut self, page: &TreePage<'_>, bounds: Bounds, skip: usize) -> WalkStep {
        let mut walked = WalkStep { used: self.used.len(), ..WalkStep::default() };
        let mut covered = 0;
        let mut broken = 0;
        let most = (page.bytes.len() - 12) * 64 / 255 - 23;
        for cell in page.cells() {
            let read = cell.and_then(|at| {
                let (size, one) = varint(page.bytes, at + skip)?;
                let size = usize::try_from(size).ok()?;
                let payload = Payload { size, at: at + skip + one, head: skip + one };
                let (bytes, length) = self.payload(page, &payload, most)?;
                Some((record(&bytes)?, length))
            });
            match read {
                Some((values, length)) => {
                    covered += length;
                    walked.records.push(Record { rowid: None, values });
                }
                None => broken += 1,
            }
        }
        if broken > 0 {
            walked.gaps.push(bounds.gap(format!("{broken} rows of page {} are damaged", page.number)));
        } else if !page.is_covered(covered) {
            walked.gaps.push(bounds.gap(format!("page {} may have held more rows", page.number)));
        }
        walked
    }

    /// Bytes of a record including its overflow pages, and the length of its cell.
    fn payload(&mut self, page: &TreePage<'_>, cell: &Payload, most: usize) -> Option<(Vec<u8>, usize)> {
        let usable = page.bytes.len();
        if cell.size > MAX_RECORD_BYTES {
            return None;
        }
        if cell.size <= most {
            let bytes = page.bytes.get(cell.at..cell.at + cell.size)?;
            return Some((bytes.to_vec(), (cell.head + cell.size).max(4)));
        }
        let least = (usable - 12) * 32 / 255 - 23;
        let kept = least + (cell.size - least) % (usable - 4);
        let local = if kept <= most { kept } else { least };
        let mut bytes = page.bytes.get(cell.at..cell.at + local)?.to_vec();
        let mut next = page.word(cell.at + local)?;
        while bytes.len() < cell.size {
            if !self.used.insert(next) {
                return None;
            }
            if self.pages.is_stale(next) {
                return None;
            }
            let overflow = self.pages.page(next)?;
            let wanted = (cell.size - bytes.len()).min(usable - 4);
            bytes.extend_from_slice(overflow.get(4..4 + wanted)?);
            next = u32::from_be_bytes(overflow.get(..4)?.try_into().ok()?);
        }
        Some((bytes, cell.head + local + 4))
    }
}

/// Start of a cell's payload, and the number of cell bytes before it.
struct Payload {
    size: usize,
    at: usize,
    head: usize,
}

/// A tree page, as described by its header.
struct TreePage<'a> {
    number: u32,
    bytes: &'a [u8],
    kind: u8,
    start: usize,
    cells: usize,
    right: u32,
}

impl<'a> TreePage<'a> {
    fn of(number: u32, bytes: &'a [u8]) -> Option<Self> {
        let start = if number == 1 { 100 } else { 0 };
        let kind = *bytes.get(start)?;
        let inner = matches!(kind, INNER_TABLE | INNER_INDEX);
        if !inner && !matches!(kind, LEAF_TABLE | LEAF_INDEX) {
            return None;
        }
        let cells = usize::from(u16::from_be_bytes([*bytes.get(start + 3)?, *bytes.get(start + 4)?]));
        let right =
            if inner { u32::from_be_bytes(bytes.get(start + 8..start + 12)?.try_into().ok()?) } else { 0 };
        let page = Self { number, bytes, kind, start, cells, right };
        (page.array() + 2 * cells <= bytes.len()).then_some(page)
    }

    const fn array(&self) -> usize {
        self.start + if matches!(self.kind, INNER_TABLE | INNER_INDEX) { 12 } else { 8 }
    }

    /// Offset of each cell; `None`: outside the page.
    fn cells(&self) -> impl Iterator<Item = Option<usize>> + use<'a> {
        let bytes = self.bytes;
        let first = self.array();
        let least = self.array() + 2 * self.cells;
        (0..self.cells).map(move |index| {
            let at = first + 2 * index;
            let cell = usize::from(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
            (cell >= least && cell < bytes.len()).then_some(cell)
        })
    }

    fn children(&self) -> Vec<u32> {
        let left = self.cells().filter_map(|cell| cell.and_then(|at| self.word(at)));
        left.chain([self.right]).collect()
    }

    fn word(&self, at: usize) -> Option<u32> {
        Some(u32::from_be_bytes(self.bytes.get(at..at + 4)?.try_into().ok()?))
    }

    /// Whether cells, free blocks and fragments fill the content area. Detects a damaged cell count.
    fn is_covered(&self, cells: usize) -> bool {
        let half = |at: usize| usize::from(u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]]));
        let content = match half(self.start + 5) {
            0 => 65_536,
            content => content,
        };
        let mut free = usize::from(self.bytes[self.start + 7]);
        let mut block = half(self.start + 1);
        let mut last = 0;
        // Free blocks are in ascending order; a damaged list may be circular.
        while block > last && block + 4 <= self.bytes.len() {
            free += half(block + 2);
            (last, block) = (block, half(block));
        }
        content.checked_add(cells + free) == Some(self.bytes.len())
    }
}

/// Value and length of a variable-length integer.
fn varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut value = 0_u64;
    for length in 0..9 {
        let byte = *bytes.get(at + length)?;
        if length == 8 {
            return Some(((value << 8) | u64::from(byte), 9));
        }
        value = (value << 7) | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some((value, length + 1));
        }
    }
    None
}

/// Columns of a record. `None`: it is inconsistent, or a text is not UTF-8.
fn record(bytes: &[u8]) -> Option<Vec<Value>> {
    let (header, mut at) = varint(bytes, 0)?;
    let header = usize::try_from(header).ok().filter(|header| *header <= bytes.len())?;
    let mut body = header;
    let mut values = Vec::new();
    while at < header {
        let (kind, length) = varint(bytes, at)?;
        at += length;
        let (value, size) = column(kind, bytes.get(body..)?)?;
        body += size;
        values.push(value);
    }
    (at == header && body == bytes.len()).then_some(values)
}

fn column(kind: u64, bytes: &[u8]) -> Option<(Value, usize)> {
    let integer = |size: usize| {
        let stored = bytes.get(..size)?;
        let negative = stored.first().is_some_and(|byte| byte & 0x80 != 0);
        let start = if negative { -1_i64 } else { 0 };
        Some((Value::Integer(stored.iter().fold(start, |sum, byte| (sum << 8) | i64::from(*byte))), size))
    };
    match kind {
        0 => Some((Value::Null, 0)),
        1..=4 => integer(kind as usize),
        5 => integer(6),
        6 => integer(8),
        7 => Some((Value::Real(f64::from_be_bytes(bytes.get(..8)?.try_into().ok()?)), 8)),
        8 => Some((Value::Integer(0), 0)),
        9 => Some((Value::Integer(1), 0)),
        10 | 11 => None,
        kind => {
            let size = usize::try_from((kind - 12) / 2).ok()?;
            let stored = bytes.get(..size)?;
            let value = match kind % 2 {
                0 => Value::Blob(stored.to_vec()),
                _ => Value::Text(String::from_utf8(stored.to_vec()).ok()?),
            };
            Some((value, size))
        }
    }
}
