//! Tests, source files and commands that the documents name must exist.

use std::path::PathBuf;

/// Every Rust file of the workspace, with its path as documents write it.
fn sources() -> Vec<(String, String)> {
    let mut found = vec![];
    let mut folders = vec![PathBuf::from("crates"), "src".into(), "tests".into()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                found.push((
                    short_path(&path.to_string_lossy()),
                    std::fs::read_to_string(&path).expect("text"),
                ));
            }
        }
    }
    found
}

/// `crates/gateway/src/gate.rs` and `gateway/gate.rs` are the same file.
fn short_path(path: &str) -> String {
    format!("/{path}").replacen("/crates/", "/", 1).replacen("/src/", "/", 1)
}

/// The texts between backticks.
fn code_spans(document: &str) -> Vec<String> {
    let text = std::fs::read_to_string(document).expect(document);
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn documents_name_existing_tests_and_files() {
    let sources = sources();
    let is_test = |it: &String| it.matches('_').count() > 2 && !it.contains(['.', '/', ':', '=', ' ']);
    let spans = ["docs/guarantees.md", "docs/security.md"].into_iter().flat_map(code_spans);
    for test in spans.filter(is_test) {
        assert!(sources.iter().any(|(_, text)| text.contains(&format!("fn {test}("))), "no test {test}");
    }
    for document in ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/guarantees.md", "docs/security.md"] {
        for file in code_spans(document).iter().filter(|it| it.ends_with(".rs") && !it.contains('<')) {
            assert!(sources.iter().any(|(path, _)| path.ends_with(&short_path(file))), "{document}: {file}");
        }
    }
}

#[test]
fn reference_names_every_command() {
    let help = std::process::Command::new(env!("CARGO_BIN_EXE_petasos")).arg("--help").output();
    let help = String::from_utf8(help.expect("help").stdout).expect("text");
    let list = help.split("Commands:").nth(1).and_then(|it| it.split("Options:").next()).expect("a list");
    let names: Vec<_> = list.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).collect();
    let reference = code_spans("docs/commands.md").join(" ");
    assert!(names.contains(&"backup"), "{names:?}");
    for name in names.iter().filter(|name| !["", "help", "version"].contains(name)) {
        assert!(
            reference.split([' ', '|']).any(|word| word == *name),
            "docs/commands.md does not name {name}"
        );
    }
}
