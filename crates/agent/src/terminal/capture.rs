//! Captures the output of a command: its beginning and end in memory, and the whole of longer output on disk
//! up to a limit.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use tokio::io::AsyncWriteExt as _;

use super::redaction;

/// Bytes of one command's output on disk.
const MAX_SPOOL: u64 = 16 << 20;
const NOTICE: usize = 100;
/// Output files kept; older ones are removed.
const MAX_FILES: usize = 32;

#[derive(Debug)]
pub(super) struct OutputCapture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    head_limit: usize,
    tail_limit: usize,
    total: u64,
    spool: Spool,
}

#[derive(Debug)]
enum Spool {
    Unneeded(PathBuf),
    Open {
        path: PathBuf,
        file: tokio::fs::File,
        written: u64,
    },
    /// Writing failed; the command continues, and its result is only what memory holds.
    Failed,
}

impl OutputCapture {
    /// `most`: bytes kept in memory. `spool`: file for longer output.
    pub(super) fn new(most: usize, spool: PathBuf) -> Self {
        let head_limit = most * 2 / 5;
        Self {
            head: Vec::new(),
            tail: VecDeque::new(),
            head_limit,
            tail_limit: most - head_limit,
            total: 0,
            spool: Spool::Unneeded(spool),
        }
    }

    pub(super) async fn push(&mut self, bytes: &[u8]) {
        let overflows = self.head.len() + self.tail.len() + bytes.len() > self.head_limit + self.tail_limit;
        if overflows && let Spool::Unneeded(path) = &self.spool {
            self.spool = match open_spool(path, &self.head, &self.tail).await {
                Ok(file) => Spool::Open { path: path.clone(), file, written: self.total },
                Err(error) => {
                    tracing::warn!(%error, "cannot spool command output");
                    Spool::Failed
                }
            };
        }
        self.total += bytes.len() as u64;
        let room = self.head_limit - self.head.len();
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(first);
        let rest = &rest[rest.len().saturating_sub(self.tail_limit)..];
        let excess = (self.tail.len() + rest.len()).saturating_sub(self.tail_limit);
        self.tail.drain(..excess);
        self.tail.extend(rest);
        self.append_to_spool(bytes).await;
    }

    async fn append_to_spool(&mut self, bytes: &[u8]) {
        let Spool::Open { file, written, .. } = &mut self.spool else { return };
        let room = usize::try_from(MAX_SPOOL - *written).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(room)];
        if bytes.is_empty() {
            return;
        }
        match file.write_all(bytes).await {
            Ok(()) => *written += bytes.len() as u64,
            Err(error) => {
                tracing::warn!(%error, "cannot spool command output");
                self.spool = Spool::Failed;
            }
        }
    }

    /// The whole output, or its beginning and end around a truncation notice.
    pub(super) async fn finish(mut self) -> String {
        if let Spool::Open { file, .. } = &mut self.spool
            && let Err(error) = file.flush().await
        {
            tracing::warn!(%error, "cannot spool command output");
        }
        let head = self.head;
        let tail = Vec::from(self.tail);
        let kept = (head.len() + tail.len()) as u64;
        if kept == self.total {
            return redaction::readable(&[head, tail].concat());
        }
        let location = match &self.spool {
            Spool::Open { path, written, .. } if *written == self.total => {
                format!(" Full output: {}", path.display())
            }
            Spool::Open { path, written, .. } => format!(" First {written} bytes: {}", path.display()),
            Spool::Unneeded(_) | Spool::Failed => String::new(),
        };
        // The notice counts towards the limit.
        let tail = &tail[(NOTICE + location.len()).min(tail.len())..];
        format!(
            "{}\n\n... [OUTPUT TRUNCATED - {} bytes omitted out of {} total.{location}] ...\n\n{}",
            redaction::readable(&head),
            self.total - (head.len() + tail.len()) as u64,
            self.total,
            redaction::readable(tail)
        )
    }
}

async fn open_spool(path: &Path, head: &[u8], tail: &VecDeque<u8>) -> std::io::Result<tokio::fs::File> {
    if let Some(directory) = path.parent().map(Path::to_owned) {
        // Pruning is best effort, even if it panics.
        let _ = petasos_runtime::blocking(move || prune(&directory)).await;
    }
    let mut file = super::private_file().open(path).await?;
    file.write_all(head).await?;
    let (first, second) = tail.as_slices();
    file.write_all(first).await?;
    file.write_all(second).await?;
    Ok(file)
}

fn prune(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    let mut spools: Vec<_> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("cmd_"))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    spools.sort();
    let old = spools.len().saturating_sub(MAX_FILES - 1);
    for (_, path) in &spools[..old] {
        if let Err(error) = std::fs::remove_file(path) {
            tracing::warn!(%error, "cannot remove old command output");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn captured(most: usize, pieces: &[&[u8]]) -> (String, tempfile::TempDir) {
        let home = tempfile::TempDir::new().unwrap();
        let mut capture = OutputCapture::new(most, home.path().join("cmd_1.log"));
        for piece in pieces {
            capture.push(piece).await;
        }
        (capture.finish().await, home)
    }

    #[tokio::test]
    async fn small_output_stays_in_memory() {
        let (shown, home) = captured(10, &[b"12345", b"67890"]).await;
        assert_eq!(shown, "1234567890");
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn long_output_shows_both_ends_and_is_spooled() {
        let all: String = (0..400).map(|number| format!("{number:04}\n")).collect();
        let pieces: Vec<_> = all.as_bytes().chunks(7).collect();
        let (shown, home) = captured(1_000, &pieces).await;
        let path = home.path().join("cmd_1.log");
        assert!(shown.starts_with("0000\n0001\n") && shown.ends_with("\n0399"), "{shown}");
        assert!(shown.len() <= 1_000, "{}", shown.len());
        assert!(shown.contains("bytes omitted out of 2000 total"), "{shown}");
        assert!(shown.contains(&path.display().to_string()), "{shown}");
        assert_eq!(std::fs::read_to_string(path).unwrap(), all);
    }

    #[tokio::test]
    async fn bounds_flood_in_memory_and_on_disk() {
        let piece = vec![b'x'; 1 << 20];
        let pieces: Vec<&[u8]> = (0..40).map(|_| piece.as_slice()).collect();
        let (shown, home) = captured(50_000, &pieces).await;
        assert!(shown.len() <= 50_000, "{}", shown.len());
        assert_eq!(std::fs::metadata(home.path().join("cmd_1.log")).unwrap().len(), MAX_SPOOL);
    }

    #[test]
    fn keeps_only_newest_outputs() {
        let home = tempfile::TempDir::new().unwrap();
        for number in 0..MAX_FILES + 5 {
            std::fs::write(home.path().join(format!("cmd_{number}.log")), "x").unwrap();
        }
        std::fs::write(home.path().join("proc_1.log"), "x").unwrap();
        prune(home.path());
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), MAX_FILES, "31 commands and the process");
    }
}
