//! Checks the words of the source: comments, strings and names follow docs/glossary.md.
//!
//! Every exception is listed here, with its reason.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Pronouns that hide the subject of a sentence.
const PRONOUNS: [&str; 6] = ["whoever", "nobody", "somebody", "anybody", "everybody", "wherever"];

/// A comment that begins with one of these describes a thing instead of naming it.
const RELATIVE_OPENINGS: [&str; 6] = ["What ", "Who ", "Whose ", "Whoever ", "Nobody ", "Somebody "];

/// A test name states behaviour, so it does not open with a relative clause.
const TEST_OPENINGS: [&str; 12] = [
    "what_",
    "whatever_",
    "who_",
    "whoever_",
    "whose_",
    "nobody_",
    "somebody_",
    "where_",
    "wherever_",
    "when_",
    "if_",
    "those_",
];

const LONGEST_TEST_NAME: usize = 72;

/// Function names without a meaning of their own.
const VAGUE_FUNCTIONS: [&str; 5] = ["say", "says", "tell", "told", "place"];

/// Names that their module qualifies.
const QUALIFIED_TYPES: [&str; 5] = ["Error", "Config", "Event", "State", "Kind"];

const DEFINITIONS_PER_TYPE_NAME: usize = 3;

/// Files whose strings contain a pronoun for a reason.
const STRINGS: [(&str, &str); 3] = [
    ("crates/approval/src/policy.rs", "stored names of decisions"),
    ("crates/platforms/src/webhook/request/signature.rs", "the secret of a test vector by GitHub"),
    ("tests/commands/language.rs", "the lists of this file"),
];

/// Files of tests that may sleep.
const SLEEPS: [(&str, &str); 2] = [
    ("crates/gateway/tests/outage/manual_clock.rs", "polls the state of the threads of its process"),
    ("crates/platforms/tests/platforms/harness.rs", "waits as long as a platform demands"),
];

struct Source {
    path: PathBuf,
    comments: Vec<String>,
    strings: Vec<String>,
    /// The file without comments and with empty strings.
    code: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources() -> Vec<Source> {
    let mut files = Vec::new();
    for folder in ["benches", "crates", "src", "tests"] {
        collect(&root().join(folder), &mut files);
    }
    assert!(files.len() > 500, "only {} files found", files.len());
    files.iter().map(|path| read(path)).collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            if !path.ends_with("node_modules") && !path.ends_with("target") {
                collect(&path, files);
            }
        } else if path.extension().is_some_and(|it| it == "rs") {
            files.push(path);
        }
    }
}

fn read(path: &Path) -> Source {
    let text = fs::read_to_string(path).expect("a source file");
    let mut source = Source {
        path: path.strip_prefix(root()).expect("below the root").to_owned(),
        comments: Vec::new(),
        strings: Vec::new(),
        code: String::new(),
    };
    let mut rest = text.as_str();
    while let Some(first) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            let line = rest.lines().next().unwrap_or_default();
            source.comments.push(line.trim_start_matches(['/', '!']).trim().to_owned());
            line.len()
        } else if let Some(length) = string_length(rest, source.code.chars().last()) {
            source.strings.push(rest[..length].to_owned());
            source.code.push_str("\"\"");
            length
        } else if let Some(length) = character_length(rest) {
            length
        } else {
            source.code.push(first);
            first.len_utf8()
        };
        rest = &rest[skipped..];
    }
    source
}

/// The length of the string literal at the beginning of `text`, if there is one.
fn string_length(text: &str, before: Option<char>) -> Option<usize> {
    if let Some(body) = text.strip_prefix('"') {
        let mut escaped = false;
        let end = body.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        return end.map(|at| at + 2);
    }
    if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
        return None;
    }
    let raw = text.strip_prefix("br").or_else(|| text.strip_prefix('r'))?;
    let hashes = raw.len() - raw.trim_start_matches('#').len();
    let body = raw[hashes..].strip_prefix('"')?;
    let closing = format!("\"{}", "#".repeat(hashes));
    let end = body.find(&closing)?;
    Some(text.len() - body.len() + end + closing.len())
}

/// The length of the character literal at the beginning of `text`, if it could hide a quotation mark.
fn character_length(text: &str) -> Option<usize> {
    ["'\"'", "'\\\"'", "'\\''"].iter().find(|it| text.starts_with(**it)).map(|it| it.len())
}

fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase)
}

