//! Retention of archives: walks `<home>/archive` in batches, deletes expired files and sums up the size of the others.
//!
//! The age of an archive is the age of its file, whether or not the database lists it. A crash between deleting the row and
//! the file leaves a file that the next walk deletes.

use std::fs::{self, DirEntry, ReadDir};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use petasos_core::Millis;

use super::file;
use crate::Error;
use crate::runtime::commit::Commit;
use crate::storage::database::Db;

const MAX_BATCH: usize = 500;
const WALK_INTERVAL: Duration = Duration::from_secs(6 * 3600);
/// Older temporary files are left from a crash.
const STALE_AFTER: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, Default)]
pub(super) struct ArchiveFolder {
    walk: Option<ArchiveWalk>,
    /// Start of the next walk.
    due: Millis,
}

#[derive(Debug)]
struct ArchiveWalk {
    entries: ReadDir,
    bytes: u64,
}

#[derive(Debug, Default)]
struct ExpiredBatch {
    expired: Vec<PathBuf>,
    is_last: bool,
}

impl ArchiveFolder {
    /// Processes one batch. `true`: there is more. `age`: archives are deleted after this; `None`: never.
    pub(super) async fn step(
        &mut self,
        db: &Db,
        home: &Path,
        age: Option<Duration>,
        now: Millis,
    ) -> Result<bool, Error> {
        let walk = match self.walk.take() {
            Some(walk) => walk,
            None if now < self.due => return Ok(false),
            None => match fs::read_dir(file::folder(home)) {
                Ok(entries) => ArchiveWalk { entries, bytes: 0 },
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                Err(error) => return Err(Error::Io(error.to_string())),
            },
        };
        let checked = petasos_runtime::blocking(move || walk.batch(age, now)).await;
        let (walk, batch) = checked.map_err(|panicked| Error::Io(panicked.to_string()))??;
        let names: Vec<String> = batch.expired.iter().filter_map(|path| file_name(path)).collect();
        if !names.is_empty() {
            db.write(Commit::Sweep, move |tx| tx.delete_archive_rows(&names)).await?;
            for path in &batch.expired {
                super::remove(path).await?;
            }
        }
        if !batch.is_last {
            self.walk = Some(walk);
            return Ok(true);
        }
        db.write(Commit::Sweep, move |tx| tx.put_archive_bytes(walk.bytes)).await?;
        self.due = now.after(WALK_INTERVAL);
        Ok(false)
    }
}

impl ArchiveWalk {
    fn batch(mut self, age: Option<Duration>, now: Millis) -> Result<(Self, ExpiredBatch), Error> {
        let mut batch = ExpiredBatch::default();
        for _ in 0..MAX_BATCH {
            let Some(entry) = self.entries.next() else {
                batch.is_last = true;
                break;
            };
            let checked = entry.and_then(|entry| self.check(&entry, age, now));
            match checked {
                Ok(expired) => batch.expired.extend(expired),
                // Removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::Io(error.to_string())),
            }
        }
        Ok((self, batch))
    }

    /// Returns the path if the file has expired.
    fn check(&mut self, entry: &DirEntry, age: Option<Duration>, now: Millis) -> io::Result<Option<PathBuf>> {
        let found = entry.metadata()?;
        let path = entry.path();
        let is_temporary =
            file_name(&path).is_some_and(|file_name| file_name.starts_with('.') && file_name.ends_with('~'));
        let limit = if is_temporary { Some(STALE_AFTER) } else { age };
        let written = found.modified()?.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let written = Millis(u64::try_from(written.as_millis()).unwrap_or(u64::MAX));
        if found.is_file() && limit.is_some_and(|limit| written < now.before(limit)) {
            return Ok(Some(path));
        }
        self.bytes += found.len();
        Ok(None)
    }
}

fn file_name(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_string_lossy().into_owned())
}
