//! The archive file of one conversation: gzip-compressed JSON lines.
//!
//! Written atomically: to a temporary file, synced, renamed, and read back before the rows are deleted.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{Context, Digest, SHA256};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use petasos_agent::file_name;
use petasos_store::{ArchiveCandidate, Error as StoreError, Reader};

pub fn folder(home: &Path) -> PathBuf {
    home.join("archive")
}

/// Reads the lines of an archive. A damaged file yields an error in place of a line.
pub fn lines(path: &Path) -> io::Result<impl Iterator<Item = Result<String, StoreError>> + use<>> {
    let text = BufReader::new(GzDecoder::new(BufReader::new(File::open(path)?)));
    Ok(text.lines().map(|line| line.map_err(StoreError::from)))
}

/// Writes and verifies the archive of a conversation. Returns its file name and size.
pub(crate) fn write(
    reader: &Reader,
    it: &ArchiveCandidate,
    folder: &Path,
) -> Result<(String, u64), StoreError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // A session id may be reused after archiving, so the name includes the time of the last use.
    let name = format!("{}.{}.jsonl.gz", file_name(it.id.as_str()), it.last_at.0);
    let path = folder.join(&name);
    let temporary = folder.join(format!(".{name}~"));
    let (written, lines) = fill(reader, it, &temporary)?;
    fs::rename(&temporary, &path)?;
    // The folder may be new as well: its name is in the one above it.
    folder.ancestors().take(2).try_for_each(|folder| File::open(folder)?.sync_all())?;
    if verify(&path)? != (written.as_ref().to_vec(), lines) {
        return Err(StoreError::Io(format!("{} does not read back as it was written", path.display())));
    }
    Ok((name, fs::metadata(&path)?.len()))
}

fn fill(reader: &Reader, it: &ArchiveCandidate, path: &Path) -> Result<(Digest, usize), StoreError> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let mut text = GzEncoder::new(BufWriter::new(file), Compression::default());
    let mut digest = Context::new(&SHA256);
    let mut lines = 0;
    let lossy = reader.export(it, |line| {
        digest.update(line.as_bytes());
        digest.update(b"\n");
        lines += 1;
        Ok(writeln!(text, "{line}")?)
    })?;
    if lossy > 0 {
        tracing::warn!(
            session = it.id.as_str(),
            rows = lossy,
            "archived text that is not UTF-8 with replacement characters"
        );
    }
    let mut file = text.finish()?;
    file.flush()?;
    file.get_ref().sync_all()?;
    Ok((digest.finish(), lines))
}

fn verify(path: &Path) -> Result<(Vec<u8>, usize), StoreError> {
    let mut digest = Context::new(&SHA256);
    let mut count = 0;
    for line in lines(path)? {
        digest.update(line?.as_bytes());
        digest.update(b"\n");
        count += 1;
    }
    Ok((digest.finish().as_ref().to_vec(), count))
}
