//! `.env`: variables that count at the next start. Only `/sethome` writes it, and only its own lines.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::home::files::read;
use crate::home::files::write::{self, Durable};

pub fn path(home: &Path) -> PathBuf {
    home.join(".env")
}

/// Sets these variables, or takes them out (`None`). Every other line stays as it is, and nobody else may read the
/// file afterwards: there are secrets in it. It is replaced or left alone, never written in place: nobody could write
/// those secrets again. Two at a time would undo each other: only `Homes` calls it.
pub fn set(home: &Path, changes: &[(&str, Option<&str>)]) -> io::Result<()> {
    let path = path(home);
    let old = read::bytes(&path)?.unwrap_or_default();
    let old = String::from_utf8(old).map_err(|_| io::Error::other(".env is not text"))?;
    write::replace_or_leave(&path, changed(&old, changes)?.as_bytes(), Durable::Synced)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))
}

fn changed(old: &str, changes: &[(&str, Option<&str>)]) -> io::Result<String> {
    let stays = |line: &&str| !changes.iter().any(|(name, _)| Some(*name) == name_of(line));
    let mut text: String = old.lines().filter(stays).flat_map(|line| [line, "\n"]).collect();
    for (name, value) in changes {
        if let Some(value) = value {
            text.push_str(&format!("{name}={}\n", quoted(value)?));
        }
    }
    Ok(text)
}

fn name_of(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = line.strip_prefix("export ").unwrap_or(line);
    line.split_once('=').map(|(name, _)| name.trim())
}

/// As every reader of such files takes it for the value itself.
fn quoted(value: &str) -> io::Result<String> {
    if value.contains(['\'', '\n', '\r']) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a quote or a line break cannot be kept in .env",
        ));
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:+@/".contains(&byte);
    Ok(if value.bytes().all(plain) { value.to_owned() } else { format!("'{value}'") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_lines_change_and_the_file_becomes_private() {
        let home = tempfile::tempdir().unwrap();
        let old = "# mine\nTOKEN='a # b'\nexport T_HOME = 1\nT_HOME_THREAD=9\n\nT_HOME2=x";
        std::fs::write(path(home.path()), old).unwrap();
        set(home.path(), &[("T_HOME", Some("-100")), ("T_HOME_THREAD", None)]).unwrap();
        let now = std::fs::read_to_string(path(home.path())).unwrap();
        assert_eq!(now, "# mine\nTOKEN='a # b'\n\nT_HOME2=x\nT_HOME=-100\n");
        assert_eq!(path(home.path()).metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_file_that_is_missing_is_made_and_one_that_cannot_be_read_is_left_alone() {
        let home = tempfile::tempdir().unwrap();
        set(home.path(), &[("A", Some("!room:e.org"))]).unwrap();
        assert_eq!(std::fs::read_to_string(path(home.path())).unwrap(), "A='!room:e.org'\n");
        std::fs::write(path(home.path()), b"\xff=1\n").unwrap();
        assert!(set(home.path(), &[("A", Some("2"))]).is_err());
        assert_eq!(std::fs::read(path(home.path())).unwrap(), b"\xff=1\n");
    }

    #[test]
    fn what_could_become_another_line_is_refused() {
        for value in ["a\nTOKEN=x", "a'b", "a\rb"] {
            assert!(quoted(value).is_err(), "{value:?}");
        }
    }
}
