//! The model that answers, and those to turn to.

use petasos_agent::{Brain, ModelConfig, Prices, Provider, Secret};
use serde::Deserialize;

use super::{seconds, small};
use crate::config::{Problem, Settings};

/// One entry of `fallback_providers`.
#[derive(Deserialize)]
struct Fallback {
    provider: String,
    #[serde(default)]
    model: String,
    base_url: Option<String>,
    api_key: Option<String>,
    context_length: Option<u32>,
    prices: Option<Charged>,
}

/// Dollars for a million tokens, as they are written.
#[derive(Deserialize)]
struct Charged {
    input: f64,
    output: f64,
    cache_read: Option<f64>,
    cache_write: Option<f64>,
}

pub(super) fn model(settings: &Settings, problems: &mut Vec<Problem>) -> ModelConfig {
    let provider = settings.text("model.provider").as_deref().and_then(Provider::parse);
    // Without a provider there is a problem already; what is returned here is not started.
    let provider = provider.unwrap_or(Provider::Demo);
    let name = settings.text("model.default").unwrap_or_default();
    let mut model = ModelConfig::new(provider, name);
    model.base_url = settings.text("model.base_url");
    model.api_key = settings.text("model.api_key").map(Secret::new);
    model.context_length = some(settings, "model.context_length");
    model.max_output_tokens = some(settings, "model.max_output_tokens");
    model.vision = settings.flag("model.vision");
    model.api_max_retries = small(settings, "agent.api_max_retries");
    model.retry_base = seconds(settings, "agent.api_retry_base_seconds");
    model.stream_stale = seconds(settings, "model.stream_stale_seconds");
    model.demo_delay =
        std::time::Duration::from_millis(settings.count("model.demo_delay_ms").unwrap_or_default());
    model.prices = prices(settings);
    model.fallbacks = fallbacks(settings, &model, problems);
    if let Err(error) = Brain::new(model.clone()) {
        problems.push(Problem::error(settings.origin("model.provider").to_string(), error.to_string()));
    }
    model
}

fn fallbacks(settings: &Settings, primary: &ModelConfig, problems: &mut Vec<Problem>) -> Vec<ModelConfig> {
    let Some(written) = settings.value("fallback_providers") else {
        return Vec::new();
    };
    let entries = match written {
        serde_json::Value::Array(items) => items,
        single => vec![single],
    };
    let mut models = Vec::new();
    for (at, entry) in entries.into_iter().enumerate() {
        match serde_json::from_value(entry)
            .map_err(|error| error.to_string())
            .and_then(|it| fallback(it, primary))
        {
            Ok(model) => models.push(model),
            Err(reason) => {
                let place = settings.origin("fallback_providers").to_string();
                problems.push(Problem::error(place, format!("fallback_providers[{at}]: {reason}")));
            }
        }
    }
    models
}

fn fallback(entry: Fallback, primary: &ModelConfig) -> Result<ModelConfig, String> {
    let known = || Provider::ALL.map(Provider::as_str).join(", ");
    let provider =
        Provider::parse(&entry.provider).ok_or_else(|| format!("provider: expected one of {}", known()))?;
    Ok(ModelConfig {
        base_url: entry.base_url,
        api_key: entry.api_key.map(Secret::new),
        context_length: entry.context_length,
        vision: primary.vision,
        prices: entry.prices.map(Charged::read),
        api_max_retries: primary.api_max_retries,
        retry_base: primary.retry_base,
        stream_stale: primary.stream_stale,
        demo_delay: primary.demo_delay,
        ..ModelConfig::new(provider, entry.model)
    })
}

impl Charged {
    fn read(self) -> Prices {
        let Self { input, output, cache_read, cache_write } = self;
        let (cache_read, cache_write) = (cache_read.unwrap_or(input), cache_write.unwrap_or(input));
        Prices { input, output, cache_read, cache_write }
    }
}

/// Unknown unless both sides of a call have a price; caches cost what input costs, unless said otherwise.
fn prices(settings: &Settings) -> Option<Prices> {
    let price = |name: &str| {
        let path = format!("model.prices.{name}");
        settings.is_set(&path).then(|| settings.number(&path))
    };
    let (input, output) = (price("input")?, price("output")?);
    let (cache_read, cache_write) = (price("cache_read"), price("cache_write"));
    Some(Charged { input, output, cache_read, cache_write }.read())
}

fn some(settings: &Settings, path: &str) -> Option<u32> {
    settings.is_set(path).then(|| small(settings, path))
}
