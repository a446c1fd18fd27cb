//! Catalogue of all keys: the source of validation, `config explain` and the key reference.
//!
//! `*` in a path stands for a platform name. A setting may have several spellings (`telegram.token`,
//! `platforms.telegram.token`, `gateway.platforms.telegram.token`), which `find` resolves.

pub mod agent;
pub mod any;
pub mod connector;
pub mod discord;
pub mod gateway;
mod later;
pub mod model;
pub mod relay;
pub mod restrict;
pub mod secrets;
pub mod sessions;
pub mod slack;
pub mod telegram;
pub mod web;
pub mod webhook;

use std::collections::HashMap;
use std::sync::LazyLock;

use petasos_core::Platform;
use petasos_core::platform::Peer;

use crate::key::{Declared, Effect};

/// Usual variables for provider keys; they set `model.api_key` if their provider is used.
pub(crate) const KEY_VARIABLES: [&str; 3] = ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY"];

/// Modules with their keys, in the order of the reference.
const MODULES: &[(&str, &[(&str, Declared)])] = &[
    ("model", model::DECLARED),
    ("agent", agent::DECLARED),
    ("sessions", sessions::DECLARED),
    ("secrets", secrets::DECLARED),
    ("gateway", gateway::DECLARED),
    ("web", web::DECLARED),
    ("any", any::DECLARED),
    ("telegram", telegram::DECLARED),
    ("discord", discord::DECLARED),
    ("slack", slack::DECLARED),
    ("webhook", webhook::DECLARED),
    ("relay", relay::DECLARED),
    ("connector", connector::DECLARED),
    ("restrict", restrict::DECLARED),
];

/// A key with the platform name filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogueEntry {
    pub path: String,
    pub declared: Declared,
    /// Alternative paths.
    pub also: Vec<String>,
    /// Environment variables, with `{P}` in keys for any platform.
    pub env: Vec<String>,
}

impl CatalogueEntry {
    fn new(declared: Declared) -> Self {
        Self {
            path: declared.path(),
            also: declared.also.iter().map(|path| declared.expand_platform(path)).collect(),
            env: declared.env.iter().map(|name| variable(name, declared.platform)).collect(),
            declared,
        }
    }

    /// Whether the setting is implemented.
    pub fn used(&self) -> bool {
        self.declared.effect == Effect::Read
    }

    /// Whether the key is for any platform.
    pub fn of_any_platform(&self) -> bool {
        self.path.contains('*')
    }
}

pub(crate) fn variable(name: &str, platform: Option<&str>) -> String {
    match platform {
        Some(platform) => name.replace("{P}", &platform.to_ascii_uppercase()),
        None => name.to_owned(),
    }
}

static CATALOGUE: LazyLock<Vec<CatalogueEntry>> = LazyLock::new(|| {
    let named = MODULES.iter().flat_map(|(_, keys)| keys.iter().map(|(_, declared)| declared));
    named.chain(later::DECLARED).copied().map(CatalogueEntry::new).collect()
});

/// By path and alternative path.
static BY_PATH: LazyLock<HashMap<&'static str, &'static CatalogueEntry>> = LazyLock::new(|| {
    let paths = |entry: &'static CatalogueEntry| {
        std::iter::once(&entry.path).chain(&entry.also).map(move |it| (it.as_str(), entry))
    };
    CATALOGUE.iter().flat_map(paths).collect()
});

/// A key and the canonical path of the lookup.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundKey {
    pub key: &'static CatalogueEntry,
    pub path: String,
}

pub(crate) fn exact(path: &str) -> Option<&'static CatalogueEntry> {
    BY_PATH.get(path).copied()
}

pub fn all() -> impl Iterator<Item = &'static CatalogueEntry> {
    CATALOGUE.iter()
}

/// Resolves any spelling of a path.
pub fn find(path: &str) -> Option<FoundKey> {
    spellings(path).iter().find_map(|spelling| {
        let exact = BY_PATH.get(spelling.as_str()).filter(|key| !key.of_any_platform());
        let exact = exact.map(|key| FoundKey { key, path: key.path.clone() });
        exact.or_else(|| all().filter(|key| key.of_any_platform()).find_map(|key| matched(key, spelling)))
    })
}

fn matched(key: &'static CatalogueEntry, path: &str) -> Option<FoundKey> {
    let patterns = std::iter::once(&key.path).chain(&key.also);
    let platform = patterns.into_iter().find_map(|pattern| match_pattern(pattern, path))?;
    Some(FoundKey { key, path: key.path.replace('*', platform) })
}

