//! Runs `attacks.txt`.

use std::process::Output;

use petasos_sandbox::Support;

use crate::corpus::scripts;
use crate::machine::{CANARY, Machine, Observation, supports, text};

/// Printed by attacks that cannot leave another trace.
const SUCCESS: &str = "CANARY-";

fn succeeded(output: &Output, before: &Observation, after: &Observation) -> bool {
    let printed = text(output);
    printed.contains(CANARY) || printed.contains(SUCCESS) || before != after
}

fn attack(layers: Option<Support>, script: &str) -> (bool, String) {
    let mut machine = Machine::new();
    let before = machine.observe();
    let output = match layers {
        Some(layers) => machine.confined(&machine.policy(layers), script),
        None => machine.unconfined(script),
    };
    let after = machine.observe();
    assert_ne!(output.status.code(), Some(125), "not launched: {}", text(&output));
    (succeeded(&output, &before, &after), text(&output))
}

#[test]
fn no_attack_succeeds() {
    let attacks = scripts(include_str!("attacks.txt"));
    assert!(attacks.len() >= 100, "{} attacks", attacks.len());
    let mut successes = Vec::new();
    for layers in supports() {
        for script in &attacks {
            let (succeeded, printed) = attack(Some(layers), &script.text);
            if succeeded {
                successes.push(format!("{layers:?}\n{}:\n{printed}", script.title));
            }
        }
    }
    assert!(successes.is_empty(), "{}", successes.join("\n"));
}

#[test]
fn attacks_succeed_outside_of_the_sandbox() {
    let harmless = scripts(include_str!("attacks.txt")).into_iter().filter(|it| it.title.starts_with('+'));
    let failed: Vec<_> = harmless
        .filter_map(|script| {
            let (succeeded, printed) = attack(None, &script.text);
            (!succeeded).then(|| format!("{}:\n{printed}", script.title))
        })
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
