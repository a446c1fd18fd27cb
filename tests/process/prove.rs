//! `petasos prove`: it passes with this program, detects broken promises, and cleans up.

use std::process::Output;

use crate::support::{expect_json, petasos};
use serde_json::Value;
use tempfile::TempDir;

/// Runs `petasos prove` with a planted bug; only debug builds have them.
fn prove_with_bug(bug: &str, more: &[&str]) -> Output {
    let home = TempDir::new().expect("a home");
    let arguments: Vec<_> = ["prove", "--seed", "7"].into_iter().chain(more.iter().copied()).collect();
    petasos(home.path(), &arguments).env("PETASOS_BREAKS", bug).output().expect("it runs")
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "a release build has no planted bugs")]
fn prove_detects_acknowledgement_without_storage() {
    let output = prove_with_bug("Refusals", &["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let proof: Value = serde_json::from_slice(&output.stdout).expect("a proof");
    let trials = proof["trials"].as_array().expect("trials");
    let failed: Vec<_> = trials.iter().filter(|trial| !trial["failure"].is_null()).collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0]["name"], "the disk is full");
    assert_eq!(failed[0]["failure"], "a message was acknowledged that could not be stored");
    for row in proof["promises"].as_array().expect("promises") {
        let about = failed[0]["promises"].as_array().is_some_and(|all| all.contains(&row["promise"]));
        let want = if about { ("fail", 1) } else { ("pass", 0) };
        assert_eq!((&row["result"], &row["failures"]), (&want.0.into(), &want.1.into()), "{row}");
    }
    let names = failed[0]["promises"].as_array().expect("promises");
    assert!(names.contains(&"G1".into()), "{names:?}");
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "a release build has no planted bugs")]
fn prove_detects_unmarked_duplicates() {
    let output = prove_with_bug("Marks", &[]);
    assert_eq!(output.status.code(), Some(1));
    let table = String::from_utf8(output.stdout).expect("a table");
    let row = |promise: &str| table.lines().find(|line| line.starts_with(promise)).expect(promise).to_owned();
    assert!(row("G4").contains("FAIL"), "{table}");
    for untouched in ["G6", "G8", "G9"] {
        assert!(row(untouched).contains("pass"), "{table}");
    }
    let named = "failed: the acknowledgement of a send is lost: chat 101 shows its answer 2 times without a duplicate mark";
    assert!(table.contains(named), "{table}");
    assert!(table.contains("repeat with: petasos prove --seed 7"), "{table}");
}

#[test]
fn prove_passes_every_promise_and_reports_seed() {
    let home = TempDir::new().expect("a home");
    let folder = TempDir::new().expect("a folder");
    let mut command = petasos(home.path(), &["prove", "--json", "--seed", "7"]);
    let output = command.env("TMPDIR", folder.path()).output().expect("it runs");
    let proof = expect_json(&output);
    assert_eq!(proof["seed"], 7);
    let promises = proof["promises"].as_array().expect("promises");
    let names: Vec<_> = promises.iter().filter_map(|row| row["promise"].as_str()).collect();
    assert_eq!(names, ["G1", "G2", "G3", "G4", "G5", "G6", "G7", "G8", "G9"]);
    for row in promises {
        assert_eq!((&row["result"], &row["failures"]), (&Value::from("pass"), &Value::from(0)), "{row}");
        assert!(row["trials"].as_u64() > Some(0), "{row}");
    }
    let trials = proof["trials"].as_array().expect("trials");
    assert!(
        trials.len() >= 12 && trials.iter().all(|trial| trial["seed"] == 7 && trial["failure"].is_null())
    );
    let left: Vec<_> = std::fs::read_dir(folder.path()).expect("a folder").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(!home.path().join("petasos.db").exists(), "the owner's home was used");
}
