//! The chain of models: the primary one, and those to turn to.
//!
//! Owns no task: an answer is a future, and dropping it closes the connection. The only memory between
//! two answers is which model rests after it was given up, how often it fell silent in a row, and whether the last one failed.

mod calls;
pub(crate) mod rest;
mod run;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::compact::Window;
use crate::config::{ConfigError, Link, ModelConfig, chain};
use crate::failure::Failure;
use crate::http::Http;
use crate::request::{Answer, Chunk, Request};
use petasos_core::Provider;

pub struct Brain {
    /// Never empty.
    links: Vec<Link>,
    http: Http,
    /// The last question got no answer from any model of the chain.
    failing: AtomicBool,
    /// Answers in place of the chain.
    #[cfg(feature = "simulation")]
    given: Option<std::sync::Arc<dyn crate::given::Model>>,
}

/// Which model answers, for status pages and people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    pub provider: Provider,
    pub model: String,
    /// Scheme, host and port.
    pub endpoint: Option<String>,
    /// `provider/model` of each fallback, in order.
    pub fallbacks: Vec<String>,
}

impl Brain {
    pub fn new(config: ModelConfig) -> Result<Self, ConfigError> {
        Ok(Self {
            #[cfg(feature = "simulation")]
            given: config.given.clone(),
            links: chain(config)?,
            http: Http::default(),
            failing: AtomicBool::new(false),
        })
    }

    /// Asks until there is an answer or nothing left to try. The texts handed to `chunks` since the last
    /// `Restart` are the text of the answer.
    pub async fn answer(
        &self,
        request: &Request,
        chunks: &mut (dyn FnMut(Chunk) + Send),
    ) -> Result<Answer, Failure> {
        #[cfg(feature = "simulation")]
        if let Some(given) = &self.given {
            return given.answer(request, chunks).await;
        }
        let answer = run::Run::new(&self.links, &self.http, request, chunks).until_done().await;
        self.failing.store(answer.is_err(), Ordering::Relaxed);
        answer
    }

    /// Whether the last question got no answer.
    pub fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    pub fn describe(&self) -> Description {
        let named = |link: &Link| format!("{}/{}", link.provider.as_str(), link.model);
        let primary = &self.links[0];
        #[cfg(feature = "simulation")]
        if self.given.is_some() {
            let (provider, model) = (Provider::Custom, "simulated".to_owned());
            return Description { provider, model, endpoint: None, fallbacks: vec![] };
        }
        Description {
            provider: primary.provider,
            model: primary.model.clone(),
            endpoint: primary.endpoint.as_ref().map(|url| url.origin().ascii_serialization()),
            fallbacks: self.links.iter().skip(1).map(named).collect(),
        }
    }

    /// Tools that come with a given model.
    #[cfg(feature = "simulation")]
    pub fn given_tools(&self) -> Option<std::sync::Arc<dyn crate::given::Tools>> {
        self.given.as_ref().map(|given| given.tools())
    }

    /// What the primary model can hold, as far as we know by now.
    pub fn window(&self) -> Window {
        #[cfg(feature = "simulation")]
        if let Some(given) = &self.given {
            return given.window();
        }
        let primary = &self.links[0];
        Window { context: primary.context(), output: primary.max_output.unwrap_or(run::OUTPUT) as usize }
    }
}

/// Not derived: an address may carry a password.
impl fmt::Debug for Brain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Brain").field(&self.describe()).finish()
    }
}

impl Description {
    pub fn is_demo(&self) -> bool {
        self.provider == Provider::Demo
    }
}

impl fmt::Display for Description {
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
