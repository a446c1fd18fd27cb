//! Commands on the owner's machine (off unless switched on), approvals, and subagents.

use std::path::PathBuf;
use std::time::Duration;

use petasos_agent::{Pace, TerminalConfig};
use petasos_approval::Mode;
use petasos_config::Settings;
use petasos_config::choices::{ApprovalMode, CronApproval};
use petasos_config::keys::agent;
use petasos_gateway::{Consent, Delegating};

pub(super) fn terminal(settings: &Settings) -> Option<TerminalConfig> {
    settings.get(&agent::TERMINAL).then(|| TerminalConfig {
        cwd: settings.get(&agent::TERMINAL_CWD).filter(|path| path != ".").map(PathBuf::from),
        timeout: settings.get(&agent::TERMINAL_TIMEOUT),
        longest: settings.get(&agent::TERMINAL_MAX_TIMEOUT),
        output: settings.get(&agent::TOOL_OUTPUT),
        passthrough: settings.get(&agent::TERMINAL_ENV),
        login: settings.get(&agent::TERMINAL_LOGIN_SHELL),
        grace: settings.get(&agent::TERMINAL_GRACE),
        pace: Pace::default(),
    })
}

/// Who agrees to what.
pub(super) fn consent(settings: &Settings) -> Consent {
    Consent {
        mode: match settings.get(&agent::APPROVALS) {
            ApprovalMode::Manual => Mode::Manual,
            ApprovalMode::Smart => Mode::Smart,
            ApprovalMode::Off => Mode::Off,
        },
        timeout: settings.get(&agent::APPROVAL_TIMEOUT),
        deny: settings.get(&agent::APPROVAL_DENY),
        allow: settings.get(&agent::COMMAND_ALLOWLIST),
        unattended: settings.get(&agent::CRON_APPROVALS) == CronApproval::Approve,
    }
}

/// Limits of subagents.
pub(super) fn delegation(settings: &Settings) -> Delegating {
    Delegating {
        children: settings.get(&agent::CHILDREN),
        depth: settings.get(&agent::SPAWN_DEPTH),
        orchestrators: settings.get(&agent::ORCHESTRATORS),
        steps: settings.get(&agent::CHILD_STEPS),
        patience: settings.get(&agent::CHILD_TIMEOUT).map(|it| it.max(Duration::from_secs(30))),
        auto_approve: settings.get(&agent::CHILD_AUTO_APPROVE),
    }
}
