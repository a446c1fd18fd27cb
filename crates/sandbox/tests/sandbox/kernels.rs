//! Kernels that lack a layer: the trial finds out, and a command that relies on it does not run.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use petasos_sandbox::{Gap, Support, launcher};
use tempfile::TempDir;

use crate::machine::{LAUNCHER, Machine, support};

/// A program that starts the launcher as on a kernel without the feature.
fn launcher_without(feature: &str, errno: i32) -> (TempDir, PathBuf) {
    let directory = TempDir::new().unwrap();
    let program = directory.path().join("launcher");
    let script = format!("#!/bin/sh\nexec '{LAUNCHER}' --without {feature} {errno} '{LAUNCHER}' \"$@\"\n");
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    (directory, program)
}

fn check(feature: &str, expected: Support, gaps: &[Gap]) {
    for errno in [libc::ENOSYS, libc::EPERM, libc::EOPNOTSUPP] {
        let (_directory, program) = launcher_without(feature, errno);
        let found = Support::probe(&program).unwrap();
        assert_eq!(found, expected, "{feature}, error {errno}");
        assert_eq!(found.gaps(), gaps, "{feature}");
        assert_eq!(found.is_complete(), gaps.is_empty());
    }
}

#[test]
fn trial_finds_missing_layers() {
    let all = support();
    let without_landlock = Support { landlock: 0, ..all };
    let signals = if all.namespaces { vec![] } else { vec![Gap::Signals] };
    check("landlock", without_landlock, &[vec![Gap::Files], signals].concat());
    check("seccomp", Support { seccomp: false, ..all }, &[Gap::Sockets]);
    check("namespaces", Support { namespaces: false, ..all }, &[]);
}

#[test]
fn old_versions_of_landlock_leave_gaps() {
    let with = |landlock| Support { landlock, seccomp: true, namespaces: false }.gaps();
    assert_eq!(with(2), [Gap::Files, Gap::Signals]);
    assert_eq!(with(3), [Gap::Signals]);
    assert_eq!(with(6), []);
    assert_eq!(Support::NONE.gaps(), [Gap::Files, Gap::Sockets, Gap::Signals]);
}

#[test]
fn command_does_not_run_without_a_required_layer() {
    let machine = Machine::new();
    let policy = machine.policy(support());
    for feature in ["landlock", "seccomp", "namespaces"] {
        let (_directory, program) = launcher_without(feature, libc::EPERM);
        let mut command = std::process::Command::new(program);
        command.args(launcher::arguments(&policy).unwrap()).args(["touch", "ran"]).current_dir(&machine.work);
        let output = command.output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{feature}: {message}");
        assert!(message.starts_with(launcher::FAILED), "{feature}: {message}");
        assert!(!machine.work.join("ran").exists(), "{feature}");
    }
}
