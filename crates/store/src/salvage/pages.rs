//! Pages of a database file overlaid with its write-ahead log, read without SQLite.
//!
//! The frames of the log carry a running checksum, and SQLite ignores everything after the first bad frame. Here each
//! frame is verified on its own, against the checksum stored in its predecessor, so that a damaged frame costs one page.
//!
//! A failed commit or a rollback leaves frames after the last commit, which later commits partly overwrite. They look
//! like damaged frames. The wal-index (`-shm`) distinguishes them: it names the last committed frame.
//!
//! File formats: <https://www.sqlite.org/fileformat2.html>

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::salvage::files::{LOG, SHARED, open_if_there, with_suffix};

pub(crate) const MAGIC: &[u8; 16] = b"SQLite format 3\0";
pub(crate) const DEFAULT_PAGE: usize = 4096;
const LOG_HEADER: usize = 32;
const FRAME_HEADER: usize = 24;
/// The wal-index begins with two copies of a header of this size.
const INDEX_HEADER: usize = 48;
/// A longer log is read only up to here.
const MAX_WAL_BYTES: u64 = 1 << 30;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogDamage {
    /// Frames with a bad checksum.
    pub(crate) frames: usize,
    /// Commits after the first bad frame, which SQLite would drop.
    pub(crate) commits: usize,
}

/// Newest readable version of every page.
#[derive(Debug)]
pub(crate) struct Pages {
    file: Option<File>,
    size: usize,
    count: u32,
    newer: HashMap<u32, Vec<u8>>,
    /// Pages whose newest version in the log is damaged, so that an older one is read.
    stale: Vec<u32>,
    log: Option<LogDamage>,
}

impl Pages {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = open_if_there(path)?;
        let mut log = Vec::new();
        if let Some(file) = open_if_there(&with_suffix(path, LOG))? {
            file.take(MAX_WAL_BYTES).read_to_end(&mut log)?;
        }
        let length = file.as_ref().map_or(Ok(0), |file| file.metadata().map(|meta| meta.len()))?;
        let mut head = [0; 18];
        let whole = file.as_ref().is_some_and(|file| file.read_exact_at(&mut head, 0).is_ok());
        let size = whole
            .then(|| page_size(u32::from(u16::from_be_bytes([head[16], head[17]]))))
            .flatten()
            .or_else(|| word(&log, 8).and_then(page_size))
            .unwrap_or(DEFAULT_PAGE);
        let read = WalFrames::read(&log, size, committed_frames(path, &log)?);
        let stored = u32::try_from(length.div_ceil(size as u64)).unwrap_or(u32::MAX);
        let count = stored.max(read.newer.keys().copied().max().unwrap_or(0));
        Ok(Self { file, size, count, newer: read.newer, stale: read.stale, log: read.damage })
    }

    /// `None`: no such page, or the file ends within it.
    pub(crate) fn page(&self, number: u32) -> Option<Vec<u8>> {
        if number == 0 || number > self.count {
            return None;
        }
        if let Some(newer) = self.newer.get(&number) {
            return Some(newer.clone());
        }
        let mut page = vec![0; self.size];
        let start = (u64::from(number) - 1) * self.size as u64;
        self.file.as_ref()?.read_exact_at(&mut page, start).ok()?;
        Some(page)
    }

    /// Pointer-map entry of a page: its kind and its parent. `None`: the file has no pointer map.
    pub(crate) fn owner(&self, number: u32) -> Option<(u8, u32)> {
        if word(&self.page(1)?, 52)? == 0 {
            return None;
        }
        // A map page describes the pages that follow it.
        let entries = u32::try_from(self.size / 5).ok()?;
        let place = number.checked_sub(2)? % (entries + 1);
        let map = self.page(number - place)?;
        let entry = 5 * usize::try_from(place.checked_sub(1)?).ok()?;
        Some((*map.get(entry)?, word(&map, entry + 1)?))
    }

    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    pub(crate) const fn size(&self) -> usize {
        self.size
    }

    pub(crate) const fn log_damage(&self) -> Option<LogDamage> {
        self.log
    }

    pub(crate) fn is_stale(&self, number: u32) -> bool {
        self.stale.contains(&number)
    }
}

fn page_size(stored: u32) -> Option<usize> {
    match stored {
        1 => Some(65_536),
        512..=32_768 if stored.is_power_of_two() => Some(stored as usize),
        _ => None,
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let four: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_be_bytes(four))
}

#[derive(Debug, Default)]
struct WalFrames {
    newer: HashMap<u32, Vec<u8>>,
    stale: Vec<u32>,
    damage: Option<LogDamage>,
}

/// A frame of the current log generation.
struct WalFrame<'a> {
    page: u32,
    commits: bool,
    sound: bool,
    data: &'a [u8],
}

