//! `petasos prove` itself: it tries every promise with this program, says so, and leaves nothing behind.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod support;

use serde_json::Value;
use support::{json, petasos};
use tempfile::TempDir;

#[test]
fn every_promise_is_tried_and_kept_and_the_seed_is_named() {
    let (home, folder) = (TempDir::new().expect("a home"), TempDir::new().expect("a folder"));
    let mut command = petasos(home.path(), &["prove", "--json", "--seed", "7"]);
    let output = command.env("TMPDIR", folder.path()).output().expect("it runs");
    let proof = json(&output);
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
    assert!(!home.path().join("petasos.db").exists(), "the owner's home is left alone");
}
