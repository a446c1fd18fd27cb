//! Puts a backup in the place of a home's database and files.

use std::fs;
use std::path::{Path, PathBuf};

use petasos_config::Home;
use petasos_core::Millis;
use petasos_store::{Reader, check_copy, mark_restored};
use serde::Serialize;

use super::{DATABASE, FILES, FOLDERS, Manifest, SECRETS, files, read_manifest, unwritable};
use crate::failure::Failure;
use crate::lock;

/// Whether a home that is newer than the backup is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    No,
    Yes,
}

#[derive(Debug, Serialize)]
pub struct Restored {
    pub home: PathBuf,
    /// What was there before; `None`: nothing.
    pub replaced: Option<PathBuf>,
    pub manifest: Manifest,
}

/// Checks the backup, then puts it in place. What was there is kept aside.
pub fn restore(home: &Home, backup: &Path, force: Force, now: Millis) -> Result<Restored, Failure> {
    let manifest = verify(backup)?;
    // A gateway that runs holds the home.
    let _lock = lock::take(home)?;
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
    let replaced = put_aside(home, &staged, &aside).map_err(failed)?;
    put_in_place(home, &staged).map_err(failed)?;
    files::remove_all(&staged).map_err(failed)?;
    Ok(Restored { home: home.path().into(), replaced: replaced.then_some(aside), manifest })
}

/// Everything the manifest names is there and unchanged, and the database is sound.
fn verify(backup: &Path) -> Result<Manifest, Failure> {
    let next = "choose another backup: petasos backup lists where they are made";
    let manifest = read_manifest(backup)
        .map_err(|error| Failure::new(format!("{} is no backup: {error}", backup.display())).next(next))?;
    let mut found = files::digests(backup).map_err(|error| unwritable(backup, &error))?;
    found.remove(super::MANIFEST);
    let differs = manifest.files.iter().find(|(name, digest)| found.get(*name) != Some(digest));
    if let Some((name, _)) = differs {
        let what = format!("{} in {} is missing or was changed", name, backup.display());
        return Err(Failure::new(what).next(next));
    }
    let checked =
        check_copy(&backup.join(DATABASE)).map_err(|error| Failure::new(error.to_string()).next(next))?;
    if checked != manifest.database {
        let what = format!("the database in {} is another one than its manifest says", backup.display());
        return Err(Failure::new(what).next(next));
    }
    Ok(manifest)
}

fn refuse_newer(home: &Home, manifest: &Manifest) -> Result<(), Failure> {
    if !home.database().exists() {
        return Ok(());
    }
    let next = "--force replaces it all the same; what is there now is kept aside";
    let found = Reader::open(home.database()).map_err(|error| error.to_string());
    let found = found.and_then(|reader| reader.progress().map_err(|error| error.to_string()));
    let found = found.map_err(|error| {
        Failure::new(format!("how new the home's database is cannot be told: {error}")).next(next)
    })?;
    if found.is_newer_than(&manifest.database.progress) {
        let what = format!("{} is newer than the backup", home.database().display());
        return Err(Failure::new(what).next(next));
    }
    Ok(())
}

/// What the backup replaces goes into a directory of its own. Log and shared memory belong to their database.
fn put_aside(home: &Home, staged: &Path, aside: &Path) -> std::io::Result<bool> {
    // With the database go the notes about it: a recovery, a salvage or damage of the old one is not of the new one.
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

/// The database last: until it is there, no gateway starts with half a home.
fn put_in_place(home: &Home, staged: &Path) -> std::io::Result<()> {
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
