//! Who answers when the configuration leaves something open: provider, model name and key.
//!
//! The demo model answers only when nothing points anywhere else; a half-written model section is an error.

use petasos_agent::Provider;
use serde_json::Value;

use super::environment::Environment;
use super::problem::Problem;
use super::resolve::Resolved;
use super::settings::{Origin, Settings};

/// Providers that a key in the environment is enough for.
const BY_KEY: [Provider; 3] = [Provider::OpenAi, Provider::Anthropic, Provider::OpenRouter];

/// Fills in what follows from the rest, with its reason as the origin.
pub(crate) fn settle(env: &Environment, out: &mut Resolved) {
    let Some(provider) = provider(env, out) else {
        return;
    };
    let settings = &mut out.settings;
    if !settings.is_set("model.api_key")
        && let Some(name) = provider.key_variable()
        && let Some((key, place)) = env.get(name)
    {
        settings.put("model.api_key", Value::from(key), Origin::Variable { name: name.into(), place });
    }
    lend_keys(env, settings);
    if settings.text("model.default").is_some() {
        return;
    }
    match usual_model(provider) {
        Some(model) => {
            let why = format!("the usual model of provider {}", provider.as_str());
            settings.put("model.default", Value::from(model), Origin::Follows(why));
        }
        None => {
            let what =
                format!("model.default is not set, and provider {} has no usual one", provider.as_str());
            let problem = Problem::error(settings.origin("model.provider").to_string(), what);
            out.problems.push(problem.next("name the model in model.default"));
        }
    }
}

/// Fallbacks without a key of their own get the one of their provider.
fn lend_keys(env: &Environment, settings: &mut Settings) {
    let Some(mut written) = settings.value("fallback_providers") else {
        return;
    };
    let entries = match &mut written {
        Value::Array(items) => items.iter_mut().collect(),
        single => vec![single],
    };
    for entry in entries.into_iter().filter_map(Value::as_object_mut) {
        let provider = entry.get("provider").and_then(Value::as_str).and_then(Provider::parse);
        let key = provider.and_then(Provider::key_variable).and_then(|name| env.get(name));
        if let (Some((key, _)), false) = (key, entry.contains_key("api_key")) {
            entry.insert("api_key".into(), Value::from(key));
        }
    }
    let origin = settings.origin("fallback_providers");
    settings.put("fallback_providers", written, origin);
}

fn provider(env: &Environment, out: &mut Resolved) -> Option<Provider> {
    let settings = &mut out.settings;
    if let Some(named) = settings.text("model.provider").as_deref().and_then(Provider::parse) {
        return Some(named);
    }
    let keyed = BY_KEY
        .into_iter()
        .find_map(|it| it.key_variable().filter(|name| env.get(name).is_some()).map(|name| (it, name)));
    let (provider, why) = match (settings.is_set("model.base_url"), keyed) {
        (true, _) => (Provider::Custom, "model.base_url is set"),
        (false, Some((provider, _))) => (provider, "its API key is set"),
        (false, None) => {
            for path in ["model.default", "model.api_key"] {
                if settings.is_set(path) {
                    let what = format!("{path} is set, but nothing says who serves the model");
                    let problem = Problem::error(settings.origin(path).to_string(), what);
                    out.problems.push(
                        problem
                            .next("set model.provider, or model.base_url, or a key such as OPENAI_API_KEY"),
                    );
                    return None;
                }
            }
            (Provider::Demo, "no model is configured")
        }
    };
    settings.put("model.provider", Value::from(provider.as_str()), Origin::Follows(why.into()));
    Some(provider)
}

const fn usual_model(provider: Provider) -> Option<&'static str> {
    match provider {
        Provider::OpenAi => Some("gpt-5"),
        Provider::Anthropic => Some("claude-sonnet-4-5"),
        Provider::OpenRouter => Some("openrouter/auto"),
        Provider::Demo => Some("demo"),
        Provider::Ollama | Provider::Custom => None,
    }
}
