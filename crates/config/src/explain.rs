//! Explanations of keys: meaning, value and origin, without secrets.

use std::borrow::Cow;

use petasos_core::credentials;
use serde::Serialize;
use serde_json::Value;

use crate::catalogue::{self, CatalogueEntry, FoundKey};
use crate::key::{Effect, Kind};
use crate::settings::Settings;
use crate::value::expected;

#[derive(Debug, Serialize)]
pub struct Explanation {
    pub key: String,
    pub help: &'static str,
    pub expects: String,
    /// Printable value; a secret is shown as `set`.
    pub value: Option<Value>,
    pub origin: String,
    pub default: Option<String>,
    pub environment: Vec<String>,
    /// Alternative paths.
    pub also: Vec<String>,
    /// `false`: accepted but without effect.
    pub used: bool,
    /// Permission denied while this unimplemented restriction is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denies: Option<&'static str>,
    pub reload: &'static str,
}

/// Every key in catalogue order, unset.
pub fn reference() -> Vec<Explanation> {
    let found = |key: &'static CatalogueEntry| FoundKey { key, path: key.path.replace('*', "<platform>") };
    catalogue::all().map(|key| explained(found(key), &Settings::default())).collect()
}

/// `None`: unknown key.
pub fn explain(path: &str, settings: &Settings) -> Option<Explanation> {
    catalogue::find(path).map(|found| explained(found, settings))
}

fn explained(found: FoundKey, settings: &Settings) -> Explanation {
    let platform = platform(&found);
    let declared = &found.key.declared;
    let variables = found.key.env.iter().map(|name| name.replace("{P}", &platform.to_ascii_uppercase()));
    let mut environment: Vec<String> = variables.collect();
    if found.path == catalogue::model::API_KEY.to_string() {
        environment.extend(catalogue::KEY_VARIABLES.map(str::to_owned));
    }
    Explanation {
        value: shown(&found.path, settings),
        origin: settings.origin_at(&found.path).to_string(),
        help: declared.help,
        expects: expected(declared.kind),
        default: declared.default.shown(),
        environment,
        also: found.key.also.iter().map(|other| other.replace('*', &platform)).collect(),
        used: found.key.used(),
        denies: match declared.effect {
            Effect::FailsClosed(closed) => Some(closed.denies),
            Effect::Read | Effect::Ignored => None,
        },
        reload: declared.reload.as_str(),
        key: found.path,
    }
}

/// The keys of a section, or those set by a variable.
pub fn explain_group(name: &str, settings: &Settings) -> Vec<Explanation> {
    let paths = catalogue::below(name).into_iter().chain(catalogue::set_by(name));
    let mut found: Vec<Explanation> = paths.filter_map(|path| explain(&path, settings)).collect();
    found.sort_by(|a, b| a.key.cmp(&b.key));
    found.dedup_by(|a, b| a.key == b.key);
    found
}

/// All set keys.
pub fn explain_all(settings: &Settings) -> Vec<Explanation> {
    settings.paths().filter_map(|path| explain(path, settings)).collect()
}

/// All unset keys, except those for any platform.
pub fn explain_unset(settings: &Settings) -> Vec<Explanation> {
    let unset = catalogue::all().filter(|key| !settings.has(&key.path) && !key.of_any_platform());
    unset.filter_map(|key| explain(&key.path, settings)).collect()
}

/// Every path; keys for any platform use an example platform.
pub fn known_paths() -> Vec<String> {
    catalogue::all().map(|key| key.path.replace('*', "telegram")).collect()
}

fn shown(path: &str, settings: &Settings) -> Option<Value> {
    let mut value = settings.value(path)?;
    let kind = catalogue::find(path)?.key.declared.kind;
    match kind {
        Kind::Secret => Some(Value::from("set")),
        // Structures and URLs may contain secrets.
        Kind::Table | Kind::Text | Kind::List => {
            credentials::visit(&mut value, &mut mask);
            Some(value)
        }
        Kind::Flag | Kind::Count(..) | Kind::Limit(..) | Kind::Number | Kind::Wait | Kind::Choice(_) => {
            Some(value)
        }
    }
}

/// Keeps the address of a URL with a credential, which helps to find a mistake.
fn mask(value: &mut Value) {
    let url = value.as_str().map(credentials::mask_url);
    *value = match url {
        Some(Cow::Owned(masked)) => Value::from(masked),
        Some(Cow::Borrowed(_)) | None => Value::from("set"),
    };
}

/// The platform name in place of `*`.
pub(crate) fn platform(found: &FoundKey) -> String {
    let before = found.key.declared.path.split('*').next().unwrap_or_default();
    let rest = found.path.strip_prefix(before).unwrap_or_default();
    rest.split('.').next().unwrap_or_default().to_owned()
}
