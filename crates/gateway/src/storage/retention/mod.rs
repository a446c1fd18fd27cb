//! Retention: old conversations are archived or deleted, free pages go back to the file system, and the owner is warned
//! before the disk is full.
//!
//! Owns `<home>/archive`. One small step at a time, each behind a pause, so that no message waits long for one. A crash
//! between two steps leaves a conversation whole, or its archive (see `petasos_store`, module `archive`).

pub mod disk;
pub mod file;
mod folder;

use std::path::Path;
use std::time::Duration;

use petasos_core::{Millis, Route};
use petasos_store::{Archivable, DatabaseSize, Error as StoreError, Reader, Unused};

use crate::background::notifications::Notifications;
use crate::links::outages;
use crate::runtime::commit::Commit;
use crate::storage::database::Db;
use crate::{Error, clock};

use disk::{Disk, DiskLimits};
use folder::Folder;

const PAUSE: Duration = Duration::from_millis(250);
/// A warning is repeated after this long.
const WARN_EVERY: Duration = Duration::from_secs(24 * 3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// However large the database is, a conversation used since then stays.
const YOUNGEST: Duration = Duration::from_secs(3600);
/// The same for one that a chat or a program is bound to, unless the age limit is lower.
const YOUNGEST_BOUND: Duration = Duration::from_secs(7 * 24 * 3600);
/// Pages given back in one commit.
const VACUUM_PAGES: u32 = 128;
/// Free pages up to this size are kept for new rows.
const SPARE: u64 = 1 << 20;
/// When the first archive was announced.
const ANNOUNCED: &str = "archive_announced_at";

/// Retention policy for unused conversations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// They stay in the database.
    Keep,
    /// They become files in `<home>/archive`.
    #[default]
    Archive,
    Delete,
}

impl Mode {
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "keep" => Some(Self::Keep),
            "archive" => Some(Self::Archive),
            "delete" => Some(Self::Delete),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    pub mode: Mode,
    /// How often old conversations are looked for.
    pub every: Duration,
    /// Closed conversations unused for this long are archived or deleted; `None`: no age limit.
    pub age: Option<Duration>,
    /// Above this many bytes closed conversations leave whatever their age: first those that ended or that nothing is
    /// bound to, then the others after a week without use; `None`: no limit.
    pub database: Option<u64>,
    /// The first conversation leaves this long after the announcement.
    pub notice: Duration,
    /// Archives are deleted after this long; `None`: never.
    pub archives: Option<Duration>,
    /// Ids of topics are forgotten after this long without use.
    pub topics: Option<Duration>,
    pub disk: DiskLimits,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            mode: Mode::Archive,
            every: Duration::from_secs(300),
            age: Some(180 * DAY),
            database: Some(4 << 30),
            notice: 7 * DAY,
            archives: None,
            topics: Some(365 * DAY),
            disk: DiskLimits::default(),
        }
    }
}

impl Retention {
    fn is_exceeded_by(&self, size: DatabaseSize) -> bool {
        self.database.is_some_and(|most| size.used_bytes() > most)
    }
}

/// Result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// There may be more to do at once.
    More,
    Done,
    /// Conversations will leave from then on; notices for the owner are in the outbox.
    Announced(Millis),
}

pub(crate) async fn run(terms: Retention, notifications: Notifications) {
    petasos_runtime::select! {
        () = notifications.stopper.stopped() => {}
        () = keep(&terms, &notifications) => {}
    }
}

