//! Makes directories private that an older version, or another program, created readable for other users.
//!
//! The gateway creates directories with mode 0700 and files with 0600. Files of the owner (`config.yaml`, `.env`, `hooks/`, an
//! existing `workspace/`) keep their modes; `petasos doctor` reports them.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

const DIRECTORIES: [&str; 11] = [
    "archive",
    "backups",
    "cache",
    "connector-media",
    "cron",
    "gateway",
    "logs",
    "memories",
    "sessions",
    "state",
    "terminal",
];
/// Permissions of group and others.
const FOREIGN: u32 = 0o077;

/// A failure is logged: the home itself is private unless its owner changed that.
pub fn repair(home: &Path) {
    for name in DIRECTORIES {
        let path = home.join(name);
        if let Err(error) = make_private(&path) {
            tracing::warn!(path = %path.display(), %error, "cannot make directory private; other users may read it");
        }
    }
}

/// Nothing below a private directory can be reached, so only open ones are walked. The directory itself is changed last: an
/// interrupted repair is repeated. Symbolic links are not followed.
fn make_private(directory: &Path) -> io::Result<()> {
    let mode = match fs::symlink_metadata(directory) {
        Ok(found) if found.is_dir() => found.mode(),
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if mode & FOREIGN == 0 {
        return Ok(());
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let found = entry.metadata()?;
        if found.is_dir() {
            make_private(&entry.path())?;
        } else if found.is_file() && found.mode() & FOREIGN != 0 {
            restrict(&entry.path(), found.mode())?;
        }
    }
    restrict(directory, mode)
}

fn restrict(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode & 0o700))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn makes_own_directories_private_and_leaves_others() {
        let home = tempfile::tempdir().unwrap();
        let at = |path: &str| home.path().join(path);
        for (path, mode) in [("memories/people/7", 0o755), ("workspace", 0o755), ("cache", 0o700)] {
            fs::create_dir_all(at(path)).unwrap();
            fs::set_permissions(at(path), Permissions::from_mode(mode)).unwrap();
        }
        for file in
            ["memories/MEMORY.md", "memories/people/7/USER.md", "workspace/a", "config.yaml", "cache/b"]
        {
            fs::write(at(file), "x").unwrap();
            fs::set_permissions(at(file), Permissions::from_mode(0o644)).unwrap();
        }
        std::os::unix::fs::symlink(at("config.yaml"), at("memories/link")).unwrap();
        for _again in 0..2 {
            repair(home.path());
            for (path, want) in [
                ("memories", 0o700),
                ("memories/people", 0o700),
                ("memories/people/7", 0o700),
                ("memories/MEMORY.md", 0o600),
                ("memories/people/7/USER.md", 0o600),
                ("workspace", 0o755),
                ("workspace/a", 0o644),
                ("config.yaml", 0o644),
                ("cache/b", 0o644),
            ] {
                assert_eq!(fs::metadata(at(path)).unwrap().mode() & 0o777, want, "{path}");
            }
        }
    }
}
