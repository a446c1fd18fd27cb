//! Model configuration: `ModelConfig` as entered, `ConfiguredModel` once validated.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use reqwest::Url;
use serde_json::Value;

use petasos_core::transcript::Usage;
use petasos_core::{Provider, Secret};

use crate::model::cooldown::Cooldown;

const fn default_context(provider: Provider) -> u32 {
    match provider {
        Provider::Anthropic => 200_000,
        Provider::OpenAi | Provider::OpenRouter | Provider::Custom | Provider::Demo => 128_000,
        // Sent as `num_ctx`: without it the server silently drops the start of the prompt.
        Provider::Ollama => 16_384,
    }
}

#[derive(Debug, Clone)]
pub struct ModelConfig {
    pub provider: Provider,
    pub model: String,
    /// `None`: the provider's default. Required for `Custom`.
    pub base_url: Option<String>,
    pub api_key: Option<Secret>,
    pub context_length: Option<u32>,
    pub max_output_tokens: Option<u32>,
    pub api_max_retries: u32,
    /// A stream without data for this long counts as dead.
    pub stream_stale: Duration,
    /// First wait of the retry backoff; it doubles from there.
    pub retry_base: Duration,
    pub vision: bool,
    /// Tried in order; their own fallbacks join the chain.
    pub fallbacks: Vec<ModelConfig>,
    pub prices: Option<Prices>,
    /// Delay of the demo model between words.
    pub demo_delay: Duration,
    /// The upstream providers that `OpenRouter` may use, in the form of its API.
    pub routing: Option<Value>,
    #[cfg(feature = "simulation")]
    pub simulated: Option<std::sync::Arc<dyn crate::model::simulated::SimulatedModel>>,
}

/// US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Prices {
    pub input: f64,
    pub output: f64,
    pub cache_read: f64,
    pub cache_write: f64,
}

impl Prices {
    /// Dollars per million tokens are micro-dollars per token.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate of money; a cast from a float saturates"
    )]
    pub(crate) fn micro_usd(&self, usage: Usage) -> u64 {
        let parts = [
            (usage.input, self.input),
            (usage.output, self.output),
            (usage.cache_read, self.cache_read),
            (usage.cache_write, self.cache_write),
        ];
        parts.into_iter().map(|(tokens, price)| tokens as f64 * price).sum::<f64>().round() as u64
    }
}

impl ModelConfig {
    /// `model` at `provider` with default settings.
    pub fn new(provider: Provider, model: impl Into<String>) -> Self {
        Self {
            provider,
            model: model.into(),
            base_url: None,
            api_key: None,
            context_length: None,
            max_output_tokens: None,
            api_max_retries: 3,
            stream_stale: Duration::from_secs(180),
            retry_base: Duration::from_secs(2),
            vision: true,
            fallbacks: Vec::new(),
            prices: None,
            demo_delay: Duration::from_millis(15),
            routing: None,
            #[cfg(feature = "simulation")]
            simulated: None,
        }
    }

    #[cfg(feature = "simulation")]
    pub fn simulated(model: std::sync::Arc<dyn crate::model::simulated::SimulatedModel>) -> Self {
        Self { simulated: Some(model), ..Self::demo() }
    }

