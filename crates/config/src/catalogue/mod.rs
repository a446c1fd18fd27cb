//! Every key a configuration may hold: one table. Validation, `config explain` and the list of keys come from it.
//!
//! `*` in a path stands for a platform's name. The same setting may be written in several places
//! (`telegram.token`, `platforms.telegram.token`, `gateway.platforms.telegram.token`): `find` knows them.

pub mod agent;
pub mod any;
pub mod connector;
pub mod discord;
pub mod gateway;
mod later;
pub mod model;
pub mod relay;
pub mod restrict;
pub mod sessions;
pub mod slack;
pub mod telegram;
pub mod web;
pub mod webhook;

use std::collections::HashMap;
use std::sync::LazyLock;

use petasos_core::Platform;

use crate::key::{Declared, Effect};

/// Variables in which providers' keys are usually kept: they set `model.api_key`, if the provider is asked.
pub(crate) const KEY_VARIABLES: [&str; 3] = ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY"];

/// Keys and the modules they are declared in, in the order of the reference.
const MODULES: &[(&str, &[(&str, Declared)])] = &[
    ("model", model::DECLARED),
    ("agent", agent::DECLARED),
    ("sessions", sessions::DECLARED),
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

/// A key with what its platform is called filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub path: String,
    pub declared: Declared,
    /// Other paths with the same meaning.
    pub also: Vec<String>,
    /// Variables that set it; with `{P}` where any platform may stand.
    pub env: Vec<String>,
}

impl Entry {
    fn new(declared: Declared) -> Self {
        Self {
            path: declared.path(),
            also: declared.also.iter().map(|path| declared.in_place(path)).collect(),
            env: declared.env.iter().map(|name| variable(name, declared.platform)).collect(),
            declared,
        }
    }

    /// Whether the program does what it says.
    pub fn used(&self) -> bool {
        self.declared.effect == Effect::Read
    }

    /// Whether any platform may have it.
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

static CATALOGUE: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    let named = MODULES.iter().flat_map(|(_, keys)| keys.iter().map(|(_, declared)| declared));
    named.chain(later::DECLARED).copied().map(Entry::new).collect()
});

/// By path and by every other path with the same meaning.
static BY_PATH: LazyLock<HashMap<&'static str, &'static Entry>> = LazyLock::new(|| {
    let paths = |entry: &'static Entry| {
        std::iter::once(&entry.path).chain(&entry.also).map(move |it| (it.as_str(), entry))
    };
    CATALOGUE.iter().flat_map(paths).collect()
});

/// A key of the table and the full path it was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    pub key: &'static Entry,
    /// The one name of this setting, whatever was written.
    pub path: String,
}

/// The key with exactly this path.
pub(crate) fn exact(path: &str) -> Option<&'static Entry> {
    BY_PATH.get(path).copied()
}

pub fn all() -> impl Iterator<Item = &'static Entry> {
    CATALOGUE.iter()
}

/// The key that `path` means.
pub fn find(path: &str) -> Option<Found> {
    spellings(path).iter().find_map(|spelling| {
        let exact = BY_PATH.get(spelling.as_str()).filter(|key| !key.of_any_platform());
        let exact = exact.map(|key| Found { key, path: key.path.clone() });
        exact.or_else(|| all().filter(|key| key.of_any_platform()).find_map(|key| matched(key, spelling)))
    })
}

fn matched(key: &'static Entry, path: &str) -> Option<Found> {
    let patterns = std::iter::once(&key.path).chain(&key.also);
    let platform = patterns.into_iter().find_map(|pattern| fits(pattern, path))?;
    Some(Found { key, path: key.path.replace('*', platform) })
}

/// `Some` if `path` fits `pattern`; the text is what `*` stands for.
fn fits<'a>(pattern: &str, path: &'a str) -> Option<&'a str> {
    let Some((before, after)) = pattern.split_once('*') else {
        return (pattern == path).then_some("");
    };
    let name = path.strip_prefix(before)?.strip_suffix(after)?;
    Platform::parse(name).filter(|known| known.as_str() == name).map(|_| name)
}

/// Whether keys lie below `path`; `exact`: keys that name every step of it.
pub fn is_section(path: &str, exact: bool) -> bool {
    spellings(path).iter().any(|spelling| {
        let depth = spelling.split('.').count();
        let below = |pattern: &str| {
            let head: Vec<_> = pattern.split('.').take(depth).collect();
            let deeper = pattern.split('.').count() > depth;
            deeper && !(exact && head.contains(&"*")) && fits(&head.join("."), spelling).is_some()
        };
        all().any(|key| below(&key.path) || key.also.iter().any(|other| below(other)))
    })
}

