//! Looks through `<home>/archive` in batches: deletes archives whose time is over and counts the size of the others.
//!
//! The age of an archive is that of its file, whether or not the database lists it. A crash between the two deletions
//! leaves a file without a row, which the next walk deletes.

use std::fs::{self, DirEntry, ReadDir};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use petasos_core::Millis;

use super::file;
use crate::Error;
use crate::runtime::commit::Commit;
use crate::storage::database::Db;

/// Files per step.
const BATCH: usize = 500;
/// Pause between two walks.
const EVERY: Duration = Duration::from_secs(6 * 3600);
/// A temporary file this old is left from a crash.
const STALE: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, Default)]
pub(super) struct Folder {
    walk: Option<Walk>,
    /// The next walk begins then.
    due: Millis,
}

#[derive(Debug)]
struct Walk {
    entries: ReadDir,
    bytes: u64,
}

/// Result of a batch.
#[derive(Debug, Default)]
struct Batch {
    expired: Vec<PathBuf>,
    is_last: bool,
}

impl Folder {
    /// One batch. `true`: there is more to do at once. `age`: archives are deleted after this long; `None`: never.
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
                Ok(entries) => Walk { entries, bytes: 0 },
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                Err(error) => return Err(Error::Io(error.to_string())),
            },
        };
        let looked = petasos_runtime::blocking(move || walk.batch(age, now)).await;
        let (walk, batch) = looked.map_err(|panicked| Error::Io(panicked.to_string()))??;
        let names: Vec<String> = batch.expired.iter().filter_map(|path| name(path)).collect();
        if !names.is_empty() {
            db.write(Commit::Sweep, move |tx| tx.forget_archives(&names)).await?;
            for path in &batch.expired {
                super::remove(path).await?;
            }
        }
        if !batch.is_last {
            self.walk = Some(walk);
            return Ok(true);
        }
        db.write(Commit::Sweep, move |tx| tx.put_archive_bytes(walk.bytes)).await?;
        self.due = now.after(EVERY);
        Ok(false)
    }
}

impl Walk {
    fn batch(mut self, age: Option<Duration>, now: Millis) -> Result<(Self, Batch), Error> {
        let mut batch = Batch::default();
        for _ in 0..BATCH {
            let Some(entry) = self.entries.next() else {
                batch.is_last = true;
                break;
            };
            let looked = entry.and_then(|entry| self.look(&entry, age, now));
            match looked {
                Ok(expired) => batch.expired.extend(expired),
                // It was removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::Io(error.to_string())),
            }
        }
        Ok((self, batch))
    }

    /// The path of a file whose time is over.
    fn look(&mut self, entry: &DirEntry, age: Option<Duration>, now: Millis) -> io::Result<Option<PathBuf>> {
        let found = entry.metadata()?;
        let path = entry.path();
        let is_temporary = name(&path).is_some_and(|name| name.starts_with('.') && name.ends_with('~'));
        let limit = if is_temporary { Some(STALE) } else { age };
        let written = found.modified()?.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let written = Millis(u64::try_from(written.as_millis()).unwrap_or(u64::MAX));
        if found.is_file() && limit.is_some_and(|limit| written < now.before(limit)) {
            return Ok(Some(path));
        }
        self.bytes += found.len();
        Ok(None)
    }
}

fn name(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_string_lossy().into_owned())
}