/// The platform name if `path` matches `pattern`.
fn match_pattern<'a>(pattern: &str, path: &'a str) -> Option<&'a str> {
    let Some((before, after)) = pattern.split_once('*') else {
        return (pattern == path).then_some("");
    };
    let name = path.strip_prefix(before)?.strip_suffix(after)?;
    Platform::parse(name).filter(|known| known.as_str() == name).map(|_| name)
}

/// Whether keys exist below `path`; `exact`: only keys that name every step of it.
pub fn is_section(path: &str, exact: bool) -> bool {
    spellings(path).iter().any(|spelling| {
        let depth = spelling.split('.').count();
        let below = |pattern: &str| {
            let head: Vec<_> = pattern.split('.').take(depth).collect();
            let deeper = pattern.split('.').count() > depth;
            deeper && !(exact && head.contains(&"*")) && match_pattern(&head.join("."), spelling).is_some()
        };
        all().any(|key| below(&key.path) || key.also.iter().any(|other| below(other)))
    })
}

/// Every key below `section`, for its platform.
pub fn below(section: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for spelling in spellings(section) {
        let depth = spelling.split('.').count();
        for key in all().filter(|key| key.path.split('.').count() > depth) {
            let head: Vec<_> = key.path.split('.').take(depth).collect();
            if let Some(platform) = match_pattern(&head.join("."), &spelling) {
                // `platforms` alone names no platform; use an example.
                let platform = if platform.is_empty() { "telegram" } else { platform };
                paths.push(key.path.replace('*', platform));
            }
        }
    }
    paths
}

/// Keys set by this variable.
pub fn set_by(variable: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for key in all() {
        for name in &key.env {
            match name.split_once("{P}") {
                None if name == variable => paths.push(key.path.clone()),
                None => {}
                Some((before, after)) => {
                    let platform = variable.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
                    let platform = platform.map(str::to_ascii_lowercase);
                    if let Some(platform) = platform.filter(|name| Platform::parse(name).is_some()) {
                        paths.push(key.path.replace('*', &platform));
                    }
                }
            }
        }
    }
    // Prefers the more exact key of a path.
    let mut paths: Vec<String> = paths.iter().filter_map(|path| find(path)).map(|found| found.path).collect();
    paths.dedup();
    if KEY_VARIABLES.contains(&variable) {
        paths.push(model::API_KEY.to_string());
    }
    paths
}

