//! The API for programs, if there is to be one, and who may use it.

use std::collections::BTreeMap;
use std::time::Duration;

use petasos_config::keys::web;
use petasos_config::{Key, Problem, Settings};
use petasos_core::{Platform, Secret};
use petasos_gateway::{RunLimits, Unbuilt};
use petasos_web::{ApiKey, ApiOptions, Scope};
use serde_json::Value;

use super::credential::{self, Wanted, is_placeholder};

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
    let wanted = credential::wanted(settings, &web::API_ENABLED);
    let asked_for =
        wanted == Wanted::Yes || settings.is_set(&web::API_KEY) || settings.is_set(&web::API_KEYS);
    if wanted == Wanted::No || !(asked_for || settings.get(&web::ENABLED)) {
        return Served::No;
    }
    let keys = match keys(settings) {
        Ok(keys) => keys,
        Err((origin, reason)) => {
            let problem = Problem::warning(origin, format!("{reason}; the API stays off"));
            problems
                .push(problem.next("openssl rand -hex 32 makes one; without any, one is made at the start"));
            return Served::Unbuilt(Unbuilt { platform: Platform::API_SERVER, reason });
        }
    };
    let options = ApiOptions {
        keys,
        origins: settings.get(&web::API_ORIGINS),
        model_name: settings.get(&web::API_MODEL_NAME),
        model_routes: routes(settings, problems),
    };
    Served::Yes { options, asked_for }
}

pub(super) fn limits(settings: &Settings) -> RunLimits {
    RunLimits {
        at_once: Some(settings.get(&web::API_MAX_RUNS)).filter(|cap| *cap > 0).unwrap_or(NO_CAP),
        patience: settings.get(&web::API_QUEUE).min(Duration::from_secs(60)),
    }
}

/// All keys, or where one is set and what is wrong with it.
fn keys(settings: &Settings) -> Result<Vec<ApiKey>, (String, String)> {
    fn wrong<T, U>(settings: &Settings, key: &Key<T>, why: String) -> Result<U, (String, String)> {
        Err((settings.origin(key).to_string(), why))
    }
    let mut keys = Vec::new();
    if let Some(secret) = settings.get(&web::API_KEY) {
        if let Err(why) = strong(secret.expose()) {
            return wrong(settings, &web::API_KEY, format!("{} is {why}", web::API_KEY));
        }
        keys.push(ApiKey { name: DEFAULT.into(), secret, scopes: Scope::ALL.into(), per_minute: None });
    }
    match settings.get(&web::API_KEYS) {
        None => {}
        Some(Value::Object(named)) => {
            for (name, value) in &named {
                match named_key(name, value) {
                    Ok(key) => keys.push(key),
                    Err(why) => {
                        return wrong(settings, &web::API_KEYS, format!("{}.{name}: {why}", web::API_KEYS));
                    }
                }
            }
        }
        Some(_) => {
            let why = format!("{}: expected names with a section each", web::API_KEYS);
            return wrong(settings, &web::API_KEYS, why);
        }
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
    let Some(Value::Object(routes)) = settings.get(&web::API_MODEL_ROUTES) else { return BTreeMap::new() };
    let mut known = BTreeMap::new();
    for (name, route) in routes {
        let model = route.as_str().or_else(|| route.get("model").and_then(Value::as_str));
        match model {
            Some(model) => drop(known.insert(name, model.to_owned())),
            None => {
                let what = format!("{}.{name}: expected the name of a model", web::API_MODEL_ROUTES);
                problems.push(Problem::warning(settings.origin(&web::API_MODEL_ROUTES).to_string(), what));
            }
        }
    }
    known
}
