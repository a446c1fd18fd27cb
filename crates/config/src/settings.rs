//! Settings: all set values in their final type, with their origin.

use std::collections::BTreeMap;
use std::fmt;

use petasos_core::{Platform, credentials};
use serde_json::Value;

use crate::catalogue;
use crate::environment::VariableSource;
use crate::key::{Declared, Default, Effect, Key, Kind, PlatformKey};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Default,
    File {
        line: u32,
    },
    Variable {
        name: String,
        place: VariableSource,
    },
    /// Derived from another setting; the text says how.
    Follows(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { line } => write!(f, "config.yaml:{line}"),
            Self::Variable { name, place: VariableSource::Process } => write!(f, "environment {name}"),
            Self::Variable { name, place: VariableSource::Credential } => write!(f, "credential {name}"),
            Self::Variable { name, place: VariableSource::Command } => write!(f, "secrets.commands.{name}"),
            Self::Variable { name, place: VariableSource::DotEnv } => write!(f, ".env {name}"),
            Self::Follows(why) => f.write_str(why),
        }
    }
}

#[derive(Clone, PartialEq)]
struct Setting {
    value: Value,
    origin: Origin,
}

/// Contains only set values; the keys hold the defaults.
#[derive(Clone, Default)]
pub struct Settings(BTreeMap<String, Setting>);

impl Settings {
    /// The set value of a key, or its default.
    pub fn get<T>(&self, key: &Key<T>) -> T {
        key.read(self.0.get(&key.declared.path()).map(|setting| &setting.value))
    }

    pub fn on<T>(&self, platform: Platform, key: &PlatformKey<T>) -> T {
        let path = key.path(platform);
        match self.0.get(&path) {
            Some(setting) => key.0.read(Some(&setting.value)),
            None => {
                // A platform's key may have its own default.
                let default = catalogue::exact(&path).map(|entry| entry.declared.default);
                key.0.read(default.and_then(Default::value).as_ref())
            }
        }
    }

    pub fn is_set<T>(&self, key: &Key<T>) -> bool {
        self.0.contains_key(&key.declared.path())
    }

    pub fn is_set_on<T>(&self, platform: Platform, key: &PlatformKey<T>) -> bool {
        self.0.contains_key(&key.path(platform))
    }

    pub fn origin<T>(&self, key: &Key<T>) -> Origin {
        self.origin_at(&key.declared.path())
    }

    pub fn origin_on<T>(&self, platform: Platform, key: &PlatformKey<T>) -> Origin {
        self.origin_at(&key.path(platform))
    }

    /// Settings without effect: ignored keys, and unknown parts of partly known structures.
    pub fn idle(&self) -> impl Iterator<Item = (&str, &Origin)> {
        let idle = |path: &str| {
            catalogue::find(path).is_none_or(|found| found.key.declared.effect == Effect::Ignored)
        };
        self.0
            .iter()
            .filter(move |(path, _)| idle(path))
            .map(|(path, setting)| (path.as_str(), &setting.origin))
    }

    /// Names of process variables that set something effective.
    pub fn variables(&self) -> Vec<String> {
        self.process_variables(|declared| declared.effect != Effect::Ignored)
    }

    /// Names of process variables that set a secret.
    pub fn secret_variables(&self) -> Vec<String> {
        self.process_variables(|declared| declared.kind == Kind::Secret)
    }

    fn process_variables(&self, is_wanted: impl Fn(&Declared) -> bool) -> Vec<String> {
        let wanted = |path: &str| catalogue::find(path).is_some_and(|found| is_wanted(&found.key.declared));
        let set = self.0.iter().filter(|(path, _)| wanted(path));
        let mut names: Vec<String> = set
            .filter_map(|(_, setting)| match &setting.origin {
                Origin::Variable { name, place: VariableSource::Process } => Some(name.clone()),
                Origin::Variable {
                    place: VariableSource::Credential | VariableSource::Command | VariableSource::DotEnv,
                    ..
                }
                | Origin::Default
                | Origin::File { .. }
                | Origin::Follows(_) => None,
            })
            .collect();
        names.sort();
        names.dedup();
        names
    }

    /// Values that may be secret: those of secret settings, and parts of structures and texts.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (path, setting) in &self.0 {
            let mut value = setting.value.clone();
            match catalogue::find(path).map(|found| found.key.declared.kind) {
                Some(Kind::Secret) => each_text(&value, &mut |text| found.push(text.to_owned())),
                Some(_) | None => {
                    push_url_secrets(&value, &mut found);
                    credentials::visit(&mut value, &mut |value| push_texts(value, &mut found));
                }
            }
        }
        found
    }

    pub(crate) fn put(&mut self, path: impl Into<String>, value: Value, origin: Origin) {
        self.0.insert(path.into(), Setting { value, origin });
    }

    pub(crate) fn set<T>(&mut self, key: &Key<T>, value: Value, origin: Origin) {
        self.put(key.declared.path(), value, origin);
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub(crate) fn origin_at(&self, path: &str) -> Origin {
        self.0.get(path).map_or(Origin::Default, |setting| setting.origin.clone())
    }

    /// The set value, or the default; `None` if there is neither.
    pub(crate) fn value(&self, path: &str) -> Option<Value> {
        let set = self.0.get(path).map(|setting| setting.value.clone());
        set.or_else(|| catalogue::find(path)?.key.declared.default.value())
    }
}

/// Every text in a value that is secret. Of a URL only the secret parts: addresses are not redacted.
fn push_texts(value: &Value, found: &mut Vec<String>) {
    each_text(value, &mut |text| {
        if !text.contains("://") {
            found.push(text.to_owned());
        }
    });
}

fn push_url_secrets(value: &Value, found: &mut Vec<String>) {
    each_text(value, &mut |text| found.extend(credentials::url_secrets(text).map(str::to_owned)));
}

fn each_text(value: &Value, visit: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(items) => items.iter().for_each(|item| each_text(item, visit)),
        Value::Object(fields) => fields.values().for_each(|field| each_text(field, visit)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Omits the values, which may be secret.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().map(|(path, setting)| (path, &setting.origin))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::coerce;

    #[test]
    fn every_default_is_accepted_by_its_key() {
        for key in catalogue::all() {
            if let Some(default) = key.declared.default.value() {
                assert_eq!(coerce(key.declared.kind, &default).as_ref(), Ok(&default), "{}", key.path);
            }
        }
    }

    #[test]
    fn debug_output_shows_no_value() {
        let mut settings = Settings::default();
        settings.put("model.api_key", "sk-live-1".into(), Origin::File { line: 3 });
        assert!(!format!("{settings:?}").contains("sk-live-1"));
    }
}
