//! Retention: archives or deletes old conversations, returns free pages to the file system, and warns the owner before the
//! disk is full.
//!
//! Owns `<home>/archive`. Works in small steps with pauses, so that messages never wait long. After a crash between two
//! steps a conversation is either complete or archived (see `petasos_store`, module `archive`).

pub mod disk;
pub mod file;
mod folder;

use std::path::Path;
use std::time::Duration;

use petasos_core::{Millis, Route};
use petasos_store::{ArchiveCandidate, ArchiveRule, DatabaseSize, Error as StoreError, Reader};

use crate::background::notifications::Notifications;
use crate::links::outages;
use crate::notices::storage as notices;
use crate::runtime::commit::Commit;
use crate::storage::database::Db;
use crate::{Error, clock};

use disk::{DiskLimits, DiskSpace};
use folder::ArchiveFolder;

const STEP_PAUSE: Duration = Duration::from_millis(250);
const WARNING_INTERVAL: Duration = Duration::from_secs(24 * 3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Conversations used more recently stay, whatever the size of the database.
const MIN_UNUSED: Duration = Duration::from_secs(3600);
/// The same for conversations bound to a chat or a program, unless the age limit is lower.
const MIN_UNUSED_BOUND: Duration = Duration::from_secs(7 * 24 * 3600);
const VACUUM_PAGES: u32 = 128;
/// Free pages that are kept for new rows.
const SPARE_BYTES: u64 = 1 << 20;
/// Meta key: when archiving was announced first.
const ANNOUNCED_KEY: &str = "archive_announced_at";

/// Retention policy for unused conversations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RetentionAction {
    Keep,
    /// Move them to files in `<home>/archive`.
    #[default]
    Archive,
    Delete,
}

impl RetentionAction {
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
    pub mode: RetentionAction,
    pub every: Duration,
    /// Age limit of unused closed conversations; `None`: none.
    pub age: Option<Duration>,
    /// Size limit of the database; `None`: none. Above it, closed conversations leave at any age: first ended and unbound
    /// ones, then others after a week without use.
    pub database: Option<u64>,
    /// Time between the announcement and the first removal.
    pub notice: Duration,
    /// Age limit of archives; `None`: none.
    pub archives: Option<Duration>,
    pub topics: Option<Duration>,
    pub disk: DiskLimits,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            mode: RetentionAction::Archive,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepResult {
    More,
    Done,
    /// Announced the start of removals; notices for the owner are in the outbox.
    Announced(Millis),
}

pub(crate) async fn run(policy: Retention, notifications: Notifications) {
    petasos_runtime::select! {
        () = notifications.shutdown.stopped() => {}
        () = run_steps(&policy, &notifications) => {}
    }
}

async fn run_steps(policy: &Retention, notifications: &Notifications) {
    let every = policy.every;
    let mut pause = every;
    let mut warned = None;
    let mut folder = ArchiveFolder::default();
    loop {
        clock::sleep(pause).await;
        let now = clock::now();
        let homes = notifications.homes.routes();
        pause = match step(&notifications.db, &notifications.home, policy, &homes, &mut folder, now).await {
            Ok(StepResult::More) => STEP_PAUSE,
            Ok(StepResult::Done) => every,
            Ok(StepResult::Announced(from)) => {
                tracing::warn!(homes = homes.len(), "{}", announcement(policy, from));
                for route in homes {
                    notifications.lanes.wake(route.lane()).await;
                }
                if policy.notice.is_zero() { STEP_PAUSE } else { every }
            }
            Err(error) => {
                tracing::warn!(%error, "retention failed; trying again");
                every
            }
        };
        if pause == every {
            warn_owner(policy, notifications, &mut warned, now).await;
        }
    }
}

async fn warn_owner(
    policy: &Retention,
    notifications: &Notifications,
    warned: &mut Option<Millis>,
    now: Millis,
) {
    if warned.is_some_and(|at: Millis| now.since(at) < WARNING_INTERVAL) {
        return;
    }
    let warning = match storage_status(&notifications.db, &notifications.home, policy, now).await {
        Ok(storage) => storage.warning,
        Err(error) => {
            tracing::warn!(%error, "cannot read the size of the database");
            return;
        }
    };
    let Some(warning) = warning else { return };
    tracing::warn!(warning, "storage is running out");
    notifications.notify_owner(&notices::warning(&warning)).await;
    *warned = Some(now);
}

fn announcement(policy: &Retention, from: Millis) -> String {
    let day = petasos_store::local_time(from).to_string();
    let day = day.split('T').next().unwrap_or_default();
    match policy.mode {
        RetentionAction::Archive => notices::archiving_announced(day),
        RetentionAction::Delete | RetentionAction::Keep => notices::deletion_announced(day),
    }
}

#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct StorageStatus {
    pub database_bytes: u64,
    /// In unused pages of the database.
    pub free_bytes: u64,
    /// Total size of `<home>/archive`.
    pub archive_bytes: u64,
    /// `None`: less than a day of data.
    pub growth_per_day: Option<i64>,
    pub disk_free_bytes: Option<u64>,
    /// Start of removals; `None`: not announced yet.
    pub archiving_from: Option<Millis>,
    pub warning: Option<String>,
}

