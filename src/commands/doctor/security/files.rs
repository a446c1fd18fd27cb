//! Modes of the files in the home, and secrets in world-readable unit files.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use petasos_cli::service::{Scope, Service};
use petasos_config::Home;
use petasos_core::credentials;

use super::{Check, Weakness};

const READABLE: &str = "Other users of this machine can read secrets and conversations.";
const WRITABLE: &str = "Other users of this machine can change what the gateway does.";
const IN_UNIT: &str = "Every user of this machine can read unit files, and systemctl shows their variables.";

pub(super) fn weaknesses(home: &Home) -> Vec<Weakness> {
    in_home(home).into_iter().chain(in_units()).collect()
}

/// The home itself. If it is private, nothing below it can be reached.
fn in_home(home: &Home) -> Vec<Weakness> {
    let Ok(found) = fs::metadata(home.path()) else { return vec![] };
    let mut weaknesses: Vec<_> = weakness(home.path(), &found).into_iter().collect();
    if found.mode() & 0o011 == 0 {
        return weaknesses;
    }
    let entries = fs::read_dir(home.path()).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    weaknesses.extend(paths.iter().filter_map(|path| weakness(path, &fs::symlink_metadata(path).ok()?)));
    weaknesses
}

fn weakness(path: &Path, found: &Metadata) -> Option<Weakness> {
    let mode = found.mode() & 0o777;
    if mode & 0o077 == 0 || found.is_symlink() {
        return None;
    }
    let why = if mode & 0o022 == 0 { READABLE } else { WRITABLE };
    let private = if found.is_dir() { "700" } else { "600" };
    let what = format!("{} has mode {mode:o}", path.display());
    Some(Weakness::serious(Check::Files, what, why, format!("chmod {private} {}", path.display())))
}

/// `Environment=` with a secret in the unit or its drop-ins.
fn in_units() -> Vec<Weakness> {
    let services =
        [Scope::User, Scope::System].map(|scope| Service::new(None, scope, |name| std::env::var_os(name)));
    let units = services.into_iter().flatten().map(|service| service.path().to_path_buf());
    let files = units.flat_map(|unit| {
        let drop_ins = fs::read_dir(unit.with_extension("service.d")).into_iter().flatten().flatten();
        drop_ins.map(|entry| entry.path()).chain([unit]).collect::<Vec<_>>()
    });
    files.filter_map(|path| secret_in_unit(&path)).collect()
}

fn secret_in_unit(path: &Path) -> Option<Weakness> {
    let text = fs::read_to_string(path).ok()?;
    let assignments = text.lines().filter_map(|line| line.trim().strip_prefix("Environment="));
    let mut names =
        assignments.filter_map(|line| line.trim_matches('"').split_once('=')).map(|(name, _)| name);
    let name = names.find(|name| credentials::is_secret_name(name))?;
    let what = format!("{} contains the value of {name}", path.display());
    let fix = format!("move it to .env in the home, or use LoadCredential={name}:FILE");
    Some(Weakness::serious(Check::Files, what, IN_UNIT, fix))
}