impl WalFrames {
    /// `committed`: frames up to the last commit, if the wal-index belongs to this log.
    fn read(bytes: &[u8], size: usize, committed: Option<usize>) -> Self {
        let Some(header) = bytes.get(..LOG_HEADER) else { return Self::default() };
        let order = if word(header, 0) == Some(0x377f_0683) { Order::Big } else { Order::Little };
        let sound_header = matches!(word(header, 0), Some(0x377f_0682 | 0x377f_0683))
            && word(header, 4) == Some(3_007_000)
            && word(header, 8).and_then(page_size) == Some(size)
            && order.sum((0, 0), &header[..24]) == stored(header, 24);
        let frames = frames(bytes, size, order, sound_header);
        let bad = |frame: &WalFrame<'_>| !frame.sound;
        let first_bad = if sound_header { frames.iter().position(bad) } else { Some(0) };
        let lost = first_bad.map_or(0, |at| commits(&frames[at..]));
        let never_committed = first_bad.is_some() && first_bad == committed && sound_header;
        // A power failure leaves at most one partial transaction, which was never acknowledged.
        let damaged = !never_committed && (lost >= 2 || (!sound_header && lost >= 1));
        let end = match (damaged, first_bad) {
            (true, _) | (false, None) => frames.len(),
            (false, Some(at)) => at,
        };
        let mut read = Self::default();
        if damaged {
            read.damage =
                Some(LogDamage { frames: frames.iter().filter(|it| bad(it)).count(), commits: lost });
        }
        let last = frames[..end].iter().rposition(|frame| frame.sound && frame.commits);
        for frame in frames.into_iter().take(last.map_or(0, |last| last + 1)) {
            read.insert(&frame);
        }
        read
    }

    fn insert(&mut self, frame: &WalFrame<'_>) {
        self.stale.retain(|page| *page != frame.page);
        if frame.sound {
            self.newer.insert(frame.page, frame.data.to_vec());
        } else {
            self.stale.push(frame.page);
        }
    }
}

fn commits(frames: &[WalFrame<'_>]) -> usize {
    frames.iter().filter(|frame| frame.sound && frame.commits).count()
}

/// Frames of the current generation; older frames have other salts.
fn frames(bytes: &[u8], size: usize, order: Order, sound_header: bool) -> Vec<WalFrame<'_>> {
    let whole: Vec<&[u8]> = bytes[LOG_HEADER..].chunks_exact(FRAME_HEADER + size).collect();
    let salts = |frame: &&[u8]| stored(frame, 8);
    let Some(first) = whole.first().map(salts) else { return Vec::new() };
    let salt = if sound_header { stored(bytes, 16) } else { first };
    let end = whole.iter().rposition(|frame| salts(frame) == salt).map_or(0, |last| last + 1);
    let mut before = stored(bytes, 24);
    let mut frames = Vec::new();
    for frame in &whole[..end] {
        let (head, data) = frame.split_at(FRAME_HEADER);
        let sum = order.sum(order.sum(before, &head[..8]), data);
        let sound = salts(frame) == salt && sum == stored(head, 16);
        before = stored(head, 16);
        let page = word(head, 0).unwrap_or(0);
        let after = word(head, 4).unwrap_or(0);
        frames.push(WalFrame { page, commits: after > 0, sound, data });
    }
    frames
}

/// Frames up to the last commit, according to the wal-index. It is not synced, so after a power failure it may be missing
/// or older than the log.
fn committed_frames(path: &Path, log: &[u8]) -> io::Result<Option<usize>> {
    let mut header = [0; 2 * INDEX_HEADER];
    let Some(file) = open_if_there(&with_suffix(path, SHARED))? else { return Ok(None) };
    match file.read_exact_at(&mut header, 0) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let (first, second) = header.split_at(INDEX_HEADER);
    let of_this_log = first == second && log.get(16..24) == Some(&first[32..40]);
    let frames = u32::from_ne_bytes([first[16], first[17], first[18], first[19]]);
    Ok(usize::try_from(frames).ok().filter(|_| of_this_log))
}

fn stored(bytes: &[u8], at: usize) -> (u32, u32) {
    (word(bytes, at).unwrap_or(0), word(bytes, at + 4).unwrap_or(0))
}

#[derive(Debug, Clone, Copy)]
enum Order {
    Big,
    Little,
}

impl Order {
    fn sum(self, seed: (u32, u32), bytes: &[u8]) -> (u32, u32) {
        let (mut one, mut two) = seed;
        for pair in bytes.chunks_exact(8) {
            let read = |four: &[u8]| {
                let four = [four[0], four[1], four[2], four[3]];
                match self {
                    Self::Big => u32::from_be_bytes(four),
                    Self::Little => u32::from_le_bytes(four),
                }
            };
            one = one.wrapping_add(read(&pair[..4])).wrapping_add(two);
            two = two.wrapping_add(read(&pair[4..])).wrapping_add(one);
        }
        (one, two)
    }
}
