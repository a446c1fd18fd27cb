//! The gateway as a service of systemd: which unit, where it lies, what it says, and who looks after it.
//!
//! Owns one file per service, the unit. It is replaced as a whole or not at all, and one that we did not write is
//! left alone. A crash between two steps of an installation leaves a unit that the next installation replaces.

mod file;
mod supervisor;
mod systemctl;
mod unit;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::Serialize;

pub use file::{Found, look, put};
pub use supervisor::{first_in_a_container, revives, supervised};
pub use systemctl::{State, Systemctl, Trouble};
pub use unit::Unit;

/// Whose manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    User,
    System,
}

impl Scope {
    /// What is up when everything is.
    const fn target(self) -> &'static str {
        match self {
            Self::User => "default.target",
            Self::System => "multi-user.target",
        }
    }

    /// Where its units are put; `None` if there is no home directory.
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

/// One service: its name, its manager, and its unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    pub name: String,
    pub scope: Scope,
    path: PathBuf,
}

impl Service {
    /// `None` if there is no place for its unit.
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

    /// As a person would type it.
    pub fn by_hand(&self, verb: &str) -> String {
        format!("{} {verb} {}", self.manager(), self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: Option<&str>, scope: Scope, env: &[(&str, &str)], want: Option<&str>) {
        let lookup = |asked: &str| env.iter().find(|(key, _)| *key == asked).map(|(_, value)| value.into());
        let service = Service::new(name, scope, lookup);
        assert_eq!(
            service.as_ref().map(|it| it.path().to_str().unwrap()),
            want,
            "{name:?} {scope:?} {env:?}"
        );
    }

    #[test]
    fn a_unit_lies_where_its_manager_looks() {
        let all = [("XDG_CONFIG_HOME", "/xdg"), ("HOME", "/home/ann")];
        check(None, Scope::User, &all, Some("/xdg/systemd/user/petasos.service"));
        check(None, Scope::User, &all[1..], Some("/home/ann/.config/systemd/user/petasos.service"));
        check(None, Scope::User, &[("XDG_CONFIG_HOME", "relative")], None);
        check(Some("den"), Scope::System, &[], Some("/etc/systemd/system/petasos-den.service"));
    }

    #[test]
    fn commands_are_shown_as_they_are_typed() {
        let typed = |scope| Service::new(Some("den"), scope, |_| Some("/x".into())).unwrap().by_hand("start");
        assert_eq!(typed(Scope::User), "systemctl --user start petasos-den");
        assert_eq!(typed(Scope::System), "systemctl start petasos-den");
    }
}
