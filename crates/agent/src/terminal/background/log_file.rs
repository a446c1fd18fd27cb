//! Log file of a background process. The process appends to it; when it grows too large, its beginning is
//! punched out, so the newest output is on disk without a reader.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// Bytes on disk at which the file is trimmed, and bytes kept.
const MOST: u64 = 16 << 20;
const STAYS: u64 = 4 << 20;

pub(super) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// The last bytes; from the start of a line if the file is longer.
pub(super) fn tail(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let from = size.saturating_sub(most);
    let mut bytes = read(&mut file, from, most)?;
    if from > 0
        && let Some(line) = bytes.iter().position(|byte| *byte == b'\n').filter(|at| at + 1 < bytes.len())
    {
        bytes.drain(..=line);
    }
    Ok(bytes)
}

/// Complete lines after `from`, and the offset behind them. Only the last `most` bytes are read.
pub(super) fn lines_after(path: &Path, from: u64, most: u64) -> io::Result<(Vec<u8>, u64)> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let from = if size < from { 0 } else { from.max(size.saturating_sub(most)) };
    let mut bytes = read(&mut file, from, most)?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    // A line longer than `most` is returned in pieces.
    let whole = if whole == 0 && bytes.len() as u64 >= most { bytes.len() } else { whole };
    bytes.truncate(whole);
    Ok((bytes, from + whole as u64))
}

pub(super) fn trim(path: &Path) -> io::Result<()> {
    let about = std::fs::metadata(path)?;
    // Blocks count 512 bytes on every file system.
    if about.blocks() * 512 <= MOST {
        return Ok(());
    }
    let file = OpenOptions::new().write(true).open(path)?;
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(&file, hole, 0, about.len().saturating_sub(STAYS)) {
        Ok(()) => Ok(()),
        // The file system cannot punch holes: truncate instead; the writer appends.
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => file.set_len(0),
        Err(error) => Err(error.into()),
    }
}

fn read(file: &mut File, from: u64, most: u64) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn tail_starts_at_a_line() {
        let home = tempfile::TempDir::new().unwrap();
        let path = home.path().join("log");
        create(&path).unwrap().write_all(b"one\ntwo\nthree\n").unwrap();
        assert_eq!(tail(&path, 100).unwrap(), b"one\ntwo\nthree\n");
        assert_eq!(tail(&path, 9).unwrap(), b"three\n");
        assert_eq!(tail(&path, 3).unwrap(), b"ee\n", "nothing but a piece of a line");
    }

    #[test]
    fn reads_new_lines_once_and_whole() {
        let home = tempfile::TempDir::new().unwrap();
        let path = home.path().join("log");
        let mut file = create(&path).unwrap();
        file.write_all(b"one\ntw").unwrap();
        assert_eq!(lines_after(&path, 0, 100).unwrap(), (b"one\n".to_vec(), 4));
        assert_eq!(lines_after(&path, 4, 100).unwrap(), (vec![], 4));
        file.write_all(b"o\nthree\n").unwrap();
        assert_eq!(lines_after(&path, 4, 100).unwrap(), (b"two\nthree\n".to_vec(), 14));
        assert_eq!(lines_after(&path, 4, 6).unwrap(), (b"three\n".to_vec(), 14), "only the last of too much");
        file.set_len(0).unwrap();
        file.write_all(b"new\n").unwrap();
        assert_eq!(lines_after(&path, 14, 100).unwrap(), (b"new\n".to_vec(), 4));
    }

    #[test]
    fn trims_beginning_of_large_log() {
        let home = tempfile::TempDir::new().unwrap();
        let path = home.path().join("log");
        let mut file = create(&path).unwrap();
        for _ in 0..40 {
            file.write_all(&vec![b'x'; 1 << 20]).unwrap();
            trim(&path).unwrap();
        }
        file.write_all(b"\nlast line\n").unwrap();
        let about = std::fs::metadata(&path).unwrap();
        assert!(about.blocks() * 512 <= MOST + (1 << 20), "{} blocks", about.blocks());
        assert_eq!(tail(&path, 20).unwrap(), b"last line\n");
    }
}
