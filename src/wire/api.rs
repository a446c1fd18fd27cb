//! Configuration of the API: whether it is served, its keys and its limits.

use std::collections::BTreeMap;
use std::time::Duration;

use petasos_config::keys::web;
use petasos_config::{Key, Problem, Settings};
use petasos_core::{Platform, Secret};
use petasos_gateway::{RunLimits, UnavailablePlatform};
use petasos_web::{ApiKey, ApiOptions, Scope};
use serde_json::Value;

use super::platforms::credential::{self, Enabled, is_placeholder};

/// Name of the only key when keys are not named.
pub(crate) const DEFAULT: &str = "default";
const MIN_KEY_LENGTH: usize = 16;
const MIN_KEY_LENGTH_TEXT: &str = "at least 16 characters";
/// Effectively unlimited.
const UNLIMITED_RUNS: usize = 10_000;

/// Whether the API is served.
#[derive(Debug)]
pub(super) enum ApiSetup {
    No,
    /// Without keys, one is created at the start.
    Yes {
        options: ApiOptions,
        explicit: bool,
    },
    Unavailable(UnavailablePlatform),
}

pub(super) fn setup(settings: &Settings, problems: &mut Vec<Problem>) -> ApiSetup {
    let enabled = credential::enabled(settings, &web::API_ENABLED);
    let explicit =
        enabled == Enabled::Yes || settings.is_set(&web::API_KEY) || settings.is_set(&web::API_KEYS);
    if enabled == Enabled::No || !(explicit || settings.get(&web::ENABLED)) {
        return ApiSetup::No;
    }
    let keys = match keys(settings) {
        Ok(keys) => keys,
        Err((origin, reason)) => {
            let problem = Problem::warning(origin, format!("{reason}; the API stays off"));
            problems.push(
                problem
                    .next("create one with openssl rand -hex 32; without any, one is created at the start"),
            );
            return ApiSetup::Unavailable(UnavailablePlatform { platform: Platform::API_SERVER, reason });
        }
    };
    let options = ApiOptions {
        keys,
        origins: settings.get(&web::API_ORIGINS),
        model_name: settings.get(&web::API_MODEL_NAME),
        model_routes: routes(settings, problems),
    };
    ApiSetup::Yes { options, explicit }
}

pub(super) fn limits(settings: &Settings) -> RunLimits {
    RunLimits {
        max_concurrent: Some(settings.get(&web::API_MAX_RUNS))
            .filter(|cap| *cap > 0)
            .unwrap_or(UNLIMITED_RUNS),
        queue_timeout: settings.get(&web::API_QUEUE).min(Duration::from_secs(60)),
    }
}

/// All keys, or the origin and the problem of an invalid one.
fn keys(settings: &Settings) -> Result<Vec<ApiKey>, (String, String)> {
    fn invalid<T, U>(settings: &Settings, key: &Key<T>, problem: String) -> Result<U, (String, String)> {
        Err((settings.origin(key).to_string(), problem))
    }
    let mut keys = Vec::new();
    if let Some(secret) = settings.get(&web::API_KEY) {
        if let Err(problem) = check_strength(secret.expose()) {
            return invalid(settings, &web::API_KEY, format!("{} is {problem}", web::API_KEY));
        }
        keys.push(ApiKey { name: DEFAULT.into(), secret, scopes: Scope::ALL.into(), per_minute: None });
    }
    match settings.get(&web::API_KEYS) {
        None => {}
        Some(Value::Object(named)) => {
            for (name, value) in &named {
                match named_key(name, value) {
                    Ok(key) => keys.push(key),
                    Err(problem) => {
                        return invalid(
                            settings,
                            &web::API_KEYS,
                            format!("{}.{name}: {problem}", web::API_KEYS),
                        );
                    }
                }
            }
        }
        Some(_) => {
            let problem = format!("{}: expected names, each with a section", web::API_KEYS);
            return invalid(settings, &web::API_KEYS, problem);
        }
    }
    Ok(keys)
}

fn named_key(name: &str, value: &Value) -> Result<ApiKey, String> {
    let Value::Object(fields) = value else { return Err("expected key, scopes, rate_limit".into()) };
    if let Some(unknown) = fields.keys().find(|it| !["key", "scopes", "rate_limit"].contains(&it.as_str())) {
        return Err(format!("{unknown} is unknown; valid fields are key, scopes, rate_limit"));
    }
    let secret = fields.get("key").and_then(Value::as_str).ok_or("the field key is missing")?;
    check_strength(secret).map_err(|problem| format!("its key is {problem}"))?;
    let scopes = match fields.get("scopes") {
        None | Some(Value::Null) => Scope::ALL.into(),
        Some(Value::Array(names)) => {
            let scope = |name: &Value| name.as_str().and_then(Scope::parse);
            names
                .iter()
                .map(scope)
                .collect::<Option<Vec<_>>>()
                .ok_or("valid scopes are read, agent and admin")?
        }
        Some(_) => return Err("scopes must be a list".into()),
    };
    let per_minute = match fields.get("rate_limit") {
        None | Some(Value::Null) => None,
        Some(limit) => {
            let limit = limit.as_u64().and_then(|limit| u32::try_from(limit).ok()).filter(|limit| *limit > 0);
            Some(limit.ok_or("rate_limit must be a number of requests per minute")?)
        }
    };
    Ok(ApiKey { name: name.to_owned(), secret: Secret::new(secret), scopes, per_minute })
}

fn check_strength(secret: &str) -> Result<(), String> {
    if is_placeholder(secret) {
        return Err("a placeholder".into());
    }
    if secret.trim().chars().count() < MIN_KEY_LENGTH {
        return Err(format!("too short: it must have {MIN_KEY_LENGTH_TEXT}"));
    }
    Ok(())
}

fn routes(settings: &Settings, problems: &mut Vec<Problem>) -> BTreeMap<String, String> {
    let Some(Value::Object(routes)) = settings.get(&web::API_MODEL_ROUTES) else { return BTreeMap::new() };
    let mut models = BTreeMap::new();
    for (name, route) in routes {
        let model = route.as_str().or_else(|| route.get("model").and_then(Value::as_str));
        match model {
            Some(model) => drop(models.insert(name, model.to_owned())),
            None => {
                let what = format!("{}.{name}: expected the name of a model", web::API_MODEL_ROUTES);
                problems.push(Problem::warning(settings.origin(&web::API_MODEL_ROUTES).to_string(), what));
            }
        }
    }
    models
}