/// Names allowed directly below `section` (empty: top level).
pub(crate) fn children(section: &str) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    for spelling in spellings(section) {
        let depth = if spelling.is_empty() { 0 } else { spelling.split('.').count() };
        for key in all() {
            let mut steps = key.path.split('.');
            let head: Vec<_> = steps.by_ref().take(depth).collect();
            if depth > 0 && match_pattern(&head.join("."), &spelling).is_none() {
                continue;
            }
            match steps.next() {
                Some("*") => names.extend(Platform::all().map(Platform::as_str)),
                Some(name) => names.push(name),
                None => {}
            }
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}

/// Whether a section with the name of the platform holds its settings. For the channels of the owner and of subagents
/// it has another meaning: `web` is the listener.
fn has_section(platform: Platform) -> bool {
    match platform.peer() {
        Peer::People | Peer::Caller | Peer::Sender | Peer::Schedule => true,
        Peer::Owner | Peer::Parent => false,
    }
}

/// All spellings of `path`, starting with itself.
fn spellings(path: &str) -> Vec<String> {
    let mut found = vec![path.to_owned()];
    found.extend(path.strip_prefix("gateway.").map(str::to_owned));
    for at in 0..found.len() {
        let first = found[at].split('.').next().unwrap_or_default();
        let named = Platform::parse(first).filter(|platform| has_section(*platform));
        if named.is_some_and(|it| it.as_str() == first) {
            found.push(format!("platforms.{}", found[at]));
        }
    }
    for at in 0..found.len() {
        let mut steps = found[at].splitn(3, '.');
        if let (Some("platforms"), Some(name), Some(rest)) = (steps.next(), steps.next(), steps.next()) {
            let swapped = match rest.strip_prefix("extra.") {
                Some(rest) => format!("platforms.{name}.{rest}"),
                None => format!("platforms.{name}.extra.{rest}"),
            };
            found.push(swapped);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[track_caller]
    fn resolves_to(path: &str, want: Option<&str>) {
        assert_eq!(find(path).map(|found| found.path).as_deref(), want, "{path}");
    }

    #[test]
    fn setting_has_several_spellings() {
        resolves_to("model", Some("model.default"));
        resolves_to("telegram.token", Some("platforms.telegram.token"));
        resolves_to("gateway.platforms.telegram.token", Some("platforms.telegram.token"));
        resolves_to("platforms.telegram.extra.require_mention", Some("platforms.telegram.require_mention"));
        resolves_to("telegram.base_url", Some("platforms.telegram.extra.base_url"));
        resolves_to("gateway.group_sessions_per_user", Some("group_sessions_per_user"));
        resolves_to("platforms.discord.enabled", Some("platforms.discord.enabled"));
        resolves_to("web.port", Some("web.port"));
        resolves_to("platforms.telgram.enabled", None);
        resolves_to("telegram", None);
    }

    #[test]
    fn catalogue_paths_are_unique() {
        let mut seen = BTreeSet::new();
        for key in all() {
            for path in std::iter::once(&key.path).chain(&key.also) {
                assert!(seen.insert(path), "{path}");
            }
            assert!(key.declared.help.len() > 5, "{}", key.path);
        }
    }

    #[test]
    fn sections_and_variables_lead_to_their_keys() {
        assert!(below("web").contains(&"web.port".to_owned()));
        assert!(below("telegram").contains(&"platforms.telegram.token".to_owned()));
        assert!(below("web.port").is_empty());
        assert_eq!(set_by("TELEGRAM_ALLOWED_USERS"), ["platforms.telegram.allowed_users"]);
        assert!(set_by("ANTHROPIC_API_KEY").contains(&"model.api_key".to_owned()));
        assert!(set_by("UNUSED").is_empty());
    }

    #[test]
    fn sections_are_derived_from_key_paths() {
        assert!(is_section("platforms.telegram.extra", true));
        assert!(is_section("gateway", true));
        assert!(is_section("platforms.matrix", false) && !is_section("platforms.matrix", true));
        assert!(!is_section("modle", false));
        assert!(children("platforms").contains(&"telegram"));
        assert!(children("model").contains(&"base_url"));
    }

    /// Code of the workspace that is not a test, a comment or a declaration.
    fn sources() -> String {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut folders = vec![root.join("src"), root.join("crates")];
        let mut text = String::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir()
                    && !["config/src/catalogue", "target", "tests"].iter().any(|it| path.ends_with(it))
                {
                    folders.push(path);
                } else if path.extension().is_some_and(|it| it == "rs") && !is_test_file(&path) {
                    text.extend(code(&std::fs::read_to_string(path).unwrap()));
                }
            }
        }
        text
    }

    fn is_test_file(path: &Path) -> bool {
        let name = path.file_stem().unwrap().to_string_lossy();
        name == "tests" || name.ends_with("_tests")
    }

    /// The lines of a source file without comments, up to its test module.
    fn code(source: &str) -> Vec<String> {
        let without_comment = |line: &str| {
            let comment =
                line.match_indices("//").find(|(at, _)| line[..*at].trim_end().len() < *at || *at == 0);
            format!("{}\n", comment.map_or(line, |(at, _)| &line[..at]))
        };
        let before_tests = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        before_tests.lines().map(without_comment).collect()
    }

    #[test]
    fn code_excludes_comments_and_test_modules() {
        let source = "//! agent::A\nfn f() { \"https://x\"; g(); } // agent::B\n    // agent::C\nmod x;\n\
                      #[cfg(test)]\nmod tests {\n    agent::D\n}\n";
        assert_eq!(code(source).concat(), "\nfn f() { \"https://x\"; g(); } \n    \nmod x;\n");
    }

    #[test]
    fn every_declared_key_is_read() {
        let sources = sources();
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        for (module, keys) in MODULES {
            for (name, declared) in *keys {
                let read = format!("{module}::{name}");
                let whole = |at: usize| {
                    !sources[..at].ends_with(is_word) && !sources[at + read.len()..].starts_with(is_word)
                };
                let ignored = declared.effect == Effect::Ignored;
                assert!(
                    ignored || sources.match_indices(&read).any(|(at, _)| whole(at)),
                    "{} is declared, and nothing reads it as {read}: read it, or declare it in later.rs or \
                     restrict.rs",
                    declared.path()
                );
            }
        }
    }

    #[test]
    fn platforms_of_keys_exist() {
        for platform in all().filter_map(|key| key.declared.platform) {
            assert_eq!(Platform::parse(platform).map(Platform::as_str), Some(platform));
        }
    }
}
