//! Renders the systemd unit. Pure: the same input gives the same text.
//!
//! Exit code 75 requests a restart and 78 forbids one. `ExecStop` plans the stop before SIGTERM, and
//! `TimeoutStopSec` covers the drain.

use std::path::Path;
use std::time::Duration;

use petasos_core::lifecycle::stop_budget;

use super::Scope;

/// First line of every unit that petasos writes.
pub const HEADER: &str = "# Written by `petasos service install`, which also replaces it.";

/// A start may migrate a large database before it connects.
const START_BUDGET: Duration = Duration::from_secs(600);
const INFINITE_SECONDS: u64 = 1_000_000_000;

#[derive(Debug, Clone, Copy)]
pub struct UnitFile<'a> {
    pub service: &'a str,
    pub scope: Scope,
    pub program: &'a Path,
    pub home: &'a Path,
    /// Owner of the home, for a system service. `None` for root and for user services.
    pub user: Option<u32>,
    pub drain: Duration,
    pub watchdog: Option<Duration>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("systemd cannot use the path {path:?}: {reason}")]
pub struct InvalidPath {
    path: String,
    reason: &'static str,
}

impl UnitFile<'_> {
    pub fn text(&self) -> Result<String, InvalidPath> {
        let home = readable(self.home)?;
        let petasos = format!("{} --home {}", program(self.program)?, argument(home));
        let mut lines = vec![HEADER.to_owned(), String::new(), "[Unit]".into()];
        lines.push(format!("Description=Petasos gateway ({})", self.service));
        if self.scope == Scope::System {
            lines.extend(["Wants=network-online.target".into(), "After=network-online.target".into()]);
        }
        lines.extend(["StartLimitIntervalSec=0".into(), String::new(), "[Service]".into()]);
        lines.extend(["Type=notify".into(), "NotifyAccess=main".into()]);
        lines.extend(self.user.map(|id| format!("User={id}")));
        lines.push(format!("Environment={}", quoted(&format!("PETASOS_HOME={home}"))));
        // The leading `-` ignores failures: only `run` itself may report 78 to systemd, and a gateway that
        // has ended needs no stop.
        lines.push(format!("ExecStartPre=-{petasos} config check"));
        lines.push(format!("ExecStart={petasos} run"));
        lines.push("ExecReload=/bin/kill -USR1 $MAINPID".into());
        lines.push(format!("ExecStop=-{petasos} stop"));
        lines.extend(RESTART_POLICY.iter().map(|line| (*line).to_owned()));
        lines.push(format!("TimeoutStartSec={}", span(START_BUDGET)));
        lines.push(format!("TimeoutStopSec={}", span(stop_budget(self.drain))));
        lines.extend(self.watchdog.map(|interval| format!("WatchdogSec={}", span(interval))));
        lines.extend(HARDENING.iter().map(|line| (*line).to_owned()));
        if self.scope == Scope::System {
            lines.extend(SYSTEM_HARDENING.iter().map(|line| (*line).to_owned()));
            lines.push(format!("ReadWritePaths={}", quoted(&format!("-{home}"))));
        }
        lines.extend([String::new(), "[Install]".into(), format!("WantedBy={}", self.scope.target())]);
        Ok(lines.join("\n") + "\n")
    }
}

const RESTART_POLICY: &[&str] = &[
    "Restart=always",
    "RestartSec=5",
    "RestartForceExitStatus=75",
    "RestartPreventExitStatus=78",
    "KillMode=mixed",
];

/// Hardening that a user manager can enforce. It must not keep tools from running compilers, JIT
/// interpreters, or browsers with their own sandbox.
const HARDENING: &[&str] = &[
    "UMask=0077",
    "NoNewPrivileges=yes",
    "LockPersonality=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "SystemCallArchitectures=native",
];

/// Hardening that needs mounts or capabilities. `full`, not `strict`: the tools of an agent keep caches in
/// their user's home directory.
const SYSTEM_HARDENING: &[&str] = &[
    "PrivateTmp=yes",
    "ProtectClock=yes",
    "ProtectControlGroups=yes",
    "ProtectHostname=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
    "ProtectSystem=full",
];

/// The first word of a command line: systemd expands no variables there and rejects quotes in it.
fn program(path: &Path) -> Result<String, InvalidPath> {
    let text = readable(path)?;
    if text.contains(['"', '\'', '\\']) {
        return Err(InvalidPath {
            path: text.into(),
            reason: "the path of a program must not contain quotes or backslashes",
        });
    }
    Ok(quoted(text))
}

fn argument(text: &str) -> String {
    quoted(text).replace('$', "$$")
}

/// Quotes one word: `%` would be expanded, and blanks would split it.
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%");
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-=".contains(c);
    if text.chars().all(plain) { escaped } else { format!("\"{escaped}\"") }
}

fn readable(path: &Path) -> Result<&str, InvalidPath> {
    let invalid = |reason| InvalidPath { path: path.to_string_lossy().into_owned(), reason };
    let text = path.to_str().ok_or_else(|| invalid("it is not UTF-8"))?;
    if text.chars().any(char::is_control) {
        return Err(invalid("it contains control characters"));
    }
    Ok(text)
}

fn span(time: Duration) -> String {
    match (time.as_secs(), time.subsec_millis()) {
        (seconds, _) if seconds > INFINITE_SECONDS => "infinity".into(),
        (seconds, 0) => seconds.to_string(),
        (_, _) => format!("{}ms", time.as_millis()),
    }
}

#[cfg(test)]
#[path = "unit_tests.rs"]
mod tests;
