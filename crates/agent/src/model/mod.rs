//! The model chain: the primary model and its fallbacks.
//!
//! Owns no task: a response is a future, and dropping it closes the connection. State between requests: which
//! models are cooling down, how often each timed out in a row, and whether the last request failed.

mod calls;
pub(crate) mod config;
mod cooldown;
mod demo;
pub(crate) mod failure;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod provider;
pub(crate) mod request;
pub(crate) mod retry;
mod run;
#[cfg(feature = "simulation")]
pub mod simulated;
mod transport;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::conversation::compaction::ContextWindow;
use crate::model::config::{ConfigError, ConfiguredModel, ModelConfig, chain};
use crate::model::failure::ModelFailure;
use crate::model::request::{Chunk, ModelRequest, ModelResponse};
use crate::model::transport::http::Http;
use petasos_core::Provider;

pub struct ModelChain {
    /// Never empty.
    links: Vec<ConfiguredModel>,
    http: Http,
    /// No model of the chain answered the last request.
    failing: AtomicBool,
    #[cfg(feature = "simulation")]
    simulated: Option<std::sync::Arc<dyn crate::model::simulated::SimulatedModel>>,
}

/// The configured models, for status pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainDescription {
    pub provider: Provider,
    pub model: String,
    /// Scheme, host and port.
    pub endpoint: Option<String>,
    /// `provider/model` of each fallback, in order.
    pub fallbacks: Vec<String>,
}

impl ModelChain {
    pub fn new(config: ModelConfig) -> Result<Self, ConfigError> {
        Ok(Self {
            #[cfg(feature = "simulation")]
            simulated: config.simulated.clone(),
            links: chain(config)?,
            http: Http::default(),
            failing: AtomicBool::new(false),
        })
    }

    /// Sends a request, with retries and fallbacks. The texts passed to `chunks` since the last `Restart` are
    /// the text of the response.
    pub async fn complete(
        &self,
        request: &ModelRequest,
        chunks: &mut (dyn FnMut(Chunk) + Send),
    ) -> Result<ModelResponse, ModelFailure> {
        #[cfg(feature = "simulation")]
        if let Some(simulated) = &self.simulated {
            return simulated.complete(request, chunks).await;
        }
        let response = run::ChainRun::new(&self.links, &self.http, request, chunks).run().await;
        self.failing.store(response.is_err(), Ordering::Relaxed);
        response
    }

    pub fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    pub fn describe(&self) -> ChainDescription {
        let named = |link: &ConfiguredModel| format!("{}/{}", link.provider.as_str(), link.model);
        let primary = &self.links[0];
        #[cfg(feature = "simulation")]
        if self.simulated.is_some() {
            let provider = Provider::Custom;
            let model = "simulated".to_owned();
            return ChainDescription { provider, model, endpoint: None, fallbacks: vec![] };
        }
        ChainDescription {
            provider: primary.provider,
            model: primary.model.clone(),
            endpoint: primary.endpoint.as_ref().map(|url| url.origin().ascii_serialization()),
            fallbacks: self.links.iter().skip(1).map(named).collect(),
        }
    }

    #[cfg(feature = "simulation")]
    pub fn simulated_tools(&self) -> Option<std::sync::Arc<dyn crate::model::simulated::SimulatedTools>> {
        self.simulated.as_ref().map(|simulated| simulated.tools())
    }

    /// The primary model's context window, as far as it is known.
    pub fn window(&self) -> ContextWindow {
        #[cfg(feature = "simulation")]
        if let Some(simulated) = &self.simulated {
            return simulated.window();
        }
        let primary = &self.links[0];
        ContextWindow {
            context: primary.context(),
            output: primary.max_output.unwrap_or(run::OUTPUT) as usize,
        }
    }
}

/// Not derived: a URL may contain a password.
impl fmt::Debug for ModelChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ModelChain").field(&self.describe()).finish()
    }
}

impl ChainDescription {
    pub fn is_demo(&self) -> bool {
        self.provider == Provider::Demo
    }
}

impl fmt::Display for ChainDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_demo() {
            f.write_str("demo model (scripted, offline; set up a real one under `model:` in config.yaml)")?;
        } else {
            write!(f, "{} at {}", self.model, self.provider.as_str())?;
        }
        if !self.fallbacks.is_empty() {
            write!(f, ", then {}", self.fallbacks.join(", "))?;
        }
        Ok(())
    }
}
