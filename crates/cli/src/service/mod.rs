//! The gateway as a systemd service.
//!
//! Owns one file per service, the unit. It is replaced atomically, and a unit that petasos did not write is
//! left alone. A crash during an installation leaves a unit that the next installation replaces.

mod file;
mod supervisor;
mod systemctl;
mod unit;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::Serialize;

pub use file::{InstalledUnit, read, replace};
pub use supervisor::{is_container_init, is_restarted_by_supervisor, is_supervised};
pub use systemctl::{Systemctl, SystemctlError, UnitState};
pub use unit::UnitFile;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    User,
    System,
}

impl Scope {
    const fn target(self) -> &'static str {
        match self {
            Self::User => "default.target",
            Self::System => "multi-user.target",
        }
    }

    /// Directory of its units; `None` if there is no home directory.
    fn directory(self, env: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        let named = |name: &str| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
        match self {
            Self::System => Some("/etc/systemd/system".into()),
            Self::User => {
                let config = named("XDG_CONFIG_HOME").or_else(|| Some(named("HOME")?.join(".config")));
                config.map(|config| config.join("systemd/user"))
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    pub name: String,
    pub scope: Scope,
    path: PathBuf,
}

impl Service {
    pub fn new(name: Option<&str>, scope: Scope, env: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let name = name.map_or_else(|| "petasos".into(), |name| format!("petasos-{name}"));
        let path = scope.directory(env)?.join(format!("{name}.service"));
        Some(Self { name, scope, path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn manager(&self) -> Systemctl {
        Systemctl::new(self.scope)
    }

    pub fn manual_command(&self, verb: &str) -> String {
        format!("{} {verb} {}", self.manager(), self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: Option<&str>, scope: Scope, env: &[(&str, &str)], want: Option<&str>) {
        let lookup = |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        let service = Service::new(name, scope, lookup);
        assert_eq!(
            service.as_ref().map(|it| it.path().to_str().unwrap()),
            want,
            "{name:?} {scope:?} {env:?}"
        );
    }

    #[test]
    fn unit_path_depends_on_manager() {
        let all = [("XDG_CONFIG_HOME", "/xdg"), ("HOME", "/home/ann")];
        check(None, Scope::User, &all, Some("/xdg/systemd/user/petasos.service"));
        check(None, Scope::User, &all[1..], Some("/home/ann/.config/systemd/user/petasos.service"));
        check(None, Scope::User, &[("XDG_CONFIG_HOME", "relative")], None);
        check(Some("den"), Scope::System, &[], Some("/etc/systemd/system/petasos-den.service"));
    }

    #[test]
    fn manual_command_names_the_manager() {
        let typed =
            |scope| Service::new(Some("den"), scope, |_| Some("/x".into())).unwrap().manual_command("start");
        assert_eq!(typed(Scope::User), "systemctl --user start petasos-den");
        assert_eq!(typed(Scope::System), "systemctl start petasos-den");
    }
}
