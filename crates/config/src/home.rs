//! The home: one private directory with all files of a gateway.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    path: PathBuf,
    /// Source of the path, for `doctor` and `config path`.
    pub named_by: &'static str,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no home directory to keep files in: neither --home, PETASOS_HOME, HERMES_HOME nor HOME is set"
)]
pub struct NoHomeError;

impl Home {
    /// `--home`, else `PETASOS_HOME`, else `HERMES_HOME`, else `~/.petasos`. A blank variable counts as unset.
    pub fn resolve(flag: Option<&Path>, env: impl Fn(&str) -> Option<OsString>) -> Result<Self, NoHomeError> {
        let named = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let flag = flag.map(Path::to_path_buf);
        let (path, named_by) = None
            .or_else(|| flag.map(|path| (path, "--home")))
            .or_else(|| named("PETASOS_HOME").map(|path| (path, "PETASOS_HOME")))
            .or_else(|| named("HERMES_HOME").map(|path| (path, "HERMES_HOME")))
            .or_else(|| named("HOME").map(|home| (home.join(".petasos"), "default")))
            .ok_or(NoHomeError)?;
        let path = std::path::absolute(&path).unwrap_or(path);
        Ok(Self { path, named_by })
    }

    /// Creates a private directory; leaves an existing one unchanged.
    pub fn create(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn config_file(&self) -> PathBuf {
        self.path.join("config.yaml")
    }

    pub fn dotenv_file(&self) -> PathBuf {
        self.path.join(".env")
    }

    pub fn database(&self) -> PathBuf {
        self.path.join("petasos.db")
    }

    /// Exists once the database was created.
    pub fn database_marker(&self) -> PathBuf {
        self.path.join(".petasos-db")
    }

    pub fn lock_file(&self) -> PathBuf {
        self.path.join("gateway.lock")
    }

    pub fn connector_lock(&self) -> PathBuf {
        self.path.join("connector.lock")
    }

    pub fn chat_history(&self) -> PathBuf {
        self.path.join("chat_history")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[track_caller]
    fn check(flag: Option<&str>, env: &[(&str, &str)], want: (&str, &'static str)) {
        let lookup =
            |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value));
        let home = Home::resolve(flag.map(Path::new), lookup).unwrap();
        assert_eq!((home.path().to_str().unwrap(), home.named_by), want);
    }

    #[test]
    fn flag_beats_variables_beat_the_default() {
        let all = [("PETASOS_HOME", "/p"), ("HERMES_HOME", "/h"), ("HOME", "/root")];
        check(Some("/f"), &all, ("/f", "--home"));
        check(None, &all, ("/p", "PETASOS_HOME"));
        check(None, &all[1..], ("/h", "HERMES_HOME"));
        check(None, &all[2..], ("/root/.petasos", "default"));
        check(None, &[("PETASOS_HOME", ""), ("HOME", "/root")], ("/root/.petasos", "default"));
    }

    #[test]
    fn missing_home_is_an_error() {
        assert_eq!(Home::resolve(None, |_| None), Err(NoHomeError));
    }

    #[test]
    fn new_home_is_private_and_existing_one_is_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let flag = dir.path().join("a/b");
        let home = Home::resolve(Some(&flag), |_| None).unwrap();
        home.create().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&flag), 0o700);
        std::fs::set_permissions(&flag, std::fs::Permissions::from_mode(0o750)).unwrap();
        home.create().unwrap();
        assert_eq!(mode(&flag), 0o750);
    }
}
