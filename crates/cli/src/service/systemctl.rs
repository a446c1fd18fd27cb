//! Asking a service manager, by its own program: it knows how to reach it, and polkit knows it.

use std::fmt;
use std::io;
use std::process::Command;

use serde::Serialize;

use super::Scope;

#[derive(Debug, Clone, Copy)]
pub struct Systemctl {
    scope: Scope,
}

/// Why it was not done.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error("there is no program systemctl")]
    Absent,
    #[error("systemctl cannot be started: {0}")]
    Unstartable(io::Error),
    #[error("`{asked}` failed: {said}")]
    Refused { asked: String, said: String },
}

/// What the manager knows about a unit. Its own words; empty where it knows nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct State {
    /// `enabled`, `disabled`, `masked`, …
    pub enabled: String,
    /// `active`, `inactive`, `failed`, `activating`, …
    pub active: String,
    pub sub: String,
    pub pid: Option<u32>,
    /// When it became active.
    pub since: Option<String>,
}

const PROPERTIES: &str = "--property=UnitFileState,ActiveState,SubState,MainPID,ActiveEnterTimestamp";

impl Systemctl {
    pub const fn new(scope: Scope) -> Self {
        Self { scope }
    }

    pub fn reload(self) -> Result<(), Trouble> {
        self.run(&["daemon-reload"]).map(drop)
    }

    /// `verb` is one of systemctl's: start, stop, enable, disable.
    pub fn tell(self, verb: &str, unit: &str) -> Result<(), Trouble> {
        self.run(&[verb, unit]).map(drop)
    }

    pub fn ask(self, unit: &str) -> Result<State, Trouble> {
        self.run(&["show", PROPERTIES, unit]).map(|said| read(&said))
    }

    fn run(self, args: &[&str]) -> Result<String, Trouble> {
        let mut command = Command::new("systemctl");
        if self.scope == Scope::User {
            command.arg("--user");
        }
        let output = command.args(args).output().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Trouble::Absent,
            _ => Trouble::Unstartable(error),
        })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let asked = format!("{self} {}", args.join(" "));
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let said = if said.is_empty() { output.status.to_string() } else { said };
        Err(Trouble::Refused { asked, said })
    }
}

impl fmt::Display for Systemctl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.scope {
            Scope::User => "systemctl --user",
            Scope::System => "systemctl",
        })
    }
}

fn read(said: &str) -> State {
    let value = |name: &str| {
        let found = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_default().trim().to_owned()
    };
    State {
        enabled: value("UnitFileState"),
        active: value("ActiveState"),
        sub: value("SubState"),
        pid: value("MainPID").parse().ok().filter(|pid| *pid != 0),
        since: Some(value("ActiveEnterTimestamp")).filter(|text| !text.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_systemd_says_is_read_and_what_it_does_not_say_is_nothing() {
        let running = read(
            "MainPID=42\nActiveState=active\nSubState=running\nUnitFileState=enabled\n\
             ActiveEnterTimestamp=Tue 2026-01-06 10:00:00 UTC\n",
        );
        let want = State {
            enabled: "enabled".into(),
            active: "active".into(),
            sub: "running".into(),
            pid: Some(42),
            since: Some("Tue 2026-01-06 10:00:00 UTC".into()),
        };
        assert_eq!(running, want);
        let unknown = read("MainPID=0\nActiveState=inactive\nSubState=dead\nUnitFileState=\n");
        assert_eq!((unknown.pid, unknown.since, unknown.enabled.as_str()), (None, None, ""));
    }
}