async fn keep(terms: &Retention, notifications: &Notifications) {
    let every = terms.every;
    let (mut pause, mut warned, mut folder) = (every, None, Folder::default());
    loop {
        tokio::time::sleep(pause).await;
        let now = clock::now();
        let homes = notifications.homes.routes();
        pause = match step(&notifications.db, &notifications.home, terms, &homes, &mut folder, now).await {
            Ok(Step::More) => PAUSE,
            Ok(Step::Done) => every,
            Ok(Step::Announced(from)) => {
                tracing::warn!(homes = homes.len(), "{}", announcement(terms, from));
                for route in homes {
                    notifications.deliver.due(route.lane()).await;
                }
                if terms.notice.is_zero() { PAUSE } else { every }
            }
            Err(error) => {
                tracing::warn!(%error, "retention failed; it is tried again");
                every
            }
        };
        if pause == every {
            warn(terms, notifications, &mut warned, now).await;
        }
    }
}

async fn warn(terms: &Retention, notifications: &Notifications, warned: &mut Option<Millis>, now: Millis) {
    if warned.is_some_and(|at: Millis| now.since(at) < WARN_EVERY) {
        return;
    }
    let warning = match storage(&notifications.db, &notifications.home, terms, now).await {
        Ok(storage) => storage.warning,
        Err(error) => {
            tracing::warn!(%error, "cannot read the size of the database");
            return;
        }
    };
    let Some(warning) = warning else { return };
    tracing::warn!(warning, "storage is running out");
    notifications.tell_owner(&format!("⚠️ {warning}")).await;
    *warned = Some(now);
}

fn announcement(terms: &Retention, from: Millis) -> String {
    let day = petasos_store::local_time(from).to_string();
    let day = day.split('T').next().unwrap_or_default();
    let (what, how) = match terms.mode {
        Mode::Archive => (
            "archived",
            " `petasos sessions archive` lists them and `petasos sessions restore` brings one back.",
        ),
        Mode::Delete | Mode::Keep => ("deleted", ""),
    };
    format!(
        "🗄 From {day} on, old unused conversations are {what}.{how} To keep all of them, set \
         `retention.mode: keep`."
    )
}

/// Disk usage for `petasos status`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Storage {
    pub database_bytes: u64,
    /// Of pages in the database that hold nothing.
    pub free_bytes: u64,
    /// Of all files in `<home>/archive`.
    pub archive_bytes: u64,
    /// `None`: it was not watched for a day yet.
    pub growth_per_day: Option<i64>,
    pub disk_free_bytes: Option<u64>,
    /// Old conversations leave from then on; `None`: nothing was announced yet.
    pub archiving_from: Option<Millis>,
    pub warning: Option<String>,
}

pub(crate) async fn storage(db: &Db, home: &Path, terms: &Retention, now: Millis) -> Result<Storage, Error> {
    let limits = terms.clone();
    let asked = move |reader: &Reader| {
        let size = reader.database_size()?;
        let stuck = limits.mode != Mode::Keep
            && limits.is_exceeded_by(size)
            && leaving(reader, &rules(&limits, size, now))?.is_none();
        Ok((size, stuck, reader.archive_bytes()?, reader.growth_per_day(now)?, announced(reader)?))
    };
    let (size, stuck, archive_bytes, growth_per_day, announced) = db.read(asked).await?;
    let found = Disk::of(home);
    let full = found.and_then(|disk| disk.warning(growth_per_day, terms.disk));
    Ok(Storage {
        database_bytes: size.bytes,
        free_bytes: size.free_bytes,
        archive_bytes,
        growth_per_day,
        disk_free_bytes: found.map(|disk| disk.free),
        archiving_from: announced.map(|at| at.after(terms.notice)),
        warning: full.or_else(|| stuck.then(|| too_large(size))),
    })
}

fn too_large(size: DatabaseSize) -> String {
    format!(
        "The database holds {} MB, more than `retention.max_database_mb`, and no conversation may leave yet: all were used \
         lately. Raise the limit, or end conversations with /new.",
        size.used_bytes() >> 20
    )
}

/// When it was announced that conversations will leave.
pub fn announced(reader: &Reader) -> Result<Option<Millis>, StoreError> {
    Ok(reader.meta(ANNOUNCED)?.and_then(|text| text.parse().ok()).map(Millis))
}

