//! Whether this machine confines the agent's commands.

use petasos_agent::TerminalConfig;
use petasos_sandbox::{Gap, Support};

use super::Finding;

const CHECK: &str = "sandbox";

pub(super) fn sandbox(terminal: &TerminalConfig) -> Finding {
    let Some(launcher) = &terminal.launcher else {
        let detail = "off: commands can read and change everything that the gateway can";
        return Finding::warn(CHECK, detail, "set terminal.sandbox: auto");
    };
    match Support::probe(launcher) {
        Ok(support) => describe(support),
        Err(error) => {
            Finding::warn(CHECK, format!("each command needs an approval: {error}"), "see docs/sandbox.md")
        }
    }
}

fn describe(support: Support) -> Finding {
    let gaps: Vec<String> = support.gaps().iter().map(Gap::to_string).collect();
    if !gaps.is_empty() {
        let detail = format!(
            "each command needs an approval, because this kernel does not confine {}",
            gaps.join(", ")
        );
        return Finding::warn(
            CHECK,
            detail,
            "use a newer kernel, or allow Landlock and seccomp in the container",
        );
    }
    let layers = format!("commands are confined by Landlock {} and seccomp", support.landlock);
    if support.namespaces {
        return Finding::ok(CHECK, format!("{layers}, in namespaces of their own"));
    }
    let detail = format!(
        "{layers}; without user namespaces many programs that change file modes, such as compilers, fail"
    );
    Finding::warn(CHECK, detail, "allow unprivileged user namespaces, see docs/sandbox.md")
}

#[cfg(test)]
mod tests {
    use super::super::CheckResult;
    use super::*;

    #[test]
    fn reports_layers_and_gaps() {
        let all = Support { landlock: 6, seccomp: true, namespaces: true };
        for (support, result, words) in [
            (all, CheckResult::Ok, "Landlock 6 and seccomp, in namespaces"),
            (Support { namespaces: false, ..all }, CheckResult::Warn, "without user namespaces"),
            (Support { landlock: 0, ..all }, CheckResult::Warn, "does not confine files"),
            (Support { seccomp: false, ..all }, CheckResult::Warn, "does not confine sockets"),
            (Support::NONE, CheckResult::Warn, "each command needs an approval"),
        ] {
            let finding = describe(support);
            assert_eq!(finding.result, result, "{support:?}");
            assert!(finding.detail.contains(words), "{}", finding.detail);
        }
    }
}
