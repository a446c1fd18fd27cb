//! Settings of the terminal tool (off by default), of approvals and of delegation.

use std::path::{Path, PathBuf};
use std::time::Duration;

use petasos_agent::{TerminalConfig, WatchLimits};
use petasos_approval::ReviewMode;
use petasos_config::Settings;
use petasos_config::choices::{ApprovalMode, CronApproval, SandboxMode};
use petasos_config::keys::agent;
use petasos_gateway::{ApprovalSettings, DelegationSettings};

pub(crate) fn terminal(settings: &Settings) -> Option<TerminalConfig> {
    settings.get(&agent::TERMINAL).then(|| TerminalConfig {
        cwd: settings.get(&agent::TERMINAL_CWD).filter(|path| path != ".").map(PathBuf::from),
        timeout: settings.get(&agent::TERMINAL_TIMEOUT),
        max_timeout: settings.get(&agent::TERMINAL_MAX_TIMEOUT),
        output: settings.get(&agent::TOOL_OUTPUT),
        passthrough: settings.get(&agent::TERMINAL_ENV),
        login: settings.get(&agent::TERMINAL_LOGIN_SHELL),
        grace: settings.get(&agent::TERMINAL_GRACE),
        watch_limits: WatchLimits::default(),
        launcher: match settings.get(&agent::TERMINAL_SANDBOX) {
            SandboxMode::Auto => Some(launcher()),
            SandboxMode::Off => None,
        },
    })
}

/// This program, even after its file was replaced by an update.
pub(crate) fn launcher() -> PathBuf {
    Path::new("/proc").join(std::process::id().to_string()).join("exe")
}

pub(crate) fn approval_settings(settings: &Settings) -> ApprovalSettings {
    ApprovalSettings {
        mode: match settings.get(&agent::APPROVALS) {
            ApprovalMode::Manual => ReviewMode::Manual,
            ApprovalMode::Smart => ReviewMode::Smart,
            ApprovalMode::Off => ReviewMode::Off,
        },
        timeout: settings.get(&agent::APPROVAL_TIMEOUT),
        deny: settings.get(&agent::APPROVAL_DENY),
        allow: settings.get(&agent::COMMAND_ALLOWLIST),
        unattended: settings.get(&agent::CRON_APPROVALS) == CronApproval::Approve,
    }
}

pub(crate) fn delegation(settings: &Settings) -> DelegationSettings {
    DelegationSettings {
        children: settings.get(&agent::CHILDREN),
        depth: settings.get(&agent::SPAWN_DEPTH),
        orchestrators: settings.get(&agent::ORCHESTRATORS),
        steps: settings.get(&agent::CHILD_STEPS),
        timeout: settings.get(&agent::CHILD_TIMEOUT).map(|it| it.max(Duration::from_secs(30))),
        auto_approve: settings.get(&agent::CHILD_AUTO_APPROVE),
    }
}
