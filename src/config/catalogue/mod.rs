//! Every key a configuration may hold: one table. Validation, `config explain` and the list of keys come from it.
//!
//! `*` in a path stands for a platform's name. The same setting may be written in several places
//! (`telegram.token`, `platforms.telegram.token`, `gateway.platforms.telegram.token`): `find` knows them.

mod connector;
mod later;
mod platforms;
mod relay;
mod retention;
mod used;

use petasos_core::Platform;

/// What a value must be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Flag,
    /// A whole number in this range.
    Count(i64, i64),
    /// The same, or `none` for no limit.
    Limit(i64, i64),
    /// A number of seconds or the like, not negative.
    Number,
    /// A number of seconds; less than nothing is nothing.
    Wait,
    Text,
    /// A text that is never printed.
    Secret,
    Choice(&'static [&'static str]),
    /// Several texts: a list, or one text with commas.
    List,
    /// A structure with a shape of its own.
    Table,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Key {
    pub(crate) path: &'static str,
    pub(crate) kind: Kind,
    /// As it would be written; empty for none.
    pub(crate) default: &'static str,
    pub(crate) help: &'static str,
    /// Variables that set it, the first one that is set counts. `{P}` is the platform's name.
    pub(crate) env: &'static [&'static str],
    /// Other paths that mean the same.
    pub(crate) also: &'static [&'static str],
    /// The file beats the environment (the reverse of the rule).
    pub(crate) file_first: bool,
    /// A value that cannot be used is replaced by the default, with a warning.
    pub(crate) forgiving: bool,
    /// `false`: known from existing files, nothing reads it yet.
    pub(crate) used: bool,
}

impl Key {
    const fn new(path: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Self {
        Self {
            path,
            kind,
            default,
            help,
            env: &[],
            also: &[],
            file_first: false,
            forgiving: false,
            used: true,
        }
    }

    const fn env(mut self, names: &'static [&'static str]) -> Self {
        self.env = names;
        self
    }

    const fn also(mut self, paths: &'static [&'static str]) -> Self {
        self.also = paths;
        self
    }

    const fn file_first(mut self) -> Self {
        self.file_first = true;
        self
    }

    const fn forgiving(mut self) -> Self {
        self.forgiving = true;
        self
    }

    const fn later(mut self) -> Self {
        self.used = false;
        self
    }
}

/// A key of the table and the full path it was asked for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Found {
    pub(crate) key: &'static Key,
    /// The one name of this setting, whatever was written.
    pub(crate) path: String,
}

pub(crate) fn all() -> impl Iterator<Item = &'static Key> {
    let first = used::KEYS.iter().chain(retention::KEYS).chain(platforms::KEYS);
    first.chain(relay::KEYS).chain(connector::KEYS).chain(later::KEYS)
}

/// The key that `path` means.
pub(crate) fn find(path: &str) -> Option<Found> {
    spellings(path).iter().find_map(|spelling| {
        let exact = all().find_map(|key| matched(key, spelling).filter(|_| !key.path.contains('*')));
        exact.or_else(|| all().find_map(|key| matched(key, spelling)))
    })
}

fn matched(key: &'static Key, path: &str) -> Option<Found> {
    let patterns = std::iter::once(&key.path).chain(key.also);
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
pub(crate) fn is_section(path: &str, exact: bool) -> bool {
    spellings(path).iter().any(|spelling| {
        let depth = spelling.split('.').count();
        let below = |pattern: &&str| {
            let head: Vec<_> = pattern.split('.').take(depth).collect();
            let deeper = pattern.split('.').count() > depth;
            deeper && !(exact && head.contains(&"*")) && fits(&head.join("."), spelling).is_some()
        };
        all().any(|key| below(&key.path) || key.also.iter().any(&below))
    })
}

/// Every key below `section`, for the platform it names.
pub(crate) fn below(section: &str) -> Vec<String> {
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
pub(crate) fn set_by(variable: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for key in all() {
        for name in key.env {
            match name.split_once("{P}") {
                None if *name == variable => paths.push(key.path.to_owned()),
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
    if ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY"].contains(&variable) {
        paths.push("model.api_key".to_owned());
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
    use super::*;
    use std::collections::BTreeSet;

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
            for path in std::iter::once(&key.path).chain(key.also) {
                assert!(seen.insert(path), "{path}");
            }
            assert!(key.help.len() > 5, "{}", key.path);
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
}
