//! The unit file that systemd is given. Pure: the same wishes give the same text.
//!
//! What the lines hold together: 75 asks for a restart and 78 forbids one; a stop is planned (`petasos stop`
//! comes before SIGTERM) and gets the time that its drain needs.

use std::path::Path;
use std::time::Duration;

use petasos_core::lifecycle::stop_budget;

use super::Scope;

/// How every unit of ours begins. One that does not is somebody else's.
pub const SIGN: &str = "# Written by `petasos service install`, which also replaces it.";

/// Generous: a start may migrate a large database before it connects.
const START_BUDGET: Duration = Duration::from_secs(600);
/// Longer than this is for ever.
const FOR_EVER: u64 = 1_000_000_000;

/// What a unit is made from.
#[derive(Debug, Clone, Copy)]
pub struct Unit<'a> {
    pub service: &'a str,
    pub scope: Scope,
    pub program: &'a Path,
    pub home: &'a Path,
    /// Whom the home belongs to, where the manager can choose the user. `None`: nobody but root.
    pub user: Option<u32>,
    pub drain: Duration,
    pub watchdog: Option<Duration>,
}

/// A path that no unit file can hold.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("systemd cannot use the path {path:?}: {why}")]
pub struct Unfit {
    path: String,
    why: &'static str,
}

impl Unit<'_> {
    pub fn text(&self) -> Result<String, Unfit> {
        let home = readable(self.home)?;
        let petasos = format!("{} --home {}", program(self.program)?, argument(home));
        let mut lines = vec![SIGN.to_owned(), String::new(), "[Unit]".into()];
        lines.push(format!("Description=Petasos gateway ({})", self.service));
        if self.scope == Scope::System {
            lines.extend(["Wants=network-online.target".into(), "After=network-online.target".into()]);
        }
        lines.extend(["StartLimitIntervalSec=0".into(), String::new(), "[Service]".into()]);
        lines.extend(["Type=notify".into(), "NotifyAccess=main".into()]);
        lines.extend(self.user.map(|id| format!("User={id}")));
        lines.push(format!("Environment={}", quoted(&format!("PETASOS_HOME={home}"))));
        // Neither may fail the service: 78 keeps systemd from trying again only if `run` itself says so, and a
        // gateway that has ended already has nothing to stop.
        lines.push(format!("ExecStartPre=-{petasos} config check"));
        lines.push(format!("ExecStart={petasos} run"));
        lines.push("ExecReload=/bin/kill -USR1 $MAINPID".into());
        lines.push(format!("ExecStop=-{petasos} stop"));
        lines.extend(RESTARTS.iter().map(|line| (*line).to_owned()));
        lines.push(format!("TimeoutStartSec={}", span(START_BUDGET)));
        lines.push(format!("TimeoutStopSec={}", span(stop_budget(self.drain))));
        lines.extend(self.watchdog.map(|interval| format!("WatchdogSec={}", span(interval))));
        lines.extend(FENCE.iter().map(|line| (*line).to_owned()));
        if self.scope == Scope::System {
            lines.extend(SYSTEM_FENCE.iter().map(|line| (*line).to_owned()));
            lines.push(format!("ReadWritePaths={}", quoted(&format!("-{home}"))));
        }
        lines.extend([String::new(), "[Install]".into(), format!("WantedBy={}", self.scope.target())]);
        Ok(lines.join("\n") + "\n")
    }
}

const RESTARTS: &[&str] = &[
    "Restart=always",
    "RestartSec=5",
    "RestartForceExitStatus=75",
    "RestartPreventExitStatus=78",
    "KillMode=mixed",
];

/// What a user's own manager can enforce too. Nothing that keeps tools from running compilers, interpreters with
/// a JIT, or browsers with a sandbox of their own.
const FENCE: &[&str] = &[
    "UMask=0077",
    "NoNewPrivileges=yes",
    "LockPersonality=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "SystemCallArchitectures=native",
];

/// These need mounts or capabilities, which only the system's manager has. `full`, not `strict`: the tools of an
/// agent keep caches all over their user's directory.
const SYSTEM_FENCE: &[&str] = &[
    "PrivateTmp=yes",
    "ProtectClock=yes",
    "ProtectControlGroups=yes",
    "ProtectHostname=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
    "ProtectSystem=full",
];

/// The first word of a command line. systemd replaces no variables there, and wants no quotes in the name.
fn program(path: &Path) -> Result<String, Unfit> {
    let text = readable(path)?;
    if text.contains(['"', '\'', '\\']) {
        return Err(Unfit {
            path: text.into(),
            why: "a program must not have quotes or backslashes in its path",
        });
    }
    Ok(quoted(text))
}

/// A further word: `$` would begin a variable.
fn argument(text: &str) -> String {
    quoted(text).replace('$', "$$")
}

/// One word as it is, whatever is in it: `%` would be replaced, and blanks would end it.
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%");
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-=".contains(c);
    if text.chars().all(plain) { escaped } else { format!("\"{escaped}\"") }
}

fn readable(path: &Path) -> Result<&str, Unfit> {
    let unfit = |why| Unfit { path: path.to_string_lossy().into_owned(), why };
    let text = path.to_str().ok_or_else(|| unfit("it is not UTF-8"))?;
    if text.chars().any(char::is_control) {
        return Err(unfit("it has control characters in it"));
    }
    Ok(text)
}

fn span(time: Duration) -> String {
    match (time.as_secs(), time.subsec_millis()) {
        (seconds, _) if seconds > FOR_EVER => "infinity".into(),
        (seconds, 0) => seconds.to_string(),
        (_, _) => format!("{}ms", time.as_millis()),
    }
}

#[cfg(test)]
#[path = "unit_tests.rs"]
mod tests;
