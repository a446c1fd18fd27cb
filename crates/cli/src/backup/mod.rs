//! Backups of a home: one directory each, verified before it gets its final name.
//!
//! A backup is a plain directory, not an archive: every file can be inspected and restored with ordinary
//! tools, and a damaged byte costs one file. It is written as `.part`, synced and renamed. A crash leaves the
//! `.part`, which the next backup in the same directory removes.

mod files;
mod redact;
mod restore;
pub mod schedule;

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use petasos_config::Home;
use petasos_core::Millis;
use petasos_store::{CheckedCopy, Reader, check_copy};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, WRITABLE_ADVICE};
use crate::print;

pub use restore::{Force, restore};

pub const DATABASE: &str = "petasos.db";
const MANIFEST: &str = "manifest.json";
const PREFIX: &str = "petasos-backup-";
const PART: &str = ".part";
/// Lock file of a directory while backups are written or removed in it.
const LOCK: &str = ".lock";
const RESERVED_BYTES: u64 = 16 << 20;

/// Files of a home besides its database; missing ones are skipped.
const FILES: [&str; 2] = ["config.yaml", "channel_aliases.json"];
const FOLDERS: [&str; 3] = ["memories", "hooks", "archive"];
/// Copied only on request.
const SECRETS: [&str; 2] = [".env", "api_key"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretsMode {
    Exclude,
    Include,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Manifest {
    pub made_at: Millis,
    pub version: String,
    pub database: CheckedCopy,
    pub secrets: bool,
    pub files: BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
pub struct CreatedBackup {
    pub path: PathBuf,
    pub bytes: u64,
    pub manifest: Manifest,
    pub removed: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupPlan {
    pub directory: PathBuf,
    pub secrets: SecretsMode,
    /// Number of backups to keep; `None` keeps all.
    pub keep: Option<usize>,
}

/// Creates a backup below `plan.directory`. The gateway may run.
pub fn create(home: &Home, plan: &BackupPlan, now: Millis) -> Result<CreatedBackup, Failure> {
    files::make_private(&plan.directory).map_err(|error| unwritable(&plan.directory, &error))?;
    let _lock = lock_directory(&plan.directory)?;
    remove_parts(&plan.directory).map_err(|error| unwritable(&plan.directory, &error))?;
    let path = plan.directory.join(format!("{PREFIX}{}", stamp(now)));
    let mut backup = create_at(home, &path, plan.secrets, now)?;
    if let Some(keep) = plan.keep {
        backup.removed =
            rotate(&plan.directory, keep).map_err(|error| unwritable(&plan.directory, &error))?;
    }
    Ok(backup)
}

/// Creates a backup at this path, which must not exist.
pub fn create_at(
    home: &Home,
    path: &Path,
    secrets: SecretsMode,
    now: Millis,
) -> Result<CreatedBackup, Failure> {
    if path.exists() {
        let message = format!("{} already exists", path.display());
        return Err(Failure::new(message).next("choose another path with --out, or remove it"));
    }
    let part = files::beside(path, PART);
    files::remove_all(&part).map_err(|error| unwritable(&part, &error))?;
    let backup = write_contents(home, &part, secrets, now).inspect_err(|_| {
        let _ = files::remove_all(&part);
    })?;
    files::sync_tree(&part)
        .and_then(|()| fs::rename(&part, path))
        .and_then(|()| files::sync_parent(path))
        .map_err(|error| unwritable(path, &error))?;
    let bytes = files::size(path).map_err(|error| unwritable(path, &error))?;
    Ok(CreatedBackup { path: path.into(), bytes, manifest: backup, removed: 0 })
}

fn write_contents(home: &Home, part: &Path, secrets: SecretsMode, now: Millis) -> Result<Manifest, Failure> {
    let failed = |error: io::Error| unwritable(part, &error);
    let reader = Reader::open(home.database())?;
    let database = reader.database_size()?.used_bytes();
    ensure_space(files::parent(part), needed(home, database).map_err(failed)?)?;
    files::make_private(part).map_err(failed)?;
    let copy = part.join(DATABASE);
    reader.copy_to(&copy)?;
    files::set_private(&copy).map_err(failed)?;
    let database = check_copy(&copy).map_err(|error| {
        Failure::new(format!("the copy of the database is damaged: {error}"))
            .next("petasos doctor --repair checks and repairs the database")
    })?;
    let wanted = FILES.iter().chain(if secrets == SecretsMode::Include { &SECRETS[..] } else { &[] });
    for name in wanted {
        files::copy(&home.path().join(name), &part.join(name)).map_err(failed)?;
    }
    for name in FOLDERS {
        files::copy_tree(&home.path().join(name), &part.join(name)).map_err(failed)?;
    }
    if secrets == SecretsMode::Exclude {
        redact::config(&part.join("config.yaml")).map_err(failed)?;
    }
    let manifest = Manifest {
        made_at: now,
        version: env!("CARGO_PKG_VERSION").into(),
        database,
        secrets: secrets == SecretsMode::Include,
        files: files::digests(part).map_err(failed)?,
    };
    let text = serde_json::to_vec_pretty(&manifest).map_err(|error| failed(error.into()))?;
    files::write(&part.join(MANIFEST), &text).map_err(failed)?;
    Ok(manifest)
}

/// Locks a directory, so that no other process's `.part` is removed.
fn lock_directory(directory: &Path) -> Result<File, Failure> {
    let path = directory.join(LOCK);
    let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = file.map_err(|error| unwritable(&path, &error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let message = format!("another backup is being made in {}", directory.display());
            Err(Failure::new(message)
                .next("wait until it is complete, or choose another directory with --out"))
        }
        Err(TryLockError::Error(error)) => Err(unwritable(&path, &error)),
    }
}

/// Removes incomplete backups of killed processes.
fn remove_parts(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(PREFIX) && name.ends_with(PART) {
            files::remove_all(&entry.path())?;
        }
    }
    Ok(())
}

fn needed(home: &Home, database: u64) -> io::Result<u64> {
    let names = FILES.iter().chain(&FOLDERS);
    names
        .map(|name| files::size(&home.path().join(name)))
        .try_fold(database + RESERVED_BYTES, |sum, it| Ok(sum + it?))
}

fn ensure_space(directory: &Path, needed: u64) -> Result<(), Failure> {
    let free = files::free_space(directory).map_err(|error| unwritable(directory, &error))?;
    if free >= needed {
        return Ok(());
    }
    let needed = needed.div_ceil(1 << 20);
    let free = free >> 20;
    let message = format!("not enough space in {}: {needed} MB needed, {free} MB free", directory.display());
    Err(Failure::new(message)
        .next("free some space, or choose another directory with --out or backup.directory"))
}

pub fn newest(directory: &Path) -> Option<(PathBuf, Millis)> {
    let path = list(directory).ok()?.pop()?;
    let manifest = read_manifest(&path).ok()?;
    Some((path, manifest.made_at))
}

pub fn read_manifest(path: &Path) -> io::Result<Manifest> {
    Ok(serde_json::from_slice(&fs::read(path.join(MANIFEST))?)?)
}

fn list(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(PREFIX) && path.join(MANIFEST).exists() && !name.ends_with(PART) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn rotate(directory: &Path, keep: usize) -> io::Result<usize> {
    let all = list(directory)?;
    let old = &all[..all.len().saturating_sub(keep.max(1))];
    for path in old {
        // Renamed first: a half-removed backup must not look complete.
        let gone = files::beside(path, PART);
        fs::rename(path, &gone)?;
        files::remove_all(&gone)?;
    }
    Ok(old.len())
}

pub fn stamp(now: Millis) -> String {
    let moment = i64::try_from(now.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    moment.unwrap_or_default().strftime("%Y%m%dT%H%M%S%3fZ").to_string()
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display())).next(WRITABLE_ADVICE)
}

/// `3 h ago (PATH)`, for status and doctor.
pub fn summary(directory: &Path, now: Millis) -> Option<String> {
    newest(directory).map(|(path, at)| format!("{} ({})", print::ago(at, now), path.display()))
}