    /// The model used when none is configured.
    pub fn demo() -> Self {
        Self::new(Provider::Demo, "demo")
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("model.default is empty: name a model for provider {0}")]
    NoModel(&'static str),
    #[error("provider {0} needs model.base_url, for example http://127.0.0.1:8000/v1")]
    NoBaseUrl(&'static str),
    #[error("model.base_url of provider {0} is not an http(s) address")]
    BadBaseUrl(&'static str),
    #[error("provider {provider} needs an API key: set {variable} or model.api_key")]
    NoKey { provider: &'static str, variable: &'static str },
    #[error("the API key of provider {0} contains characters that cannot be sent")]
    BadKey(&'static str),
}

#[derive(Debug)]
pub(crate) struct ConfiguredModel {
    pub(crate) provider: Provider,
    pub(crate) model: String,
    /// `None` for the demo model.
    pub(crate) endpoint: Option<Url>,
    pub(crate) key: Option<Secret>,
    context: usize,
    /// Smaller window that the provider reported; 0 if none.
    reported_context: AtomicUsize,
    pub(crate) prices: Option<Prices>,
    pub(crate) max_output: Option<u32>,
    pub(crate) routing: Option<Value>,
    pub(crate) vision: bool,
    pub(crate) retries: u32,
    pub(crate) stale: Duration,
    pub(crate) retry_base: Duration,
    pub(crate) demo_delay: Duration,
    /// Meanwhile a fallback is tried first.
    pub(crate) cooldown: Mutex<Option<Cooldown>>,
    pub(crate) timeouts: AtomicU32,
}

/// A smaller number in an error cannot be a context window.
const MIN_WINDOW: usize = 1_024;

impl ConfiguredModel {
    pub(crate) fn context(&self) -> usize {
        match self.reported_context.load(Ordering::Relaxed) {
            0 => self.context,
            reported_context => reported_context.min(self.context),
        }
    }

    pub(crate) fn record_window(&self, window: Option<usize>) {
        if let Some(window) = window.filter(|window| (MIN_WINDOW..self.context).contains(window)) {
            self.reported_context.store(window, Ordering::Relaxed);
        }
    }
}

pub(crate) fn chain(config: ModelConfig) -> Result<Vec<ConfiguredModel>, ConfigError> {
    let mut links = Vec::new();
    let mut waiting = vec![config];
    while let Some(mut next) = waiting.pop() {
        waiting.extend(next.fallbacks.drain(..).rev());
        links.push(check(next)?);
    }
    Ok(links)
}

fn check(raw: ModelConfig) -> Result<ConfiguredModel, ConfigError> {
    let name = raw.provider.as_str();
    let key = raw.api_key.filter(|key| !key.expose().is_empty());
    if raw.model.trim().is_empty() && raw.provider != Provider::Demo {
        return Err(ConfigError::NoModel(name));
    }
    if key.as_ref().is_some_and(|key| !key.expose().bytes().all(|byte| (0x20..0x7f).contains(&byte))) {
        return Err(ConfigError::BadKey(name));
    }
    // A self-hosted server with the same protocol may need no key.
    if let (None, None, Some(variable)) = (&key, &raw.base_url, raw.provider.key_variable()) {
        return Err(ConfigError::NoKey { provider: name, variable });
    }
    let endpoint = endpoint(raw.provider, raw.base_url.as_deref())?;
    let chooses = raw.provider == Provider::OpenRouter || endpoint.as_ref().is_some_and(is_openrouter);
    Ok(ConfiguredModel {
        routing: raw.routing.filter(|_| chooses),
        endpoint,
        provider: raw.provider,
        model: raw.model.trim().to_owned(),
        key,
        context: raw.context_length.unwrap_or(default_context(raw.provider)) as usize,
        reported_context: AtomicUsize::new(0),
        prices: raw.prices,
        max_output: raw.max_output_tokens,
        vision: raw.vision,
        retries: raw.api_max_retries,
        stale: raw.stream_stale,
        retry_base: raw.retry_base,
        demo_delay: raw.demo_delay,
        cooldown: Mutex::new(None),
        timeouts: AtomicU32::new(0),
    })
}

/// `OpenRouter` configured as another provider accepts upstream routing, too.
fn is_openrouter(endpoint: &Url) -> bool {
    endpoint.host_str().is_some_and(|host| host == "openrouter.ai" || host.ends_with(".openrouter.ai"))
}

/// Appends the protocol's path to `base`, which may end with `/v1` or a slash.
fn endpoint(provider: Provider, base: Option<&str>) -> Result<Option<Url>, ConfigError> {
    let name = provider.as_str();
    let path = match provider {
        Provider::Demo => return Ok(None),
        Provider::OpenAi | Provider::OpenRouter | Provider::Custom => "/chat/completions",
        Provider::Anthropic => "/v1/messages",
        Provider::Ollama => "/api/chat",
    };
    let base = base.map(str::trim).filter(|base| !base.is_empty()).or(provider.default_base_url());
    let mut base = base.ok_or(ConfigError::NoBaseUrl(name))?.trim_end_matches('/');
    if matches!(provider, Provider::Anthropic | Provider::Ollama) {
        base = base.strip_suffix("/v1").unwrap_or(base);
    }
    let url = Url::parse(&format!("{base}{path}")).map_err(|_| ConfigError::BadBaseUrl(name))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(ConfigError::BadBaseUrl(name));
    }
    Ok(Some(url))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn goes_to(provider: Provider, base: Option<&str>, want: &str) {
        assert_eq!(endpoint(provider, base).unwrap().unwrap().as_str(), want);
    }

    #[test]
    fn accepts_base_urls_with_and_without_version() {
        goes_to(Provider::OpenAi, None, "https://api.openai.com/v1/chat/completions");
        goes_to(Provider::Custom, Some("http://127.0.0.1:9/v1/"), "http://127.0.0.1:9/v1/chat/completions");
        goes_to(Provider::Anthropic, None, "https://api.anthropic.com/v1/messages");
        goes_to(Provider::Anthropic, Some("http://h:1"), "http://h:1/v1/messages");
        goes_to(Provider::Ollama, Some("http://h:1/v1"), "http://h:1/api/chat");
    }

    #[test]
    fn errors_name_the_missing_setting() {
        let refuse = |config| chain(config).map(|_| ()).unwrap_err();
        assert_eq!(refuse(ModelConfig::new(Provider::Custom, "m")), ConfigError::NoBaseUrl("custom"));
        assert_eq!(refuse(ModelConfig::new(Provider::Ollama, " ")), ConfigError::NoModel("ollama"));
        let no_key = refuse(ModelConfig::new(Provider::OpenAi, "m")).to_string();
        assert!(no_key.contains("OPENAI_API_KEY"), "{no_key}");
        let mut odd = ModelConfig::new(Provider::Custom, "m");
        odd.base_url = Some("ftp://h".into());
        assert_eq!(refuse(odd), ConfigError::BadBaseUrl("custom"));
    }

    #[test]
    fn fallbacks_keep_their_order() {
        let mut first = ModelConfig::demo();
        let mut second = ModelConfig::new(Provider::Ollama, "b");
        second.fallbacks = vec![ModelConfig::new(Provider::Ollama, "c")];
        first.fallbacks = vec![second, ModelConfig::new(Provider::Ollama, "d")];
        let names: Vec<_> = chain(first).unwrap().into_iter().map(|link| link.model).collect();
        assert_eq!(names, ["demo", "b", "c", "d"]);
    }

    #[test]
    fn prices_are_dollars_per_million_tokens() {
        let prices = Prices { input: 3.0, output: 15.0, cache_read: 0.3, cache_write: 3.75 };
        let usage = Usage { input: 1_000, output: 200, cache_read: 10_000, cache_write: 4 };
        assert_eq!(prices.micro_usd(usage), 3_000 + 3_000 + 3_000 + 15);
    }

    #[test]
    fn learns_only_plausible_smaller_windows() {
        let link = check(ModelConfig { context_length: Some(8_000), ..ModelConfig::demo() }).unwrap();
        for (reported, want) in [(None, 8_000), (Some(9_000), 8_000), (Some(5), 8_000), (Some(4_096), 4_096)]
        {
            link.record_window(reported);
            assert_eq!(link.context(), want, "{reported:?}");
        }
    }

    #[test]
    fn debug_output_hides_the_key() {
        let mut config = ModelConfig::new(Provider::OpenAi, "m");
        config.api_key = Some(Secret::new("sk-live-1"));
        assert!(!format!("{config:?} {:?}", chain(config.clone()).unwrap()).contains("sk-live-1"));
    }
}
