//! The file a background process writes into. It grows at its end and is bounded by giving its beginning back to the
//! disk: the process needs nobody to read along, and what it said last is always there.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// Bytes on disk at which the beginning is given back, and what stays then.
const MOST: u64 = 16 << 20;
const STAYS: u64 = 4 << 20;

pub(super) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// The last bytes; from the beginning of a line if there was more.
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

/// Whole lines behind `from`, and where they end. Of more than `most` bytes only the last are looked at.
pub(super) fn lines_after(path: &Path, from: u64, most: u64) -> io::Result<(Vec<u8>, u64)> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    // A file that became shorter was started afresh.
    let from = if size < from { 0 } else { from.max(size.saturating_sub(most)) };
    let mut bytes = read(&mut file, from, most)?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    // One endless line is better seen in pieces than never.
    let whole = if whole == 0 && bytes.len() as u64 >= most { bytes.len() } else { whole };
    bytes.truncate(whole);
    Ok((bytes, from + whole as u64))
}

/// Keeps the file within its bound.
pub(super) fn trim(path: &Path) -> io::Result<()> {
    let about = std::fs::metadata(path)?;
    // Blocks count 512 bytes, whatever the file system.
    if about.blocks() * 512 <= MOST {
        return Ok(());
    }
    let file = OpenOptions::new().write(true).open(path)?;
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(&file, hole, 0, about.len().saturating_sub(STAYS)) {
        Ok(()) => Ok(()),
        // A file system that cannot give back a beginning: the writer, who appends, goes on from nothing.
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
    fn a_tail_begins_with_a_line_unless_it_is_everything() {
        let home = tempfile::TempDir::new().unwrap();
        let path = home.path().join("log");
        create(&path).unwrap().write_all(b"one\ntwo\nthree\n").unwrap();
        assert_eq!(tail(&path, 100).unwrap(), b"one\ntwo\nthree\n");
        assert_eq!(tail(&path, 9).unwrap(), b"three\n");
        assert_eq!(tail(&path, 3).unwrap(), b"ee\n", "nothing but a piece of a line");
    }

    #[test]
    fn new_lines_are_read_once_and_whole() {
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
    fn a_flood_gives_its_beginning_back_to_the_disk() {
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
