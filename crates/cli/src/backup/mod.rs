//! Backups of a home: one directory each, complete or absent, checked before it gets its name.
//!
//! A plain directory and not an archive: every file in it can be looked at, copied and restored with ordinary tools,
//! and a damaged byte costs one file. It is written under another name (`.part`), synced, and renamed. A crash leaves the
//! `.part`, which the next backup in the same directory removes.

mod files;
mod redact;
mod restore;
pub mod schedule;

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use petasos_config::Home;
use petasos_core::Millis;
use petasos_store::{Checked, Reader, check_copy};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, WRITABLE};
use crate::print;

pub use restore::{Force, restore};

pub const DATABASE: &str = "petasos.db";
const MANIFEST: &str = "manifest.json";
const PREFIX: &str = "petasos-backup-";
/// Suffix of what is incomplete: being written, or being removed.
const PART: &str = ".part";
/// Held while backups of a directory are written or removed.
const LOCK: &str = ".lock";
/// Kept free beside a backup.
const MARGIN: u64 = 16 << 20;

/// What a home is made of besides its database; what does not exist is left out.
const FILES: [&str; 2] = ["config.yaml", "channel_aliases.json"];
const FOLDERS: [&str; 3] = ["memories", "hooks", "archive"];
/// Only if asked for.
const SECRETS: [&str; 2] = [".env", "api_key"];

/// Whether credentials are part of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secrets {
    LeaveOut,
    Include,
}

/// What is in a backup.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Manifest {
    pub made_at: Millis,
    pub version: String,
    pub database: Checked,
    pub secrets: bool,
    /// SHA-256 by path.
    pub files: BTreeMap<String, String>,
}

/// A backup that was made.
#[derive(Debug, Serialize)]
pub struct Made {
    pub path: PathBuf,
    pub bytes: u64,
    pub manifest: Manifest,
    /// Older ones that went.
    pub removed: usize,
}

/// Where and how backups are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub directory: PathBuf,
    pub secrets: Secrets,
    /// The newest that stay; `None`: all of them.
    pub keep: Option<usize>,
}

/// Makes a backup below `plan.directory`. The gateway may run.
pub fn make(home: &Home, plan: &Plan, now: Millis) -> Result<Made, Failure> {
    files::make_private(&plan.directory).map_err(|error| unwritable(&plan.directory, &error))?;
    let _lock = lock(&plan.directory)?;
    remove_parts(&plan.directory).map_err(|error| unwritable(&plan.directory, &error))?;
    let path = plan.directory.join(format!("{PREFIX}{}", stamp(now)));
    let mut made = make_at(home, &path, plan.secrets, now)?;
    if let Some(keep) = plan.keep {
        made.removed = rotate(&plan.directory, keep).map_err(|error| unwritable(&plan.directory, &error))?;
    }
    Ok(made)
}

/// Makes a backup at this path, where nothing may be yet.
pub fn make_at(home: &Home, path: &Path, secrets: Secrets, now: Millis) -> Result<Made, Failure> {
    if path.exists() {
        let what = format!("{} exists", path.display());
        return Err(Failure::new(what).next("choose another name with --out, or remove it"));
    }
    let part = files::beside(path, PART);
    files::remove_all(&part).map_err(|error| unwritable(&part, &error))?;
    let made = fill(home, &part, secrets, now).inspect_err(|_| {
        // What is left of a failed try is worth nothing.
        let _ = files::remove_all(&part);
    })?;
    files::sync_tree(&part)
        .and_then(|()| fs::rename(&part, path))
        .and_then(|()| files::sync_parent(path))
        .map_err(|error| unwritable(path, &error))?;
    let bytes = files::size(path).map_err(|error| unwritable(path, &error))?;
    Ok(Made { path: path.into(), bytes, manifest: made, removed: 0 })
}

fn fill(home: &Home, part: &Path, secrets: Secrets, now: Millis) -> Result<Manifest, Failure> {
    let failed = |error: io::Error| unwritable(part, &error);
    let reader = Reader::open(home.database())?;
    let database = reader.database_size()?.used_bytes();
    ensure_space(files::parent(part), needed(home, database).map_err(failed)?)?;
    files::make_private(part).map_err(failed)?;
    let copy = part.join(DATABASE);
    reader.copy_to(&copy)?;
    files::set_private(&copy).map_err(failed)?;
    let database = check_copy(&copy).map_err(|error| {
        Failure::new(format!("the copy is not sound: {error}")).next("petasos doctor --repair")
    })?;
    let wanted = FILES.iter().chain(if secrets == Secrets::Include { &SECRETS[..] } else { &[] });
    for name in wanted {
        files::copy(&home.path().join(name), &part.join(name)).map_err(failed)?;
    }
    for name in FOLDERS {
        files::copy_tree(&home.path().join(name), &part.join(name)).map_err(failed)?;
    }
    if secrets == Secrets::LeaveOut {
        redact::config(&part.join("config.yaml")).map_err(failed)?;
    }
    let manifest = Manifest {
        made_at: now,
        version: env!("CARGO_PKG_VERSION").into(),
        database,
        secrets: secrets == Secrets::Include,
        files: files::digests(part).map_err(failed)?,
    };
    let text = serde_json::to_vec_pretty(&manifest).map_err(|error| failed(error.into()))?;
    files::write(&part.join(MANIFEST), &text).map_err(failed)?;
    Ok(manifest)
}

/// The guard of a directory: the `.part` that another process writes must not be removed.
fn lock(directory: &Path) -> Result<File, Failure> {
    let path = directory.join(LOCK);
    let file = File::options().write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(|error| unwritable(&path, &error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let what = format!("another backup is being made in {}", directory.display());
            Err(Failure::new(what).next("wait until it is complete, or choose another place with --out"))
        }
        Err(TryLockError::Error(error)) => Err(unwritable(&path, &error)),
    }
}

/// A killed process leaves them, as large as the backup they should have become.
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
        .try_fold(database + MARGIN, |sum, it| Ok(sum + it?))
}

fn ensure_space(directory: &Path, needed: u64) -> Result<(), Failure> {
    let free = files::free_space(directory).map_err(|error| unwritable(directory, &error))?;
    if free >= needed {
        return Ok(());
    }
    let (needed, free) = (needed.div_ceil(1 << 20), free >> 20);
    let what =
        format!("not enough space in {}: {needed} MB are needed, {free} MB are free", directory.display());
    Err(Failure::new(what).next("make space, or choose another place with --out or backup.directory"))
}

/// The newest backup of a directory, by its name.
pub fn newest(directory: &Path) -> Option<(PathBuf, Millis)> {
    let path = list(directory).ok()?.pop()?;
    let manifest = read_manifest(&path).ok()?;
    Some((path, manifest.made_at))
}

pub fn read_manifest(path: &Path) -> io::Result<Manifest> {
    Ok(serde_json::from_slice(&fs::read(path.join(MANIFEST))?)?)
}

/// Complete backups, the oldest first.
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
        // Under another name first: half a backup must not look like one.
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
    Failure::new(format!("{}: {error}", path.display())).next(WRITABLE)
}

/// `3 h ago, in DIRECTORY`, for status and doctor.
pub fn about(directory: &Path, now: Millis) -> Option<String> {
    newest(directory).map(|(path, at)| format!("{} ({})", print::ago(at, now), path.display()))
}
