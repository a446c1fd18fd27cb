//! The model and its fallbacks.

use petasos_core::Secret;
use serde_json::Value;

use crate::choices::Provider;
use crate::key::{choice, count, flag, keys, maybe_count, maybe_number, seconds, secret, table, text};

const TOKENS: i64 = 100_000_000;

keys! {
    NAME: Option<String> = text("model.default", "name of the model").also(&["model"]);
    PROVIDER: Provider = choice::<Provider>(
        "model.provider",
        "auto",
        "provider of the model; auto: derived from base_url, then from the API key that is set",
    );
    BASE_URL: Option<String> =
        text("model.base_url", "URL of the provider's API, for example http://127.0.0.1:9000/v1");
    API_KEY: Option<Secret> = secret(
        "model.api_key",
        "API key of the provider [default: OPENAI_API_KEY, ANTHROPIC_API_KEY or OPENROUTER_API_KEY]",
    )
    .file_first();
    CONTEXT_LENGTH: Option<u32> = maybe_count::<u32>(
        "model.context_length",
        1,
        TOKENS,
        "context window of the model, in tokens [default: usual for the provider]",
    );
    VISION: bool = flag(
        "model.vision",
        true,
        "send images to the model; if it rejects them, send only the text",
    );
    MAX_OUTPUT_TOKENS: Option<u32> =
        maybe_count::<u32>(
            "model.max_output_tokens",
            1,
            TOKENS,
            "maximum length of an answer, in tokens",
        )
        .also(&["model.max_tokens"]);
    STREAM_STALE: std::time::Duration = seconds(
        "model.stream_stale_seconds",
        180.0,
        "abort a model stream after this many seconds without data",
    )
    .env(&["HERMES_STREAM_STALE_TIMEOUT"]);
    ROUTING: Option<Value> = table(
        "provider_routing",
        "upstream providers that OpenRouter may use: only, ignore, order, sort, data_collection, require_parameters",
    );
    PRICE_INPUT: Option<f64> = maybe_number(
        "model.prices.input",
        "US dollars per million input tokens; if both input and output prices are set, /usage shows the cost",
    );
    PRICE_OUTPUT: Option<f64> = maybe_number("model.prices.output", "US dollars per million output tokens");
    PRICE_CACHE_READ: Option<f64> = maybe_number(
        "model.prices.cache_read",
        "US dollars per million tokens read from the provider's cache [default: as input]",
    );
    PRICE_CACHE_WRITE: Option<f64> = maybe_number(
        "model.prices.cache_write",
        "US dollars per million tokens written to the provider's cache [default: as input]",
    );
    DEMO_DELAY_MS: u64 =
        count::<u64>(
            "model.demo_delay_ms",
            0,
            10_000,
            15,
            "milliseconds between two words of the demo model (0 = no delay)",
        );
    FALLBACKS: Option<Value> = table(
        "fallback_providers",
        "models to use in order if the main model fails: a list of {provider, model, base_url, api_key, context_length, prices}",
    )
    .also(&["fallback_model"]);
}
