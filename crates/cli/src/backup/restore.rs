//! Restores a backup over a home's database and files.
//!
//! The backup is verified, copied into `.restore.part`, synced and verified again. The existing files move to
//! `replaced-TIME`; then the restored ones move in, the database last. A crash in between leaves a home
//! without a database, and `replaced-TIME` with the old one.

use std::path::{Path, PathBuf};
use std::{fs, io};

use petasos_config::Home;
use petasos_core::Millis;
use petasos_store::{Reader, check_copy, mark_restored};
use serde::Serialize;

use super::{DATABASE, FILES, FOLDERS, Manifest, SECRETS, files, read_manifest, unwritable};
use crate::failure::Failure;
use crate::lock;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    No,
    Yes,
}

#[derive(Debug, Serialize)]
pub struct RestoreResult {
    pub home: PathBuf,
    /// Directory with the replaced files; `None` if there were none.
    pub replaced: Option<PathBuf>,
    pub manifest: Manifest,
}

pub fn restore(home: &Home, backup: &Path, force: Force, now: Millis) -> Result<RestoreResult, Failure> {
    let manifest = verify(backup)?;
    let _lock = lock::acquire(home)?;
    if force == Force::No {
        refuse_newer(home, &manifest)?;
    }
    let failed = |error: std::io::Error| unwritable(home.path(), &error);
    let staged = home.path().join(".restore.part");
    files::remove_all(&staged).map_err(failed)?;
    files::copy_tree(backup, &staged).map_err(failed)?;
    verify(&staged)?;
    mark_restored(&staged.join(DATABASE), manifest.made_at, now)?;
    files::sync_tree(&staged).map_err(failed)?;
    let aside = home.path().join(format!("replaced-{}", super::stamp(now)));
    let replaced = move_existing(home, &staged, &aside).map_err(failed)?;
    install(home, &staged).map_err(failed)?;
    files::remove_all(&staged).map_err(failed)?;
    Ok(RestoreResult { home: home.path().into(), replaced: replaced.then_some(aside), manifest })
}

/// Checks that every file of the manifest is present and unchanged, and that the database is intact.
fn verify(backup: &Path) -> Result<Manifest, Failure> {
    let next = "choose another backup; backups are stored in backup.directory (petasos config explain backup.directory)";
    let manifest = read_manifest(backup)
        .map_err(|error| Failure::new(describe_unreadable(backup, &error)).next(next))?;
    let mut found = files::digests(backup).map_err(|error| unwritable(backup, &error))?;
    found.remove(super::MANIFEST);
    let differs = manifest.files.iter().find(|(name, digest)| found.get(*name) != Some(digest));
    if let Some((name, _)) = differs {
        let message = format!("{} in {} is missing or was modified", name, backup.display());
        return Err(Failure::new(message).next(next));
    }
    let checked =
        check_copy(&backup.join(DATABASE)).map_err(|error| Failure::new(error.to_string()).next(next))?;
    if checked != manifest.database {
        let message = format!("the database in {} does not match its manifest", backup.display());
        return Err(Failure::new(message).next(next));
    }
    Ok(manifest)
}

fn describe_unreadable(backup: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound if backup.is_dir() => {
            format!("{} is not a backup: the file {} is missing", backup.display(), super::MANIFEST)
        }
        io::ErrorKind::NotFound => {
            format!("{} is not a backup: there is no such directory", backup.display())
        }
        _ => format!("{} is not a backup: {error}", backup.display()),
    }
}

fn refuse_newer(home: &Home, manifest: &Manifest) -> Result<(), Failure> {
    if !home.database().exists() {
        return Ok(());
    }
    let next = "--force replaces it anyway and keeps the current files";
    let found = Reader::open(home.database()).map_err(|error| error.to_string());
    let found = found.and_then(|reader| reader.progress().map_err(|error| error.to_string()));
    let found = found.map_err(|error| {
        Failure::new(format!("the age of the home's database is unknown: {error}")).next(next)
    })?;
    if found.is_newer_than(&manifest.database.progress) {
        let message = format!("{} is newer than the backup", home.database().display());
        return Err(Failure::new(message).next(next));
    }
    Ok(())
}

/// Moves the files that the backup replaces into `aside`, with the write-ahead log and shared memory of their
/// database.
fn move_existing(home: &Home, staged: &Path, aside: &Path) -> std::io::Result<bool> {
    // Recovery, salvage and damage notes belong to the old database.
    let notes = ["petasos.db-recovery", "petasos.db-damaged", "petasos.db-salvage.json", ".petasos.db-map"];
    let mut names = vec!["petasos.db-wal", "petasos.db-shm", DATABASE];
    names.extend(notes);
    names.extend(names_in(staged));
    let there: Vec<_> = names.into_iter().filter(|name| home.path().join(name).exists()).collect();
    if there.is_empty() {
        return Ok(false);
    }
    files::make_private(aside)?;
    for name in there {
        fs::rename(home.path().join(name), aside.join(name))?;
    }
    files::sync_parent(&aside.join(DATABASE))?;
    files::sync_parent(aside)?;
    Ok(true)
}

/// The database last: without it no gateway starts on a half-restored home.
fn install(home: &Home, staged: &Path) -> std::io::Result<()> {
    for name in names_in(staged).into_iter().chain([DATABASE]) {
        fs::rename(staged.join(name), home.path().join(name))?;
    }
    files::write(&home.database_marker(), b"A Petasos database was restored in this directory.\n")?;
    files::sync_parent(&home.database())
}

fn names_in(staged: &Path) -> Vec<&'static str> {
    let names = FILES.into_iter().chain(FOLDERS).chain(SECRETS);
    names.filter(|name| staged.join(name).exists()).collect()
}
