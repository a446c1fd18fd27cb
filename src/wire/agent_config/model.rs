//! The model and its fallbacks.

use petasos_agent::{ModelChain, ModelConfig, Prices, Secret};
use petasos_config::keys::{agent, model};
use petasos_config::{Problem, Settings};
use petasos_core::Provider;
use serde::Deserialize;

#[derive(Deserialize)]
struct FallbackEntry {
    provider: String,
    #[serde(default)]
    model: String,
    base_url: Option<String>,
    api_key: Option<String>,
    context_length: Option<u32>,
    prices: Option<ConfiguredPrices>,
}

/// US dollars per million tokens.
#[derive(Deserialize)]
struct ConfiguredPrices {
    input: f64,
    output: f64,
    cache_read: Option<f64>,
    cache_write: Option<f64>,
}

pub(crate) fn model(settings: &Settings, problems: &mut Vec<Problem>) -> ModelConfig {
    // Without a provider there is an error already, and this value is not used.
    let provider = petasos_config::provider(settings).unwrap_or(Provider::Demo);
    let name = settings.get(&model::NAME).unwrap_or_default();
    let mut config = ModelConfig::new(provider, name);
    config.base_url = settings.get(&model::BASE_URL);
    config.api_key = settings.get(&model::API_KEY);
    config.context_length = settings.get(&model::CONTEXT_LENGTH);
    config.max_output_tokens = settings.get(&model::MAX_OUTPUT_TOKENS);
    config.vision = settings.get(&model::VISION);
    config.api_max_retries = settings.get(&agent::API_MAX_RETRIES);
    config.retry_base = settings.get(&agent::API_RETRY_BASE);
    config.stream_stale = settings.get(&model::STREAM_STALE);
    config.demo_delay = std::time::Duration::from_millis(settings.get(&model::DEMO_DELAY_MS));
    config.routing = settings.get(&model::ROUTING);
    config.prices = prices(settings);
    config.fallbacks = fallbacks(settings, &config, problems);
    if let Err(error) = ModelChain::new(config.clone()) {
        problems.push(Problem::error(settings.origin(&model::PROVIDER).to_string(), error.to_string()));
    }
    config
}

fn fallbacks(settings: &Settings, primary: &ModelConfig, problems: &mut Vec<Problem>) -> Vec<ModelConfig> {
    let Some(value) = settings.get(&model::FALLBACKS) else {
        return Vec::new();
    };
    let entries = match value {
        serde_json::Value::Array(items) => items,
        single => vec![single],
    };
    let mut models = Vec::new();
    for (at, entry) in entries.into_iter().enumerate() {
        match parse_fallback(entry).and_then(|it| fallback(it, primary)) {
            Ok(model) => models.push(model),
            Err(reason) => {
                let place = settings.origin(&model::FALLBACKS).to_string();
                problems.push(Problem::error(place, format!("{}[{at}]: {reason}", model::FALLBACKS)));
            }
        }
    }
    models
}

fn parse_fallback(entry: serde_json::Value) -> Result<FallbackEntry, String> {
    if !entry.is_object() {
        return Err("expected a section with provider, model and optionally base_url, api_key, context_length, prices".into());
    }
    serde_json::from_value(entry).map_err(|error| error.to_string())
}

fn fallback(entry: FallbackEntry, primary: &ModelConfig) -> Result<ModelConfig, String> {
    let known = || Provider::ALL.map(Provider::as_str).join(", ");
    let provider =
        Provider::parse(&entry.provider).ok_or_else(|| format!("provider: expected one of {}", known()))?;
    Ok(ModelConfig {
        base_url: entry.base_url,
        api_key: entry.api_key.map(Secret::new),
        context_length: entry.context_length,
        vision: primary.vision,
        prices: entry.prices.map(ConfiguredPrices::into_prices),
        routing: primary.routing.clone(),
        api_max_retries: primary.api_max_retries,
        retry_base: primary.retry_base,
        stream_stale: primary.stream_stale,
        demo_delay: primary.demo_delay,
        ..ModelConfig::new(provider, entry.model)
    })
}

impl ConfiguredPrices {
    fn into_prices(self) -> Prices {
        let Self { input, output, cache_read, cache_write } = self;
        let cache_read = cache_read.unwrap_or(input);
        let cache_write = cache_write.unwrap_or(input);
        Prices { input, output, cache_read, cache_write }
    }
}

/// `None` unless input and output have a price. Cache prices default to the input price.
fn prices(settings: &Settings) -> Option<Prices> {
    let input = settings.get(&model::PRICE_INPUT)?;
    let output = settings.get(&model::PRICE_OUTPUT)?;
    let cache_read = settings.get(&model::PRICE_CACHE_READ);
    let cache_write = settings.get(&model::PRICE_CACHE_WRITE);
    Some(ConfiguredPrices { input, output, cache_read, cache_write }.into_prices())
}
