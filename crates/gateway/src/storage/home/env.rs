//! `.env`: environment variables for the next start. Only `/sethome` writes it, and only its own lines.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::home::files::read;
use crate::home::files::write::{self, Durable};

pub fn path(home: &Path) -> PathBuf {
    home.join(".env")
}

/// Sets or removes (`None`) variables, keeps all other lines, and makes the file private. Never overwrites in place, because
/// the file holds secrets. Concurrent calls would undo each other, so only `HomeChannels` calls it.
pub fn set(home: &Path, changes: &[(&str, Option<&str>)]) -> io::Result<()> {
    let path = path(home);
    let old = read::bytes(&path)?.unwrap_or_default();
    let old = String::from_utf8(old).map_err(|_| io::Error::other(".env is not text"))?;
    write::replace_or_leave(&path, apply_changes(&old, changes)?.as_bytes(), Durable::Synced)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))
}

fn apply_changes(old: &str, changes: &[(&str, Option<&str>)]) -> io::Result<String> {
    let stays = |line: &&str| !changes.iter().any(|(name, _)| Some(*name) == name_of(line));
    let mut text: String = old.lines().filter(stays).flat_map(|line| [line, "\n"]).collect();
    for (name, value) in changes {
        if let Some(value) = value {
            text.push_str(&format!("{name}={}\n", quote(value)?));
        }
    }
    Ok(text)
}

fn name_of(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = line.strip_prefix("export ").unwrap_or(line);
    line.split_once('=').map(|(name, _)| name.trim())
}

/// Quotes a value for all common readers of `.env` files.
fn quote(value: &str) -> io::Result<String> {
    if value.contains(['\'', '\n', '\r']) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a value in .env must not contain a quote or a line break",
        ));
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:+@/".contains(&byte);
    Ok(if value.bytes().all(plain) { value.to_owned() } else { format!("'{value}'") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_only_named_lines_and_makes_file_private() {
        let home = tempfile::tempdir().unwrap();
        let old = "# mine\nTOKEN='a # b'\nexport T_HOME = 1\nT_HOME_THREAD=9\n\nT_HOME2=x";
        std::fs::write(path(home.path()), old).unwrap();
        set(home.path(), &[("T_HOME", Some("-100")), ("T_HOME_THREAD", None)]).unwrap();
        let now = std::fs::read_to_string(path(home.path())).unwrap();
        assert_eq!(now, "# mine\nTOKEN='a # b'\n\nT_HOME2=x\nT_HOME=-100\n");
        assert_eq!(path(home.path()).metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn creates_missing_file_and_keeps_unreadable_one() {
        let home = tempfile::tempdir().unwrap();
        set(home.path(), &[("A", Some("!room:e.org"))]).unwrap();
        assert_eq!(std::fs::read_to_string(path(home.path())).unwrap(), "A='!room:e.org'\n");
        std::fs::write(path(home.path()), b"\xff=1\n").unwrap();
        assert!(set(home.path(), &[("A", Some("2"))]).is_err());
        assert_eq!(std::fs::read(path(home.path())).unwrap(), b"\xff=1\n");
    }

    #[test]
    fn rejects_values_with_quotes_or_line_breaks() {
        for value in ["a\nTOKEN=x", "a'b", "a\rb"] {
            assert!(quote(value).is_err(), "{value:?}");
        }
    }
}
