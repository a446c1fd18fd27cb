//! Derives provider, model name and API key where the configuration leaves them open.
//!
//! The demo model is used only if nothing points to another model; an incomplete model section is an error.

use petasos_core::Provider;
use serde_json::Value;

use crate::catalogue::model;
use crate::choices;
use crate::environment::Environment;
use crate::problem::Problem;
use crate::resolve::Resolved;
use crate::settings::{Origin, Settings};

/// Providers that are selected by an API key in the environment.
const BY_KEY: [Provider; 3] = [Provider::OpenAi, Provider::Anthropic, Provider::OpenRouter];

/// Fills in derived settings, with the reason as their origin.
pub(crate) fn fill_in(env: &Environment, out: &mut Resolved) {
    let Some(provider) = provider(env, out) else {
        return;
    };
    let settings = &mut out.settings;
    if !settings.is_set(&model::API_KEY)
        && let Some(name) = provider.key_variable()
        && let Some((key, place)) = env.get(name)
    {
        settings.set(&model::API_KEY, Value::from(key), Origin::Variable { name: name.into(), place });
    }
    fill_fallback_keys(env, settings);
    if settings.get(&model::NAME).is_some() {
        return;
    }
    match default_model(provider) {
        Some(name) => {
            let why = format!("the default model of provider {}", provider.as_str());
            settings.set(&model::NAME, Value::from(name), Origin::Follows(why));
        }
        None => {
            let what =
                format!("model.default is not set, and provider {} has no default model", provider.as_str());
            let problem = Problem::error(settings.origin(&model::PROVIDER).to_string(), what);
            out.problems.push(problem.next("set model.default to the name of a model"));
        }
    }
}

/// Fills in the API keys of fallbacks that have none.
fn fill_fallback_keys(env: &Environment, settings: &mut Settings) {
    let Some(mut written) = settings.get(&model::FALLBACKS) else {
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
    let origin = settings.origin(&model::FALLBACKS);
    settings.set(&model::FALLBACKS, written, origin);
}

fn provider(env: &Environment, out: &mut Resolved) -> Option<Provider> {
    let settings = &mut out.settings;
    if let Some(named) = named(settings.get(&model::PROVIDER)) {
        return Some(named);
    }
    let keyed = BY_KEY
        .into_iter()
        .find_map(|it| it.key_variable().filter(|name| env.get(name).is_some()).map(|name| (it, name)));
    let (provider, why) = match (settings.is_set(&model::BASE_URL), keyed) {
        (true, _) => (Provider::Custom, "model.base_url is set"),
        (false, Some((provider, _))) => (provider, "its API key is set"),
        (false, None) => {
            let name = (model::NAME.to_string(), settings.is_set(&model::NAME));
            let key = (model::API_KEY.to_string(), settings.is_set(&model::API_KEY));
            if let Some((path, _)) = [name, key].into_iter().find(|(_, set)| *set) {
                let what = format!("{path} is set, but no provider is");
                let problem = Problem::error(settings.origin_at(&path).to_string(), what);
                let next = "set model.provider, or model.base_url, or a key such as OPENAI_API_KEY";
                out.problems.push(problem.next(next));
                return None;
            }
            (Provider::Demo, "no model is configured")
        }
    };
    settings.set(&model::PROVIDER, Value::from(provider.as_str()), Origin::Follows(why.into()));
    Some(provider)
}

/// `None`: not configured.
pub(crate) const fn named(written: choices::Provider) -> Option<Provider> {
    match written {
        choices::Provider::Auto => None,
        choices::Provider::OpenAi => Some(Provider::OpenAi),
        choices::Provider::Anthropic => Some(Provider::Anthropic),
        choices::Provider::OpenRouter => Some(Provider::OpenRouter),
        choices::Provider::Ollama => Some(Provider::Ollama),
        choices::Provider::Custom => Some(Provider::Custom),
        choices::Provider::Demo => Some(Provider::Demo),
    }
}

const fn default_model(provider: Provider) -> Option<&'static str> {
    match provider {
        Provider::OpenAi => Some("gpt-5"),
        Provider::Anthropic => Some("claude-sonnet-4-5"),
        Provider::OpenRouter => Some("openrouter/auto"),
        Provider::Demo => Some("demo"),
        Provider::Ollama | Provider::Custom => None,
    }
}
