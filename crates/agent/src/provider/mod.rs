//! The model protocols: what we send and how we read the answer. Pure; `http` moves the bytes.
//!
//! Servers that call themselves compatible differ in small ways; the readers take what they can use and
//! ignore the rest, and `Draft` collects it.

mod anthropic;
mod draft;
mod ollama;
mod openai;

#[cfg(test)]
mod golden;

use petasos_core::Provider;
use serde_json::Value;

pub(crate) use draft::{Arguments, Draft, Part, Slot};

use crate::failure::{CallError, Class};
use crate::hygiene::Item;
use crate::pictures::Pictures;
use crate::request::ToolSpec;
use petasos_core::Secret;

/// A prepared call.
#[derive(Debug)]
pub(crate) struct Prompt<'a> {
    pub(crate) model: &'a str,
    pub(crate) system: &'a str,
    pub(crate) items: &'a [Item],
    pub(crate) pictures: &'a Pictures,
    pub(crate) tools: &'a [ToolSpec],
    pub(crate) max_output: Option<u32>,
    pub(crate) context: usize,
    pub(crate) session: &'a str,
    /// For `OpenRouter`.
    pub(crate) routing: Option<&'a Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// OpenAI chat completions.
    Chat,
    /// Anthropic messages.
    Messages,
    /// Ollama's own.
    Ollama,
}

impl Protocol {
    pub(crate) const fn of(provider: Provider) -> Self {
        match provider {
            Provider::Anthropic => Self::Messages,
            Provider::Ollama => Self::Ollama,
            Provider::OpenAi | Provider::OpenRouter | Provider::Custom | Provider::Demo => Self::Chat,
        }
    }

    pub(crate) fn request(self, provider: Provider, prompt: &Prompt<'_>) -> Value {
        match self {
            Self::Chat => openai::request(provider, prompt),
            Self::Messages => anthropic::request(prompt),
            Self::Ollama => ollama::request(prompt),
        }
    }

    /// Takes one event of the stream into the draft.
    pub(crate) fn absorb(
        self,
        draft: &mut Draft,
        event: &str,
        key: Option<&Secret>,
    ) -> Result<(), CallError> {
        let event = event.trim();
        if event.is_empty() {
            return Ok(());
        }
        if event == "[DONE]" {
            draft.close();
            return Ok(());
        }
        let Ok(event) = serde_json::from_str::<Value>(event) else {
            return Err(CallError::new(Class::Malformed));
        };
        let failed = !event["error"].is_null() || event["type"] == "error";
        if failed {
            return Err(crate::classify::classify_event(&event, key));
        }
        match self {
            Self::Chat => openai::absorb(draft, &event),
            Self::Messages => anthropic::absorb(draft, &event),
            Self::Ollama => ollama::absorb(draft, &event),
        }
        Ok(())
    }
}
