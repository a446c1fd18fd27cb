//! Whether somebody starts us again when we end.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// In a container whoever is started first, or by the first, ends with it and is started again with it.
pub fn first_in_a_container(pid: u32, parent: u32, exists: impl Fn(&str) -> bool) -> bool {
    pid == 1 || (parent == 1 && (exists("/.dockerenv") || exists("/run/.containerenv")))
}

/// systemd, s6 and launchd leave a sign in the environment of the process `pid`; anybody else says so.
pub fn supervised(pid: u32, env: impl Fn(&str) -> Option<OsString>) -> bool {
    let value = |name: &str| env(name).map(|text| text.to_string_lossy().trim().to_ascii_lowercase());
    let set = |name: &str| value(name).is_some_and(|text| !text.is_empty());
    // A terminal of a desktop session has inherited the sign that was meant for something else.
    let meant_for = value("SYSTEMD_EXEC_PID").filter(|text| !text.is_empty());
    let systemd = set("INVOCATION_ID") && meant_for.is_none_or(|meant| meant == pid.to_string());
    // Every process of a desktop session on a Mac has this one, and there it is 0.
    let launchd = value("XPC_SERVICE_NAME").is_some_and(|name| !name.is_empty() && name != "0");
    let said = value("HERMES_GATEWAY_EXTERNAL_SUPERVISOR");
    let said = said.is_some_and(|text| matches!(text.as_str(), "1" | "true" | "yes" | "on"));
    systemd || set("HERMES_S6_SUPERVISED_CHILD") || launchd || said
}

/// Whether somebody starts this other process again when it ends, and it is not them who asks.
pub fn revives(pid: u32) -> bool {
    let Ok(environment) = std::fs::read(Path::new("/proc").join(pid.to_string()).join("environ")) else {
        return false;
    };
    let theirs = |name: &str| {
        let mut entries = environment.split(|byte| *byte == 0);
        let value = entries.find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
        value.map(|value| OsStr::from_bytes(value).to_owned())
    };
    // systemd stops a unit by a process of the same invocation.
    let ours = std::env::var_os("INVOCATION_ID");
    supervised(pid, theirs) && (ours.is_none() || theirs("INVOCATION_ID") != ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_supervisor_is_known_by_its_sign() {
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
            assert_eq!(supervised(7, env), want, "{name}={value}");
        }
    }

    #[test]
    fn the_first_process_of_a_container_is_started_again_with_it() {
        for (pid, parent, file, want) in [
            (1, 0, "", true),
            (7, 1, "/.dockerenv", true),
            (7, 1, "/run/.containerenv", true),
            (7, 1, "", false),
            (7, 6, "/.dockerenv", false),
        ] {
            assert_eq!(
                first_in_a_container(pid, parent, |asked| asked == file),
                want,
                "{pid} {parent} {file}"
            );
        }
    }

    #[test]
    fn a_sign_of_systemd_that_was_meant_for_another_process_does_not_count() {
        for (meant_for, want) in [("7", true), ("", true), ("8", false), ("?", false)] {
            let env = |asked: &str| match asked {
                "INVOCATION_ID" => Some(OsString::from("0123456789abcdef")),
                "SYSTEMD_EXEC_PID" => Some(OsString::from(meant_for)),
                _ => None,
            };
            assert_eq!(supervised(7, env), want, "{meant_for:?}");
        }
    }
}
