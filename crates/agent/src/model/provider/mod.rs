//! Model protocols: build requests and parse response events. Pure; `transport::http` does the I/O.
//!
//! Compatible servers differ in detail, so parsers ignore unknown fields and events; `ResponseDraft` collects
//! the rest.

mod anthropic;
mod draft;
mod ollama;
mod openai;
mod reasoning;

#[cfg(test)]
mod golden;

use petasos_core::Provider;
use serde_json::{Value, json};

pub(crate) use draft::{CallDelta, ParsedArguments, PartialCall, ResponseDraft};

use crate::conversation::normalise::ConversationItem;
use crate::conversation::pictures::Pictures;
use crate::model::failure::{CallError, ModelFailureClass};
use crate::model::request::ToolSpec;
use petasos_core::Secret;

#[derive(Debug)]
pub(crate) struct Prompt<'a> {
    pub(crate) model: &'a str,
    pub(crate) system: &'a str,
    pub(crate) items: &'a [ConversationItem],
    pub(crate) pictures: &'a Pictures,
    pub(crate) tools: &'a [ToolSpec],
    pub(crate) max_output: Option<u32>,
    pub(crate) context: usize,
    pub(crate) session: &'a str,
    pub(crate) routing: Option<&'a Value>,
}

impl Prompt<'_> {
    /// The system prompt and the conversation, in the chat format.
    fn chat_messages(&self, message: impl Fn(&ConversationItem, &Pictures) -> Value) -> Vec<Value> {
        let system = (!self.system.is_empty()).then(|| json!({"role": "system", "content": self.system}));
        system.into_iter().chain(self.items.iter().map(|item| message(item, self.pictures))).collect()
    }

    /// The tools, in the chat format.
    fn put_functions(&self, body: &mut Value) {
        if self.tools.is_empty() {
            return;
        }
        let tools = self.tools.iter().map(|tool| {
            json!({"type": "function", "function": {
                "name": tool.name, "description": tool.description, "parameters": tool.parameters,
            }})
        });
        body["tools"] = tools.collect();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// OpenAI chat completions.
    Chat,
    /// Anthropic messages.
    Messages,
    /// Ollama's native protocol.
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

    pub(crate) fn apply_event(
        self,
        draft: &mut ResponseDraft,
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
            return Err(CallError::new(ModelFailureClass::Malformed));
        };
        let failed = !event["error"].is_null() || event["type"] == "error";
        if failed {
            return Err(crate::model::transport::classify::classify_event(&event, key));
        }
        match self {
            Self::Chat => openai::apply_event(draft, &event),
            Self::Messages => anthropic::apply_event(draft, &event),
            Self::Ollama => ollama::apply_event(draft, &event),
        }
        Ok(())
    }
}
