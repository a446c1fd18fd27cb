//! Database size and growth, and incremental return of free pages to the file system.

use std::time::Duration;

use petasos_core::Millis;

use crate::connection::{Reads, Store, Tx};
use crate::error::Result;
use crate::value::count;

/// Total bytes of all archives.
const ARCHIVE_BYTES: &str = "archive_bytes";
const SAMPLES: &str = "database_size_samples";
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Daily samples to keep.
const MAX_SAMPLES: usize = 15;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DatabaseSize {
    pub bytes: u64,
    /// Free pages, which new rows use before the file grows.
    pub free_bytes: u64,
    /// Whether incremental vacuum is enabled.
    pub incremental: bool,
}

impl DatabaseSize {
    pub const fn used_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.free_bytes)
    }
}

impl Reads {
    pub fn database_size(&self) -> Result<DatabaseSize> {
        let pragma = |name: &str| -> Result<u64> {
            Ok(count(self.sql(&format!("PRAGMA {name}"))?.query_row([], |row| row.get(0))?))
        };
        let page = pragma("page_size")?;
        Ok(DatabaseSize {
            bytes: pragma("page_count")? * page,
            free_bytes: pragma("freelist_count")? * page,
            incremental: pragma("auto_vacuum")? == 2,
        })
    }

    /// Bytes of growth per day; `None`: observed for less than a day.
    pub fn growth_per_day(&self, now: Millis) -> Result<Option<i64>> {
        let samples = self.samples()?;
        let used = self.database_size()?.used_bytes();
        Ok(samples.first().and_then(|(at, then)| growth(*at, *then, now, used)))
    }

    /// Bytes of all archives at the last count, plus those created since.
    pub fn archive_bytes(&self) -> Result<u64> {
        Ok(self.meta(ARCHIVE_BYTES)?.and_then(|text| text.parse().ok()).unwrap_or_default())
    }

    fn samples(&self) -> Result<Vec<(Millis, u64)>> {
        let text = self.meta(SAMPLES)?.unwrap_or_default();
        let sample = |it: &str| {
            let (at, bytes) = it.split_once(':')?;
            Some((Millis(at.parse().ok()?), bytes.parse().ok()?))
        };
        Ok(text.split(',').filter_map(sample).collect())
    }
}

impl Tx<'_> {
    pub fn sample_size(&self, now: Millis) -> Result<()> {
        let mut samples = self.samples()?;
        samples.retain(|(at, _)| *at <= now);
        if samples.last().is_some_and(|(at, _)| now.since(*at) < DAY) {
            return Ok(());
        }
        samples.push((now, self.database_size()?.used_bytes()));
        let excess = samples.len().saturating_sub(MAX_SAMPLES);
        let texts: Vec<String> =
            samples.iter().skip(excess).map(|(at, bytes)| format!("{}:{bytes}", at.0)).collect();
        self.put_meta(SAMPLES, &texts.join(","))
    }

    pub fn put_archive_bytes(&self, bytes: u64) -> Result<()> {
        self.put_meta(ARCHIVE_BYTES, &bytes.to_string())
    }

    /// Returns at most `pages` free pages to the file system.
    pub fn vacuum_step(&self, pages: u32) -> Result<()> {
        let mut vacuum = self.sql(&format!("PRAGMA incremental_vacuum({pages})"))?;
        let mut steps = vacuum.query([])?;
        while steps.next()?.is_some() {}
        Ok(())
    }
}

impl Store {
    /// Rewrites the file without free pages and enables incremental vacuum. Needs disk space for a second copy, which SQLite
    /// builds in a temporary file beside the database instead of in memory.
    pub fn compact(&self) -> Result<()> {
        let folder =
            self.path().parent().map(|it| it.to_string_lossy().replace('\'', "''")).unwrap_or_default();
        let compacted = self.0.execute_batch(&format!(
            "PRAGMA temp_store = FILE; PRAGMA temp_store_directory = '{folder}';
             PRAGMA auto_vacuum = INCREMENTAL; VACUUM;"
        ));
        // The setting is process-wide.
        let reset = self.0.execute_batch("PRAGMA temp_store_directory = ''; PRAGMA temp_store = MEMORY;");
        Ok(compacted.and(reset)?)
    }
}

fn growth(then: Millis, before: u64, now: Millis, used: u64) -> Option<i64> {
    let days = now.since(then).as_secs_f64() / DAY.as_secs_f64();
    if days < 1.0 {
        return None;
    }
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a figure for people")]
    let grown = ((used as f64 - before as f64) / days) as i64;
    Some(grown)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn growth_is_known_after_a_day_and_may_be_negative() {
        let day = |days: u64| Millis(days * 86_400_000);
        assert_eq!(growth(day(1), 1_000, Millis(day(2).0 - 1), 9_000), None);
        assert_eq!(growth(day(1), 1_000, day(5), 9_000), Some(2_000));
        assert_eq!(growth(day(1), 9_000, day(5), 1_000), Some(-2_000));
    }

    fn with_free_pages(folder: &Path) -> Store {
        let mut store = Store::open(folder.join("petasos.db")).unwrap();
        let text = "x".repeat(1000);
        store
            .write(|tx| {
                (0..6000).try_for_each(|number| tx.put_meta(&format!("fill {number}"), &text))?;
                tx.sql("DELETE FROM meta WHERE key LIKE 'fill %' AND key NOT LIKE '%7'")?.execute([])?;
                Ok(())
            })
            .unwrap();
        store
    }

    #[test]
    fn vacuum_step_returns_free_pages_of_a_new_database() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = with_free_pages(folder.path());
        let before = store.database_size().unwrap();
        assert!(before.incremental && before.free_bytes > 4 << 20, "{before:?}");
        store.write(|tx| tx.vacuum_step(100)).unwrap();
        let after = store.database_size().unwrap();
        assert_eq!((before.bytes - after.bytes, before.free_bytes - after.free_bytes), (409_600, 409_600));
    }

    #[test]
    fn compaction_uses_a_file_and_enables_incremental_vacuum() {
        let folder = tempfile::tempdir().unwrap();
        drop(with_free_pages(folder.path()));
        let path = folder.path().join("petasos.db");
        let old = rusqlite::Connection::open(&path).unwrap();
        old.execute_batch("PRAGMA auto_vacuum = NONE; PRAGMA journal_mode = DELETE; VACUUM;").unwrap();
        drop(old);
        let mut store = Store::open(&path).unwrap();
        let text = "y".repeat(1000);
        store
            .write(|tx| (0..6000).try_for_each(|number| tx.put_meta(&format!("kept {number}"), &text)))
            .unwrap();
        assert!(!store.database_size().unwrap().incremental);
        let seen = Arc::new(AtomicBool::new(false));
        let sight = seen.clone();
        let home = folder.path().to_owned();
        let look = move || {
            let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
            let temporary =
                |link: PathBuf| link.starts_with(&home) && link.to_string_lossy().contains("etilqs_");
            if open.filter_map(|it| std::fs::read_link(it.path()).ok()).any(temporary) {
                sight.store(true, Ordering::Relaxed);
            }
            false
        };
        store.0.progress_handler(5000, Some(look)).unwrap();
        store.compact().unwrap();
        assert!(seen.load(Ordering::Relaxed), "the copy is built in a file");
        let size = store.database_size().unwrap();
        assert!(size.incremental && size.free_bytes == 0, "{size:?}");
    }
}
