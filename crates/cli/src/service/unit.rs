//! Renders the systemd unit. Pure: the same input gives the same text.
//!
//! Exit code 75 requests a restart and 78 forbids one. `ExecStop` plans the stop before SIGTERM, and
//! `TimeoutStopSec` covers the drain.

use std::path::{Path, PathBuf};
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
    /// Directories outside the home that a system service must be able to write to.
    pub writable: &'a [PathBuf],
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
            for path in [self.home].into_iter().chain(self.writable.iter().map(PathBuf::as_path)) {
                lines.push(format!("ReadWritePaths={}", quoted(&format!("-{}", readable(path)?))));
            }
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

/// Hardening that a user manager can enforce: process attributes and system call filters. Everything in
/// `SYSTEM_HARDENING` needs mounts, capabilities or device control, which only the system manager has.
///
/// Programs of the agent inherit it. Left out, because they need it:
/// - `MemoryDenyWriteExecute`: JIT compilers (Node.js, browsers, PyPy);
/// - the namespaces user, pid, net, mnt, ipc and uts, and the system calls `@mount`, `@resources` and `@privileged`:
///   the sandboxes of the agent, of browsers and of containers; `nice`, `tar` and `cp`.
///
/// Debuggers (`@debug`: ptrace) do not work.
const HARDENING: &[&str] = &[
    "UMask=0077",
    "NoNewPrivileges=yes",
    "KeyringMode=private",
    "LockPersonality=yes",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    "RestrictNamespaces=user pid net mnt ipc uts",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "SystemCallArchitectures=native",
    "SystemCallErrorNumber=EPERM",
    "SystemCallFilter=~@clock @cpu-emulation @debug @module @obsolete @raw-io @reboot @swap",
];

/// Hardening that needs mounts, capabilities or device control. Left out, because programs of the agent need it:
/// - `ProtectKernelTunables`, `ProtectKernelLogs`, `ProtectHostname`: they mount over parts of `/proc`, and then the
///   kernel refuses the `/proc` of a sandbox with its own pid namespace. They protect files that only root can write;
/// - `ProcSubset=pid`: programs read `/proc/cpuinfo` and `/proc/meminfo`;
/// - `ProtectHome=yes`: MCP servers and hooks keep caches and logins in the home directory of their user;
/// - `PrivateNetwork`, `IPAddressDeny`: chat platforms and models are on the network.
const SYSTEM_HARDENING: &[&str] = &[
    "CapabilityBoundingSet=",
    "DevicePolicy=closed",
    "PrivateDevices=yes",
    "PrivateMounts=yes",
    "PrivateTmp=yes",
    "PrivateUsers=yes",
    "ProtectClock=yes",
    "ProtectControlGroups=yes",
    "ProtectHome=read-only",
    "ProtectKernelModules=yes",
    "ProtectProc=invisible",
    "ProtectSystem=strict",
    "RemoveIPC=yes",
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
