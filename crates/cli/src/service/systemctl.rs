//! Runs `systemctl`, which finds the service manager and is known to polkit.

use std::fmt;
use std::io;
use std::process::Command;

use serde::Serialize;

use super::Scope;

#[derive(Debug, Clone, Copy)]
pub struct Systemctl {
    scope: Scope,
}

#[derive(Debug, thiserror::Error)]
pub enum SystemctlError {
    #[error("systemctl was not found")]
    NotFound,
    #[error("systemctl cannot be started: {0}")]
    Spawn(io::Error),
    #[error("`{command_line}` failed: {output_text}")]
    Failed { command_line: String, output_text: String },
}

/// Properties of a unit as systemctl prints them; empty if unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct UnitState {
    /// `enabled`, `disabled`, `masked`, …
    pub enabled: String,
    /// `active`, `inactive`, `failed`, `activating`, …
    pub active: String,
    pub sub: String,
    pub pid: Option<u32>,
    pub since: Option<String>,
}

const PROPERTIES: &str = "--property=UnitFileState,ActiveState,SubState,MainPID,ActiveEnterTimestamp";

impl Systemctl {
    pub const fn new(scope: Scope) -> Self {
        Self { scope }
    }

    pub fn reload(self) -> Result<(), SystemctlError> {
        self.run(&["daemon-reload"]).map(drop)
    }

    /// `verb`: start, stop, enable or disable.
    pub fn change(self, verb: &str, unit: &str) -> Result<(), SystemctlError> {
        self.run(&[verb, unit]).map(drop)
    }

    pub fn show(self, unit: &str) -> Result<UnitState, SystemctlError> {
        self.run(&["show", PROPERTIES, unit]).map(|output_text| parse_properties(&output_text))
    }

    fn run(self, args: &[&str]) -> Result<String, SystemctlError> {
        let mut command = Command::new("systemctl");
        if self.scope == Scope::User {
            command.arg("--user");
        }
        let output = command.args(args).output().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => SystemctlError::NotFound,
            _ => SystemctlError::Spawn(error),
        })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let command_line = format!("{self} {}", args.join(" "));
        let output_text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let output_text = if output_text.is_empty() { output.status.to_string() } else { output_text };
        Err(SystemctlError::Failed { command_line, output_text })
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

fn parse_properties(output_text: &str) -> UnitState {
    let value = |name: &str| {
        let found = output_text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_default().trim().to_owned()
    };
    UnitState {
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
    fn parses_properties_of_known_and_unknown_units() {
        let running = parse_properties(
            "MainPID=42\nActiveState=active\nSubState=running\nUnitFileState=enabled\n\
             ActiveEnterTimestamp=Tue 2026-01-06 10:00:00 UTC\n",
        );
        let want = UnitState {
            enabled: "enabled".into(),
            active: "active".into(),
            sub: "running".into(),
            pid: Some(42),
            since: Some("Tue 2026-01-06 10:00:00 UTC".into()),
        };
        assert_eq!(running, want);
        let unknown = parse_properties("MainPID=0\nActiveState=inactive\nSubState=dead\nUnitFileState=\n");
        assert_eq!((unknown.pid, unknown.since, unknown.enabled.as_str()), (None, None, ""));
    }
}
