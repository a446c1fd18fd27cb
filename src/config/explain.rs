//! What one key is, what it is set to, and who set it. Secrets are never part of the answer.

use serde::Serialize;
use serde_json::Value;

use super::catalogue::{self, Found, Key, Kind};
use super::settings::Settings;
use super::value::expected;

#[derive(Debug, Serialize)]
pub(crate) struct Explanation {
    pub(crate) key: String,
    pub(crate) help: &'static str,
    pub(crate) expects: String,
    /// As it may be shown: a secret is `set` or nothing.
    pub(crate) value: Option<Value>,
    pub(crate) origin: String,
    pub(crate) default: Option<&'static str>,
    pub(crate) environment: Vec<String>,
    /// Other places in the file that mean the same.
    pub(crate) also: Vec<String>,
    /// `false`: accepted, has no effect yet.
    pub(crate) used: bool,
}

/// Every key of the table in its order, as nobody has set it.
pub(crate) fn reference() -> Vec<Explanation> {
    let found = |key: &'static Key| Found { key, path: key.path.replace('*', "<platform>") };
    catalogue::all().map(|key| explained(found(key), &Settings::default())).collect()
}

/// `None` for a key that nobody knows.
pub(crate) fn explain(path: &str, settings: &Settings) -> Option<Explanation> {
    catalogue::find(path).map(|found| explained(found, settings))
}

fn explained(found: Found, settings: &Settings) -> Explanation {
    let platform = platform(&found);
    let variables = found.key.env.iter().map(|name| name.replace("{P}", &platform.to_ascii_uppercase()));
    let mut environment: Vec<String> = variables.collect();
    if found.path == "model.api_key" {
        environment.extend(["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY"].map(str::to_owned));
    }
    Explanation {
        value: shown(&found.path, settings),
        origin: settings.origin(&found.path).to_string(),
        help: found.key.help,
        expects: expected(found.key.kind),
        default: Some(found.key.default).filter(|text| !text.is_empty()),
        environment,
        also: found.key.also.iter().map(|other| other.replace('*', &platform)).collect(),
        used: found.key.used,
        key: found.path,
    }
}

/// The keys of a section, or those that a variable sets. Empty if it is neither.
pub(crate) fn explain_group(name: &str, settings: &Settings) -> Vec<Explanation> {
    let paths = catalogue::below(name).into_iter().chain(catalogue::set_by(name));
    let mut found: Vec<Explanation> = paths.filter_map(|path| explain(&path, settings)).collect();
    found.sort_by(|a, b| a.key.cmp(&b.key));
    found.dedup_by(|a, b| a.key == b.key);
    found
}

/// Everything that is set, as it may be shown.
pub(crate) fn explain_all(settings: &Settings) -> Vec<Explanation> {
    settings.iter().filter_map(|(path, _)| explain(path, settings)).collect()
}

fn shown(path: &str, settings: &Settings) -> Option<Value> {
    let value = settings.value(path)?;
    let kind = catalogue::find(path)?.key.kind;
    match kind {
        Kind::Secret => Some(Value::from("set")),
        // A structure may hold keys of its own.
        Kind::Table => Some(redact(value)),
        Kind::Flag
        | Kind::Count(..)
        | Kind::Limit(..)
        | Kind::Number
        | Kind::Wait
        | Kind::Text
        | Kind::Choice(_)
        | Kind::List => Some(value),
    }
}

fn redact(value: Value) -> Value {
    match value {
        Value::Object(section) => {
            let hide = |(name, inner): (String, Value)| {
                let secret = ["key", "token", "secret", "password"].iter().any(|word| name.contains(word));
                let inner = if secret && !inner.is_null() { Value::from("set") } else { redact(inner) };
                (name, inner)
            };
            Value::Object(section.into_iter().map(hide).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(redact).collect()),
        plain => plain,
    }
}

/// What `*` stands for in this key.
fn platform(found: &Found) -> String {
    let before = found.key.path.split('*').next().unwrap_or_default();
    let rest = found.path.strip_prefix(before).unwrap_or_default();
    rest.split('.').next().unwrap_or_default().to_owned()
}