/// One bounded piece of work.
async fn step(
    db: &Db,
    home: &Path,
    terms: &Retention,
    homes: &[Route],
    folder: &mut Folder,
    now: Millis,
) -> Result<Step, Error> {
    let topics = terms.topics.map(|age| now.before(age));
    let removed = db.write(Commit::Sweep, move |tx| {
        tx.sample_size(now)?;
        let forgotten = topics.map_or(Ok(0), |before| tx.prune_topics(before))?;
        Ok(tx.remove_archived()?.more || forgotten > 0)
    });
    if removed.await? {
        return Ok(Step::More);
    }
    let size = db.read(|reader| reader.database_size()).await?;
    if is_loose(size) {
        db.write(Commit::Sweep, |tx| tx.vacuum_step(VACUUM_PAGES)).await?;
        return Ok(Step::More);
    }
    if folder.step(db, home, terms.archives, now).await? {
        return Ok(Step::More);
    }
    let rules = rules(terms, size, now);
    let Some(it) = db.read(move |reader| leaving(reader, &rules)).await? else { return Ok(Step::Done) };
    match db.read(announced).await? {
        None => {
            let from = now.after(terms.notice);
            let notices = outages::notices(homes, &announcement(terms, from));
            let announce = db.write(Commit::Sweep, move |tx| {
                tx.put_meta(ANNOUNCED, &now.0.to_string())?;
                tx.apply(&notices, now)
            });
            announce.await?;
            return Ok(Step::Announced(from));
        }
        Some(at) if now < at.after(terms.notice) => return Ok(Step::Done),
        Some(_) => {}
    }
    take_out(db, home, terms.mode, it, now).await
}

/// Whether enough pages are free to give some back.
fn is_loose(size: DatabaseSize) -> bool {
    size.incremental && size.free_bytes > SPARE.max(size.used_bytes() / 20)
}

/// Rules by which conversations may leave; an earlier one goes first.
fn rules(terms: &Retention, size: DatabaseSize, now: Millis) -> Vec<Unused> {
    if terms.mode == Mode::Keep {
        return Vec::new();
    }
    let by_age = terms.age.map(|age| now.before(age.max(YOUNGEST)));
    if !terms.is_exceeded_by(size) {
        return by_age.map(Unused::Since).into_iter().collect();
    }
    let quiet = now.before(YOUNGEST_BOUND);
    vec![
        Unused::UnboundSince(now.before(YOUNGEST)),
        Unused::Since(by_age.map_or(quiet, |by_age| by_age.max(quiet))),
    ]
}

/// The next conversation to archive or delete.
fn leaving(reader: &Reader, rules: &[Unused]) -> Result<Option<Archivable>, StoreError> {
    for rule in rules {
        if let Some(it) = reader.archivable(*rule)? {
            return Ok(Some(it));
        }
    }
    Ok(None)
}

async fn take_out(db: &Db, home: &Path, mode: Mode, it: Archivable, now: Millis) -> Result<Step, Error> {
    let folder = file::folder(home);
    let file = match mode {
        Mode::Keep => return Ok(Step::Done),
        Mode::Delete => None,
        Mode::Archive => {
            let (it, folder) = (it.clone(), folder.clone());
            Some(db.read(move |reader| file::write(reader, &it, &folder)).await?)
        }
    };
    let name = file.as_ref().map(|(name, _)| name.clone());
    let taken = db.write(Commit::Archive, move |tx| {
        let file = file.as_ref().map(|(name, bytes)| (name.as_str(), *bytes));
        tx.take_out(&it, file, now)
    });
    if taken.await? {
        return Ok(Step::More);
    }
    // It was used meanwhile: the file is out of date.
    if let Some(name) = name {
        remove(&folder.join(name)).await?;
    }
    Ok(Step::Done)
}

async fn remove(path: &Path) -> Result<(), Error> {
    match tokio::fs::remove_file(path).await {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::Io(error.to_string())),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod traffic_tests;
