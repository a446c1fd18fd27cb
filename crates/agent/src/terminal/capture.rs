//! The output of a command while it comes in: its beginning and its end are kept, however much there is, and
//! everything up to a bound is on disk once it is more than that.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use tokio::io::AsyncWriteExt as _;

use super::text;

/// Bytes of one command's output that are kept on disk.
const ON_DISK: u64 = 16 << 20;
/// What a notice about omitted bytes takes, with two numbers as long as they get.
const NOTICE: usize = 100;
/// Outputs that are kept on disk; older ones go.
const KEPT: usize = 32;

#[derive(Debug)]
pub(super) struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    head_most: usize,
    tail_most: usize,
    total: u64,
    spool: Spool,
}

#[derive(Debug)]
enum Spool {
    /// All of it is in memory.
    Unneeded(PathBuf),
    Open {
        path: PathBuf,
        file: tokio::fs::File,
        written: u64,
    },
    /// The disk refused; the result says less, the command goes on.
    Failed,
}

impl Capture {
    /// `most`: bytes that are kept in memory. `spool`: where more goes.
    pub(super) fn new(most: usize, spool: PathBuf) -> Self {
        let head_most = most * 2 / 5;
        Self {
            head: Vec::new(),
            tail: VecDeque::new(),
            head_most,
            tail_most: most - head_most,
            total: 0,
            spool: Spool::Unneeded(spool),
        }
    }

    pub(super) async fn take(&mut self, bytes: &[u8]) {
        let overflows = self.head.len() + self.tail.len() + bytes.len() > self.head_most + self.tail_most;
        if overflows && let Spool::Unneeded(path) = &self.spool {
            self.spool = match begin(path, &self.head, &self.tail).await {
                Ok(file) => Spool::Open { path: path.clone(), file, written: self.total },
                Err(error) => {
                    tracing::warn!(%error, "the output of a command cannot be kept on disk");
                    Spool::Failed
                }
            };
        }
        self.total += bytes.len() as u64;
        let room = self.head_most - self.head.len();
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(first);
        let rest = &rest[rest.len().saturating_sub(self.tail_most)..];
        let excess = (self.tail.len() + rest.len()).saturating_sub(self.tail_most);
        self.tail.drain(..excess);
        self.tail.extend(rest);
        self.spool_on(bytes).await;
    }

    async fn spool_on(&mut self, bytes: &[u8]) {
        let Spool::Open { file, written, .. } = &mut self.spool else { return };
        let room = usize::try_from(ON_DISK - *written).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(room)];
        if bytes.is_empty() {
            return;
        }
        match file.write_all(bytes).await {
            Ok(()) => *written += bytes.len() as u64,
            Err(error) => {
                tracing::warn!(%error, "the output of a command cannot be kept on disk");
                self.spool = Spool::Failed;
            }
        }
    }

    /// What the model gets: all of it, or its beginning, a notice, and its end.
    pub(super) async fn finish(mut self) -> String {
        if let Spool::Open { file, .. } = &mut self.spool
            && let Err(error) = file.flush().await
        {
            tracing::warn!(%error, "the output of a command cannot be kept on disk");
        }
        let (head, tail) = (self.head, Vec::from(self.tail));
        let kept = (head.len() + tail.len()) as u64;
        if kept == self.total {
            return text::readable(&[head, tail].concat());
        }
        let place = match &self.spool {
            Spool::Open { path, written, .. } if *written == self.total => {
                format!(" All of it: {}", path.display())
            }
            Spool::Open { path, written, .. } => format!(" Its first {written} bytes: {}", path.display()),
            Spool::Unneeded(_) | Spool::Failed => String::new(),
        };
        // The notice has its place among what the model gets.
        let tail = &tail[(NOTICE + place.len()).min(tail.len())..];
        format!(
            "{}\n\n... [OUTPUT TRUNCATED - {} bytes omitted out of {} total.{place}] ...\n\n{}",
            text::readable(&head),
            self.total - (head.len() + tail.len()) as u64,
            self.total,
            text::readable(tail)
        )
    }
}

async fn begin(path: &Path, head: &[u8], tail: &VecDeque<u8>) -> std::io::Result<tokio::fs::File> {
    if let Some(directory) = path.parent().map(Path::to_owned) {
        // A thread that panics while it tidies up has not tidied up.
        let _ = tokio::task::spawn_blocking(move || make_room(&directory)).await;
    }
    let mut file = super::private_file().open(path).await?;
    file.write_all(head).await?;
    let (first, second) = tail.as_slices();
    file.write_all(first).await?;
    file.write_all(second).await?;
    Ok(file)
}

/// Forgets the oldest outputs.
fn make_room(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    let mut spools: Vec<_> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("cmd_"))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    spools.sort();
    let old = spools.len().saturating_sub(KEPT - 1);
    for (_, path) in &spools[..old] {
        if let Err(error) = std::fs::remove_file(path) {
            tracing::warn!(%error, "an old output of a command cannot be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn captured(most: usize, pieces: &[&[u8]]) -> (String, tempfile::TempDir) {
        let home = tempfile::TempDir::new().unwrap();
        let mut capture = Capture::new(most, home.path().join("cmd_1.log"));
        for piece in pieces {
            capture.take(piece).await;
        }
        (capture.finish().await, home)
    }

    #[tokio::test]
    async fn what_fits_is_given_whole_and_touches_no_disk() {
        let (shown, home) = captured(10, &[b"12345", b"67890"]).await;
        assert_eq!(shown, "1234567890");
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn of_more_the_beginning_and_the_end_are_shown_and_all_is_on_disk() {
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
    async fn a_flood_is_bounded_in_memory_and_on_disk() {
        let piece = vec![b'x'; 1 << 20];
        let pieces: Vec<&[u8]> = (0..40).map(|_| piece.as_slice()).collect();
        let (shown, home) = captured(50_000, &pieces).await;
        assert!(shown.len() <= 50_000, "{}", shown.len());
        assert_eq!(std::fs::metadata(home.path().join("cmd_1.log")).unwrap().len(), ON_DISK);
    }

    #[test]
    fn only_the_newest_outputs_are_kept() {
        let home = tempfile::TempDir::new().unwrap();
        for number in 0..KEPT + 5 {
            std::fs::write(home.path().join(format!("cmd_{number}.log")), "x").unwrap();
        }
        std::fs::write(home.path().join("proc_1.log"), "x").unwrap();
        make_room(home.path());
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), KEPT, "31 commands and the process");
    }
}
