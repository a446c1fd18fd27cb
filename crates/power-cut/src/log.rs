//! The log of file operations; `recorder.c` describes its format.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation<'a> {
    Create,
    MakeDirectory,
    Write { at: usize, data: &'a [u8] },
    Truncate(usize),
    Sync,
    Rename,
    Link,
    Remove,
}

/// The path of an operation, and the second one of a rename or a link.
pub(crate) type Paths<'a> = (&'a Path, &'a Path);

/// A truncated log is valid up to its last complete record.
pub(crate) fn parse(mut log: &[u8]) -> Vec<(Paths<'_>, Operation<'_>)> {
    let mut operations = Vec::new();
    while let Some((paths, operation, rest)) = parse_record(log) {
        operations.push((paths, operation));
        log = rest;
    }
    operations
}

/// Positions behind each record.
pub(crate) fn ends(log: &[u8]) -> Vec<usize> {
    let mut rest = log;
    let mut ends = Vec::new();
    while let Some((_, _, next)) = parse_record(rest) {
        ends.push(log.len() - next.len());
        rest = next;
    }
    ends
}

fn parse_record(log: &[u8]) -> Option<(Paths<'_>, Operation<'_>, &[u8])> {
    let (kind, log) = log.split_first()?;
    let (first, log) = log.split_first_chunk::<2>()?;
    let (second, log) = log.split_first_chunk::<2>()?;
    let (offset, log) = log.split_first_chunk::<8>()?;
    let (size, log) = log.split_first_chunk::<4>()?;
    let (first, log) = log.split_at_checked(usize::from(u16::from_le_bytes(*first)))?;
    let (second, log) = log.split_at_checked(usize::from(u16::from_le_bytes(*second)))?;
    let (data, log) = log.split_at_checked(usize::try_from(u32::from_le_bytes(*size)).ok()?)?;
    let offset = usize::try_from(u64::from_le_bytes(*offset)).ok()?;
    let operation = match kind {
        b'C' => Operation::Create,
        b'M' => Operation::MakeDirectory,
        b'W' => Operation::Write { at: offset, data },
        b'T' => Operation::Truncate(offset),
        b'S' => Operation::Sync,
        b'R' => Operation::Rename,
        b'L' => Operation::Link,
        b'U' => Operation::Remove,
        _ => return None,
    };
    Some(((as_path(first), as_path(second)), operation, log))
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Appends a record with one path and offset 0.
pub(crate) fn append(log: &mut Vec<u8>, kind: u8, path: &Path, data: &[u8]) {
    let path = path.as_os_str().as_bytes();
    let length = u16::try_from(path.len()).expect("a short path");
    let size = u32::try_from(data.len()).expect("a small file");
    log.push(kind);
    log.extend(length.to_le_bytes());
    log.extend(0_u16.to_le_bytes());
    log.extend(0_u64.to_le_bytes());
    log.extend(size.to_le_bytes());
    log.extend(path);
    log.extend(data);
}
