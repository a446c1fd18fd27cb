//! How large the database is, how it grows, and giving free pages back to the file system in small steps.

use std::time::Duration;

use petasos_core::Millis;

use crate::error::Result;
use crate::group::{Reads, Tx};
use crate::value::count;

const SAMPLES: &str = "database_size_samples";
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Samples that are kept, one a day.
const KEPT: usize = 15;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DatabaseSize {
    pub bytes: u64,
    /// Of pages that hold nothing: new rows use them before the file grows.
    pub free_bytes: u64,
    /// Whether free pages can be given back step by step.
    pub incremental: bool,
}

impl DatabaseSize {
    /// Of pages that hold something.
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

    /// Bytes by which the database grows in a day; `None`: it was not watched for a day yet.
    pub fn growth_per_day(&self, now: Millis) -> Result<Option<i64>> {
        let samples = self.samples()?;
        let used = self.database_size()?.used_bytes();
        Ok(samples.first().and_then(|(at, then)| growth(*at, *then, now, used)))
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
    /// Notes the size, once a day.
    pub fn sample_size(&self, now: Millis) -> Result<()> {
        let mut samples = self.samples()?;
        samples.retain(|(at, _)| *at <= now);
        if samples.last().is_some_and(|(at, _)| now.since(*at) < DAY) {
            return Ok(());
        }
        samples.push((now, self.database_size()?.used_bytes()));
        let excess = samples.len().saturating_sub(KEPT);
        let texts: Vec<String> =
            samples.iter().skip(excess).map(|(at, bytes)| format!("{}:{bytes}", at.0)).collect();
        self.put_meta(SAMPLES, &texts.join(","))
    }

    /// Gives at most `pages` free pages back to the file system.
    pub fn vacuum_step(&self, pages: u32) -> Result<()> {
        let mut vacuum = self.sql(&format!("PRAGMA incremental_vacuum({pages})"))?;
        let mut steps = vacuum.query([])?;
        while steps.next()?.is_some() {}
        Ok(())
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
    use super::*;

    #[test]
    fn growth_is_known_after_a_day_and_may_be_negative() {
        let day = |days: u64| Millis(days * 86_400_000);
        assert_eq!(growth(day(1), 1_000, Millis(day(2).0 - 1), 9_000), None);
        assert_eq!(growth(day(1), 1_000, day(5), 9_000), Some(2_000));
        assert_eq!(growth(day(1), 9_000, day(5), 1_000), Some(-2_000));
    }
}