pub(crate) async fn storage_status(
    db: &Db,
    home: &Path,
    policy: &Retention,
    now: Millis,
) -> Result<StorageStatus, Error> {
    let limits = policy.clone();
    let asked = move |reader: &Reader| {
        let size = reader.database_size()?;
        let stuck = limits.mode != RetentionAction::Keep
            && limits.is_exceeded_by(size)
            && next_leaving(reader, &rules(&limits, size, now))?.is_none();
        Ok((size, stuck, reader.archive_bytes()?, reader.growth_per_day(now)?, announced(reader)?))
    };
    let (size, stuck, archive_bytes, growth_per_day, announced) = db.read(asked).await?;
    let found = DiskSpace::of(home);
    let full = found.and_then(|disk| disk.warning(growth_per_day, policy.disk));
    Ok(StorageStatus {
        database_bytes: size.bytes,
        free_bytes: size.free_bytes,
        archive_bytes,
        growth_per_day,
        disk_free_bytes: found.map(|disk| disk.free),
        archiving_from: announced.map(|at| at.after(policy.notice)),
        warning: full.or_else(|| stuck.then(|| too_large(size))),
    })
}

fn too_large(size: DatabaseSize) -> String {
    notices::database_too_large(size.used_bytes() >> 20)
}

pub fn announced(reader: &Reader) -> Result<Option<Millis>, StoreError> {
    Ok(reader.meta(ANNOUNCED_KEY)?.and_then(|text| text.parse().ok()).map(Millis))
}

async fn step(
    db: &Db,
    home: &Path,
    policy: &Retention,
    homes: &[Route],
    folder: &mut ArchiveFolder,
    now: Millis,
) -> Result<StepResult, Error> {
    let topics = policy.topics.map(|age| now.before(age));
    let removed = db.write(Commit::Sweep, move |tx| {
        tx.sample_size(now)?;
        let forgotten = topics.map_or(Ok(0), |before| tx.prune_topics(before))?;
        Ok(tx.remove_archived()?.more || forgotten > 0)
    });
    if removed.await? {
        return Ok(StepResult::More);
    }
    let size = db.read(|reader| reader.database_size()).await?;
    if can_shrink(size) {
        db.write(Commit::Sweep, |tx| tx.vacuum_step(VACUUM_PAGES)).await?;
        return Ok(StepResult::More);
    }
    if folder.step(db, home, policy.archives, now).await? {
        return Ok(StepResult::More);
    }
    let rules = rules(policy, size, now);
    let Some(it) = db.read(move |reader| next_leaving(reader, &rules)).await? else {
        return Ok(StepResult::Done);
    };
    match db.read(announced).await? {
        None => {
            let from = now.after(policy.notice);
            let notices = outages::notices(homes, &announcement(policy, from));
            let announce = db.write(Commit::Sweep, move |tx| {
                tx.put_meta(ANNOUNCED_KEY, &now.0.to_string())?;
                tx.apply(&notices, now)
            });
            announce.await?;
            return Ok(StepResult::Announced(from));
        }
        Some(at) if now < at.after(policy.notice) => return Ok(StepResult::Done),
        Some(_) => {}
    }
    archive_or_delete(db, home, policy.mode, it, now).await
}

/// Whether enough pages are free to return some to the file system.
fn can_shrink(size: DatabaseSize) -> bool {
    size.incremental && size.free_bytes > SPARE_BYTES.max(size.used_bytes() / 20)
}

/// Rules by which conversations may be removed, in order of priority.
fn rules(policy: &Retention, size: DatabaseSize, now: Millis) -> Vec<ArchiveRule> {
    if policy.mode == RetentionAction::Keep {
        return Vec::new();
    }
    let by_age = policy.age.map(|age| now.before(age.max(MIN_UNUSED)));
    if !policy.is_exceeded_by(size) {
        return by_age.map(ArchiveRule::Since).into_iter().collect();
    }
    let quiet = now.before(MIN_UNUSED_BOUND);
    vec![
        ArchiveRule::UnboundSince(now.before(MIN_UNUSED)),
        ArchiveRule::Since(by_age.map_or(quiet, |by_age| by_age.max(quiet))),
    ]
}

fn next_leaving(reader: &Reader, rules: &[ArchiveRule]) -> Result<Option<ArchiveCandidate>, StoreError> {
    for rule in rules {
        if let Some(it) = reader.archivable(*rule)? {
            return Ok(Some(it));
        }
    }
    Ok(None)
}

async fn archive_or_delete(
    db: &Db,
    home: &Path,
    mode: RetentionAction,
    it: ArchiveCandidate,
    now: Millis,
) -> Result<StepResult, Error> {
    let folder = file::folder(home);
    let file = match mode {
        RetentionAction::Keep => return Ok(StepResult::Done),
        RetentionAction::Delete => None,
        RetentionAction::Archive => {
            let it = it.clone();
            let folder = folder.clone();
            Some(db.read(move |reader| file::write(reader, &it, &folder)).await?)
        }
    };
    let name = file.as_ref().map(|(name, _)| name.clone());
    let taken = db.write(Commit::Archive, move |tx| {
        let file = file.as_ref().map(|(name, bytes)| (name.as_str(), *bytes));
        tx.archive_session(&it, file, now)
    });
    if taken.await? {
        return Ok(StepResult::More);
    }
    // The conversation was used meanwhile, so its archive is outdated.
    if let Some(name) = name {
        remove(&folder.join(name)).await?;
    }
    Ok(StepResult::Done)
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
