//! Every value that is set, in its final type, and where it came from.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use super::catalogue::{self, Kind};
use super::environment::Place;
use super::value::coerce;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File {
        line: u32,
    },
    Variable {
        name: String,
        place: Place,
    },
    /// Follows from another setting; the text says from which.
    Follows(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { line } => write!(f, "config.yaml:{line}"),
            Self::Variable { name, place: Place::Process } => write!(f, "environment {name}"),
            Self::Variable { name, place: Place::DotEnv } => write!(f, ".env {name}"),
            Self::Follows(why) => f.write_str(why),
        }
    }
}

#[derive(Clone, PartialEq)]
pub(crate) struct Setting {
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

/// Only what was set; defaults come from the catalogue when asked for.
#[derive(Clone, Default)]
pub(crate) struct Settings(BTreeMap<String, Setting>);

impl Settings {
    pub(crate) fn put(&mut self, path: impl Into<String>, value: Value, origin: Origin) {
        self.0.insert(path.into(), Setting { value, origin });
    }

    pub(crate) fn is_set(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    pub(crate) fn origin(&self, path: &str) -> Origin {
        self.0.get(path).map_or(Origin::Default, |setting| setting.origin.clone())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Setting)> {
        self.0.iter().map(|(path, setting)| (path.as_str(), setting))
    }

    /// What somebody set although nothing reads it yet.
    pub(crate) fn idle(&self) -> impl Iterator<Item = (&str, &Origin)> {
        let unused = |path: &str| catalogue::find(path).is_some_and(|found| !found.key.used);
        self.iter().filter(move |(path, _)| unused(path)).map(|(path, setting)| (path, &setting.origin))
    }

    /// What is set, else the default; `None` if there is neither.
    pub(crate) fn value(&self, path: &str) -> Option<Value> {
        self.0.get(path).map(|setting| setting.value.clone()).or_else(|| default(path))
    }

    pub(crate) fn flag(&self, path: &str) -> bool {
        self.value(path).and_then(|it| it.as_bool()).unwrap_or_default()
    }

    pub(crate) fn count(&self, path: &str) -> Option<u64> {
        self.value(path).and_then(|it| it.as_u64())
    }

    pub(crate) fn number(&self, path: &str) -> f64 {
        self.value(path).and_then(|it| it.as_f64()).unwrap_or_default()
    }

    /// `None` when unset or empty.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        self.value(path).and_then(|it| it.as_str().map(str::to_owned)).filter(|it| !it.is_empty())
    }

    pub(crate) fn list(&self, path: &str) -> Vec<String> {
        let items = self.value(path).and_then(|it| it.as_array().cloned()).unwrap_or_default();
        items.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()
    }
}

/// Values may be secret.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().map(|(path, setting)| (path, &setting.origin))).finish()
    }
}

fn default(path: &str) -> Option<Value> {
    let found = catalogue::find(path)?;
    let written = match found.key.default {
        "" if matches!(found.key.kind, Kind::List) => Value::Array(Vec::new()),
        "" => return None,
        text => Value::String(text.into()),
    };
    coerce(found.key.kind, &written).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_what_its_own_key_accepts() {
        for key in catalogue::all().filter(|key| !key.default.is_empty()) {
            let path = key.path.replace('*', "discord");
            assert!(default(&path).is_some(), "{path}: {:?}", key.default);
        }
    }

    #[test]
    fn printing_for_debugging_shows_no_value() {
        let mut settings = Settings::default();
        settings.put("model.api_key", "sk-live-1".into(), Origin::File { line: 3 });
        assert!(!format!("{settings:?}").contains("sk-live-1"));
    }
}