/// Every key below `section`, for the platform it names.
pub fn below(section: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for spelling in spellings(section) {
        let depth = spelling.split('.').count();
        for key in all().filter(|key| key.path.split('.').count() > depth) {
            let head: Vec<_> = key.path.split('.').take(depth).collect();
            if let Some(platform) = fits(&head.join("."), &spelling) {
                // `platforms` alone leaves the platform open.
                let platform = if platform.is_empty() { "telegram" } else { platform };
                paths.push(key.path.replace('*', platform));
            }
        }
    }
    paths
}

/// The keys that a variable of this name sets.
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
    // Where a more exact key owns the path, that one is meant.
    let mut paths: Vec<String> = paths.iter().filter_map(|path| find(path)).map(|found| found.path).collect();
    paths.dedup();
    if KEY_VARIABLES.contains(&variable) {
        paths.push(model::API_KEY.to_string());
    }
    paths
}

/// The names that may stand directly below `section` (empty: at the top).
pub(crate) fn children(section: &str) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    for spelling in spellings(section) {
        let depth = if spelling.is_empty() { 0 } else { spelling.split('.').count() };
        for key in all() {
            let mut steps = key.path.split('.');
            let head: Vec<_> = steps.by_ref().take(depth).collect();
            if depth > 0 && fits(&head.join("."), &spelling).is_none() {
                continue;
            }
            match steps.next() {
                Some("*") => names.extend(Platform::known().map(Platform::as_str)),
                Some(name) => names.push(name),
                None => {}
            }
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}

/// Every path that `path` may be another way of writing, itself first.
fn spellings(path: &str) -> Vec<String> {
    let mut found = vec![path.to_owned()];
    found.extend(path.strip_prefix("gateway.").map(str::to_owned));
    for at in 0..found.len() {
        let first = found[at].split('.').next().unwrap_or_default();
        // Our own channels are no platforms that need a section: `web` means the listener.
        let named = Platform::parse(first)
            .filter(|it| !matches!(it.as_str(), "web" | "local" | "terminal" | "subagent"));
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
    fn means(path: &str, want: Option<&str>) {
        assert_eq!(find(path).map(|found| found.path).as_deref(), want, "{path}");
    }

    #[test]
    fn one_setting_may_be_written_in_several_places() {
        means("model", Some("model.default"));
        means("telegram.token", Some("platforms.telegram.token"));
        means("gateway.platforms.telegram.token", Some("platforms.telegram.token"));
        means("platforms.telegram.extra.require_mention", Some("platforms.telegram.require_mention"));
        means("telegram.base_url", Some("platforms.telegram.extra.base_url"));
        means("gateway.group_sessions_per_user", Some("group_sessions_per_user"));
        means("platforms.discord.enabled", Some("platforms.discord.enabled"));
        means("web.port", Some("web.port"));
        means("platforms.telgram.enabled", None);
        means("telegram", None);
    }

    #[test]
    fn no_path_stands_in_the_table_twice() {
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
        assert!(set_by("NOBODY").is_empty());
    }

    #[test]
    fn sections_are_known_by_what_lies_below() {
        assert!(is_section("platforms.telegram.extra", true));
        assert!(is_section("gateway", true));
        assert!(is_section("platforms.matrix", false) && !is_section("platforms.matrix", true));
        assert!(!is_section("modle", false));
        assert!(children("platforms").contains(&"telegram"));
        assert!(children("model").contains(&"base_url"));
    }

    /// Every Rust file of the workspace but the declarations.
    fn sources() -> String {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut folders = vec![root.join("src"), root.join("crates")];
        let mut text = String::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() && !path.ends_with("config/src/catalogue") && !path.ends_with("target") {
                    folders.push(path);
                } else if path.extension().is_some_and(|it| it == "rs") {
                    text.push_str(&std::fs::read_to_string(path).unwrap());
                }
            }
        }
        text
    }

    #[test]
    fn every_declared_key_is_read() {
        let sources = sources();
        let plain = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        for (module, keys) in MODULES {
            for (name, declared) in *keys {
                let read = format!("{module}::{name}");
                let mut found = sources.match_indices(&read).map(|(at, _)| &sources[at + read.len()..]);
                let ignored = declared.effect == Effect::Ignored;
                assert!(
                    ignored || found.any(plain),
                    "{} is declared, and nothing reads it as {read}: read it, or declare it in later.rs or \
                     restrict.rs",
                    declared.path()
                );
            }
        }
    }

    #[test]
    fn a_platform_that_a_key_names_exists() {
        for platform in all().filter_map(|key| key.declared.platform) {
            assert_eq!(Platform::parse(platform).map(Platform::as_str), Some(platform));
        }
    }
}
