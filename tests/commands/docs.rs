//! Names in the documents exist: tests, source files, commands.

use std::path::PathBuf;

/// Every Rust file of the workspace: its path as documents write it, and its text.
fn sources() -> Vec<(String, String)> {
    let (mut found, mut folders) = (vec![], vec![PathBuf::from("crates"), "src".into(), "tests".into()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                found.push((short(&path.to_string_lossy()), std::fs::read_to_string(&path).expect("text")));
            }
        }
    }
    found
}

/// `crates/gateway/src/gate.rs` and `gateway/gate.rs` are the same file.
fn short(path: &str) -> String {
    format!("/{path}").replacen("/crates/", "/", 1).replacen("/src/", "/", 1)
}

/// What stands between backticks.
fn quoted(document: &str) -> Vec<String> {
    let text = std::fs::read_to_string(document).expect(document);
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn tests_and_files_named_in_documents_exist() {
    let sources = sources();
    let is_test = |it: &&String| it.matches('_').count() > 2 && !it.contains(['.', '/', ':', '=', ' ']);
    for test in quoted("docs/guarantees.md").iter().filter(is_test) {
        assert!(sources.iter().any(|(_, text)| text.contains(&format!("fn {test}("))), "no test {test}");
    }
    for document in ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/guarantees.md"] {
        for file in quoted(document).iter().filter(|it| it.ends_with(".rs") && !it.contains('<')) {
            assert!(sources.iter().any(|(path, _)| path.ends_with(&short(file))), "{document}: {file}");
        }
    }
}

#[test]
fn readme_names_every_command() {
    let help = std::process::Command::new(env!("CARGO_BIN_EXE_petasos")).arg("--help").output();
    let help = String::from_utf8(help.expect("help").stdout).expect("text");
    let list = help.split("Commands:").nth(1).and_then(|it| it.split("Options:").next()).expect("a list");
    let names: Vec<_> = list.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).collect();
    let readme = quoted("README.md").join(" ");
    assert!(names.contains(&"backup"), "{names:?}");
    for name in names.iter().filter(|name| !["", "help", "version"].contains(name)) {
        assert!(readme.split([' ', '|']).any(|word| word == *name), "README.md does not name {name}");
    }
}
