//! The API for programs, if there is to be one, and who may use it.

use std::collections::BTreeMap;
use std::time::Duration;

use petasos_core::{Platform, Secret};
use petasos_gateway::{RunLimits, Unbuilt};
use petasos_web::{ApiKey, ApiOptions, Scope};
use serde_json::Value;

use super::credential::{self, Wanted, is_placeholder};
use crate::config::{Problem, Settings};

const KEY: &str = "platforms.api_server.extra.key";
const KEYS: &str = "platforms.api_server.extra.keys";
const ROUTES: &str = "platforms.api_server.extra.model_routes";
/// What a key with this name and no other is called.
pub(crate) const DEFAULT: &str = "default";
const SHORTEST: usize = 16;
const SHORTEST_NAME: &str = "at least 16 characters";
/// When there is no cap: more runs than this are no work but an accident.
const NO_CAP: usize = 10_000;

/// What the owner wants of the API.
#[derive(Debug)]
pub(super) enum Served {
    No,
    /// Without keys, one is made at the start.
    Yes {
        options: ApiOptions,
        asked_for: bool,
    },
    Unbuilt(Unbuilt),
}

pub(super) fn served(settings: &Settings, problems: &mut Vec<Problem>) -> Served {
    let wanted = credential::wanted(settings, "api_server");
    let asked_for = wanted == Wanted::Yes || settings.is_set(KEY) || settings.is_set(KEYS);
    if wanted == Wanted::No || !(asked_for || settings.flag("web.enabled")) {
        return Served::No;
    }
    let keys = match keys(settings) {
        Ok(keys) => keys,
        Err((path, reason)) => {
            let problem =
                Problem::warning(settings.origin(path).to_string(), format!("{reason}; the API stays off"));
            problems
                .push(problem.next("openssl rand -hex 32 makes one; without any, one is made at the start"));
            return Served::Unbuilt(Unbuilt { platform: Platform::API_SERVER, reason });
        }
    };
    let options = ApiOptions {
        keys,
        origins: settings.list("platforms.api_server.extra.cors_origins"),
        model_name: settings
            .text("platforms.api_server.extra.model_name")
            .unwrap_or_else(|| "petasos".into()),
        model_routes: routes(settings, problems),
    };
    Served::Yes { options, asked_for }
}

pub(super) fn limits(settings: &Settings) -> RunLimits {
    let cap =
        settings.count("gateway.api_server.max_concurrent_runs").and_then(|cap| usize::try_from(cap).ok());
    RunLimits {
        at_once: cap.filter(|cap| *cap > 0).unwrap_or(NO_CAP),
        patience: super::seconds(settings, "gateway.api_server.queue_seconds").min(Duration::from_secs(60)),
    }
}

/// All keys, or what is wrong with one, and where.
fn keys(settings: &Settings) -> Result<Vec<ApiKey>, (&'static str, String)> {
    let mut keys = Vec::new();
    if let Some(secret) = settings.text(KEY) {
        strong(&secret).map_err(|why| (KEY, format!("{KEY} is {why}")))?;
        let secret = Secret::new(secret);
        keys.push(ApiKey { name: DEFAULT.into(), secret, scopes: Scope::ALL.into(), per_minute: None });
    }
    match settings.value(KEYS) {
        None | Some(Value::Null) => {}
        Some(Value::Object(named)) => {
            for (name, value) in &named {
                let key = named_key(name, value).map_err(|why| (KEYS, format!("{KEYS}.{name}: {why}")))?;
                keys.push(key);
            }
        }
        Some(_) => return Err((KEYS, format!("{KEYS}: expected names with a section each"))),
    }
    Ok(keys)
}

fn named_key(name: &str, value: &Value) -> Result<ApiKey, String> {
    let Value::Object(fields) = value else { return Err("expected key, scopes, rate_limit".into()) };
    if let Some(unknown) = fields.keys().find(|it| !["key", "scopes", "rate_limit"].contains(&it.as_str())) {
        return Err(format!("{unknown} is unknown; it takes key, scopes, rate_limit"));
    }
    let secret = fields.get("key").and_then(Value::as_str).ok_or("there is no key")?;
    strong(secret).map_err(|why| format!("its key is {why}"))?;
    let scopes = match fields.get("scopes") {
        None | Some(Value::Null) => Scope::ALL.into(),
        Some(Value::Array(names)) => {
            let scope = |name: &Value| name.as_str().and_then(Scope::parse);
            names.iter().map(scope).collect::<Option<Vec<_>>>().ok_or("scopes are read, agent and admin")?
        }
        Some(_) => return Err("scopes must be a list".into()),
    };
    let per_minute = match fields.get("rate_limit") {
        None | Some(Value::Null) => None,
        Some(limit) => {
            let limit = limit.as_u64().and_then(|limit| u32::try_from(limit).ok()).filter(|limit| *limit > 0);
            Some(limit.ok_or("rate_limit is a number of requests per minute")?)
        }
    };
    Ok(ApiKey { name: name.to_owned(), secret: Secret::new(secret), scopes, per_minute })
}

fn strong(secret: &str) -> Result<(), String> {
    if is_placeholder(secret) {
        return Err("a placeholder".into());
    }
    if secret.trim().chars().count() < SHORTEST {
        return Err(format!("too short: it needs {SHORTEST_NAME}"));
    }
    Ok(())
}

fn routes(settings: &Settings, problems: &mut Vec<Problem>) -> BTreeMap<String, String> {
    let Some(Value::Object(routes)) = settings.value(ROUTES) else { return BTreeMap::new() };
    let mut known = BTreeMap::new();
    for (name, route) in routes {
        let model = route.as_str().or_else(|| route.get("model").and_then(Value::as_str));
        match model {
            Some(model) => drop(known.insert(name, model.to_owned())),
            None => {
                let what = format!("{ROUTES}.{name}: expected the name of a model");
                problems.push(Problem::warning(settings.origin(ROUTES).to_string(), what));
            }
        }
    }
    known
}
