//! Commands on the owner's machine (off unless switched on), who agrees to them, and who else may run them.

use std::path::PathBuf;
use std::time::Duration;

use petasos_agent::{Pace, TerminalConfig};
use petasos_core::approve::Mode;
use petasos_gateway::{Consent, Delegating};

use crate::config::Settings;

pub(super) fn terminal(settings: &Settings) -> Option<TerminalConfig> {
    let seconds = |path: &str| Duration::from_secs(settings.count(path).unwrap_or_default());
    settings.flag("terminal.enabled").then(|| TerminalConfig {
        cwd: settings.text("terminal.cwd").filter(|path| path != ".").map(PathBuf::from),
        timeout: seconds("terminal.timeout"),
        longest: seconds("terminal.max_foreground_timeout"),
        output: settings
            .count("tool_output.max_bytes")
            .and_then(|n| usize::try_from(n).ok())
            .unwrap_or(50_000),
        passthrough: settings.list("terminal.env_passthrough"),
        login: settings.flag("terminal.login_shell"),
        grace: Duration::try_from_secs_f64(settings.number("terminal.daemon_term_grace_seconds"))
            .unwrap_or_default(),
        pace: Pace::default(),
    })
}

/// Who agrees to what.
pub(super) fn consent(settings: &Settings) -> Consent {
    Consent {
        mode: match settings.text("approvals.mode").as_deref() {
            Some("smart") => Mode::Smart,
            Some("off") => Mode::Off,
            Some(_) | None => Mode::Manual,
        },
        timeout: Duration::from_secs(settings.count("approvals.timeout").unwrap_or(60)),
        deny: settings.list("approvals.deny"),
        allow: settings.list("command_allowlist"),
        unattended: settings.text("approvals.cron_mode").as_deref() == Some("approve"),
    }
}

/// How much may be given to others.
pub(super) fn delegation(settings: &Settings) -> Delegating {
    let small = |path: &str| settings.count(path).and_then(|n| u32::try_from(n).ok()).unwrap_or(1);
    let patience = Duration::try_from_secs_f64(settings.number("delegation.child_timeout_seconds"));
    Delegating {
        children: small("delegation.max_concurrent_children") as usize,
        depth: small("delegation.max_spawn_depth"),
        orchestrators: settings.flag("delegation.orchestrator_enabled"),
        steps: small("delegation.max_iterations"),
        patience: patience.ok().filter(|it| !it.is_zero()).map(|it| it.max(Duration::from_secs(30))),
        auto_approve: settings.flag("delegation.subagent_auto_approve"),
    }
}
