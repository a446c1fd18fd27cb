//! Runs `everyday.txt`.

use std::path::Path;

use crate::corpus::scripts;
use crate::machine::{Machine, support, text};

fn is_installed(program: &str) -> bool {
    std::env::split_paths(&std::env::var_os("PATH").unwrap()).any(|path| path.join(program).is_file())
}

/// The program that a title `needs PROGRAM: ...` names.
fn needed(title: &str) -> Option<&str> {
    title.trim().strip_prefix("needs ")?.split_once(':').map(|(program, _)| program)
}

#[test]
fn everyday_commands_work() {
    let layers = support();
    assert!(layers.namespaces, "these commands need user namespaces: {layers:?}");
    let all = scripts(include_str!("everyday.txt"));
    let possible = all.into_iter().filter(|script| needed(script.title).is_none_or(is_installed));
    let mut run = 0;
    let mut failed = Vec::new();
    for script in possible {
        let machine = Machine::new();
        let output = machine.confined(&machine.policy(layers), &format!("set -eo pipefail\n{}", script.text));
        run += 1;
        if !output.status.success() {
            failed.push(format!("{}: {}\n{}", script.title, output.status, text(&output)));
        }
    }
    assert!(failed.is_empty(), "{} of {run} failed\n{}", failed.len(), failed.join("\n"));
    assert!(run >= 40, "only {run} commands could be run");
}

#[test]
fn protected_files_of_a_writable_directory_stay_unchanged() {
    let machine = Machine::new();
    let mut policy = machine.policy(support());
    let hooks = machine.work.join(".git/hooks");
    std::fs::create_dir_all(&hooks).unwrap();
    policy.protected = vec![hooks.clone()];
    let output =
        machine.confined(&policy, "echo x >.git/config; echo x >.git/hooks/post-commit; rm -r .git/hooks");
    assert!(text(&output).contains("Read-only file system"), "{}", text(&output));
    assert!(Path::new(&hooks).is_dir() && !hooks.join("post-commit").exists());
    assert!(machine.work.join(".git/config").exists());
}

#[test]
fn protected_files_need_namespaces() {
    let machine = Machine::new();
    let mut policy = machine.policy(petasos_sandbox::Support { namespaces: false, ..support() });
    policy.protected = vec![machine.work.clone()];
    let output = machine.confined(&policy, "echo ran");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0), "{}", text(&output));
}
