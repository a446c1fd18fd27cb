//! Detects a supervisor that restarts the gateway.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// PID 1 of a container, or its direct child: it ends and is restarted with the container.
pub fn is_container_init(pid: u32, parent: u32, exists: impl Fn(&str) -> bool) -> bool {
    pid == 1 || (parent == 1 && (exists("/.dockerenv") || exists("/run/.containerenv")))
}

/// systemd, s6 and launchd set environment variables for the process `pid`; other supervisors are declared by
/// a variable of ours.
pub fn is_supervised(pid: u32, env: impl Fn(&str) -> Option<OsString>) -> bool {
    let value = |name: &str| env(name).map(|text| text.to_string_lossy().trim().to_ascii_lowercase());
    let set = |name: &str| value(name).is_some_and(|text| !text.is_empty());
    // A terminal of a desktop session inherits the variable, which names another process.
    let meant_for = value("SYSTEMD_EXEC_PID").filter(|text| !text.is_empty());
    let systemd = set("INVOCATION_ID") && meant_for.is_none_or(|meant| meant == pid.to_string());
    // Every process of a macOS desktop session has this variable, with the value 0.
    let launchd = value("XPC_SERVICE_NAME").is_some_and(|name| !name.is_empty() && name != "0");
    let declared = value("HERMES_GATEWAY_EXTERNAL_SUPERVISOR");
    let declared = declared.is_some_and(|text| matches!(text.as_str(), "1" | "true" | "yes" | "on"));
    systemd || set("HERMES_S6_SUPERVISED_CHILD") || launchd || declared
}

/// Whether a supervisor restarts the process `pid` when it ends, and the caller is not that supervisor.
pub fn is_restarted_by_supervisor(pid: u32) -> bool {
    let Ok(environment) = std::fs::read(Path::new("/proc").join(pid.to_string()).join("environ")) else {
        return false;
    };
    let variable = |name: &str| {
        let mut entries = environment.split(|byte| *byte == 0);
        let value = entries.find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
        value.map(|value| OsStr::from_bytes(value).to_owned())
    };
    // systemd runs `ExecStop` in the same invocation.
    let ours = std::env::var_os("INVOCATION_ID");
    is_supervised(pid, variable) && (ours.is_none() || variable("INVOCATION_ID") != ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_supervisor_by_environment() {
        for (name, value, want) in [
            ("INVOCATION_ID", "0123456789abcdef", true),
            ("INVOCATION_ID", "", false),
            ("HERMES_S6_SUPERVISED_CHILD", "1", true),
            ("XPC_SERVICE_NAME", "ai.petasos.gateway", true),
            ("XPC_SERVICE_NAME", "0", false),
            ("HERMES_GATEWAY_EXTERNAL_SUPERVISOR", "Yes", true),
            ("HERMES_GATEWAY_EXTERNAL_SUPERVISOR", "0", false),
            ("HERMES_GATEWAY_EXTERNAL_SUPERVISOR", "maybe", false),
            ("HOME", "/root", false),
        ] {
            let env = |asked: &str| (asked == name).then(|| OsString::from(value));
            assert_eq!(is_supervised(7, env), want, "{name}={value}");
        }
    }

    #[test]
    fn detects_container_init() {
        for (pid, parent, file, want) in [
            (1, 0, "", true),
            (7, 1, "/.dockerenv", true),
            (7, 1, "/run/.containerenv", true),
            (7, 1, "", false),
            (7, 6, "/.dockerenv", false),
        ] {
            assert_eq!(is_container_init(pid, parent, |asked| asked == file), want, "{pid} {parent} {file}");
        }
    }

    #[test]
    fn ignores_systemd_variable_of_another_process() {
        for (meant_for, want) in [("7", true), ("", true), ("8", false), ("?", false)] {
            let env = |asked: &str| match asked {
                "INVOCATION_ID" => Some(OsString::from("0123456789abcdef")),
                "SYSTEMD_EXEC_PID" => Some(OsString::from(meant_for)),
                _ => None,
            };
            assert_eq!(is_supervised(7, env), want, "{meant_for:?}");
        }
    }
}