fn definitions<'a>(code: &'a str, keywords: &'a [&str]) -> impl Iterator<Item = &'a str> {
    code.lines().filter_map(move |line| {
        let mut tokens = line.split_whitespace().skip_while(|it| !keywords.contains(it));
        tokens.next()?;
        let name = tokens.next()?;
        name.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|it| !it.is_empty())
    })
}

#[track_caller]
fn assert_none(rule: &str, found: &[String]) {
    assert!(found.is_empty(), "{rule}: {} found\n  {}", found.len(), found.join("\n  "));
}

#[test]
fn comments_name_their_subject() {
    let mut lines = 0;
    let mut pronouns = Vec::new();
    let mut openings = Vec::new();
    for source in sources() {
        lines += source.comments.len();
        let comment = |text: &str| format!("{}: {text}", source.path.display());
        for text in &source.comments {
            if words(text).any(|word| PRONOUNS.contains(&word.as_str())) {
                pronouns.push(comment(text));
            }
            if RELATIVE_OPENINGS.iter().any(|it| text.starts_with(it)) {
                openings.push(comment(text));
            }
        }
    }
    assert_none("a comment opens with a relative clause", &openings);
    let allowed = lines * 2 / 1_000;
    assert!(
        pronouns.len() <= allowed,
        "{} comments of {lines} use a pronoun for a noun, {allowed} may\n  {}",
        pronouns.len(),
        pronouns.join("\n  ")
    );
}

#[test]
fn strings_name_their_subject() {
    let mut found = Vec::new();
    for source in sources() {
        if STRINGS.iter().any(|(path, _)| source.path.starts_with(path)) {
            continue;
        }
        for text in &source.strings {
            if words(text).any(|word| PRONOUNS.contains(&word.as_str())) {
                found.push(format!("{}: {text}", source.path.display()));
            }
        }
    }
    assert_none("a string uses a pronoun for a noun", &found);
}

#[test]
fn test_names_state_behaviour() {
    let mut found = Vec::new();
    for source in sources() {
        for part in source.code.split("test]").skip(1) {
            let Some(name) = definitions(part, &["fn"]).next() else { continue };
            let relative = TEST_OPENINGS.iter().any(|it| name.starts_with(it));
            if relative || name.len() > LONGEST_TEST_NAME {
                found.push(format!("{}: {name}", source.path.display()));
            }
        }
    }
    assert_none("a test name opens with a relative clause or is too long", &found);
}

#[test]
fn function_names_are_precise() {
    let mut found = Vec::new();
    for source in sources() {
        for name in definitions(&source.code, &["fn"]) {
            if VAGUE_FUNCTIONS.contains(&name) {
                found.push(format!("{}: {name}", source.path.display()));
            }
        }
    }
    assert_none("a function name has no meaning of its own", &found);
}

#[test]
fn type_names_mean_few_things() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources() {
        for name in definitions(&source.code, &["struct", "enum", "trait", "union"]) {
            places.entry(name.to_owned()).or_default().push(source.path.display().to_string());
        }
    }
    let found: Vec<String> = places
        .into_iter()
        .filter(|(name, paths)| {
            paths.len() > DEFINITIONS_PER_TYPE_NAME && !QUALIFIED_TYPES.contains(&name.as_str())
        })
        .map(|(name, paths)| format!("{name}: {}", paths.join(", ")))
        .collect();
    assert_none("a type name is used for too many things", &found);
}

#[test]
fn statements_do_one_thing() {
    let mut found = Vec::new();
    for source in sources() {
        for line in source.code.lines().map(str::trim) {
            let tuple_let = line.starts_with("let (") && line.contains(") = (") && line.ends_with(");");
            let match_on_bool = line.starts_with("true =>") || line.starts_with("false =>");
            if tuple_let || match_on_bool {
                found.push(format!("{}: {line}", source.path.display()));
            }
        }
    }
    assert_none("a statement binds a literal tuple or matches a bool", &found);
}

/// `clippy.toml` bans the other ways to sleep.
#[test]
fn tests_wait_for_conditions() {
    let mut found = Vec::new();
    for source in sources() {
        let is_test = source.path.components().any(|it| it.as_os_str() == "tests");
        if !is_test || SLEEPS.iter().any(|(path, _)| source.path.starts_with(path)) {
            continue;
        }
        if ["clock::sleep", "park_timeout"].iter().any(|it| source.code.contains(it)) {
            found.push(source.path.display().to_string());
        }
    }
    assert_none("a test sleeps instead of waiting for a condition (petasos_fakes::wait)", &found);
}
