//! Dispatches to the three protocols.

use bytes::Bytes;
use serde_json::Value;

use super::answer::{Answer, Usage};
use super::frame::{Fillers, StreamFrame};
use super::request::{ChatRequest, ModelApi};
use super::{anthropic, ollama, openai};

impl ModelApi {
    /// Matches the end of the path, since real servers use different prefixes.
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        if path.ends_with("/chat/completions") {
            return Some(Self::OpenAi);
        }
        if path.ends_with("/messages") {
            return Some(Self::Anthropic);
        }
        path.ends_with("/api/chat").then_some(Self::Ollama)
    }

    pub(crate) fn whole(self, request: &ChatRequest, answer: &Answer) -> Value {
        let usage = usage(request, answer);
        match self {
            Self::OpenAi => openai::whole(request, answer, usage),
            Self::Anthropic => anthropic::whole(request, answer, usage),
            Self::Ollama => ollama::whole(request, answer, usage),
        }
    }

    pub(crate) fn frames(self, request: &ChatRequest, answer: &Answer) -> Vec<StreamFrame> {
        let usage = usage(request, answer);
        match self {
            Self::OpenAi => openai::frames(request, answer, usage),
            Self::Anthropic => anthropic::frames(request, answer, usage),
            Self::Ollama => ollama::frames(request, answer, usage),
        }
    }

    pub(crate) fn error(self, code: u16, message: &str) -> Value {
        match self {
            Self::OpenAi => openai::error(code, message),
            Self::Anthropic => anthropic::error(code, message),
            Self::Ollama => ollama::error(message),
        }
    }

    pub(crate) fn fillers(self, message: &str) -> Fillers {
        let (keep_alive, error): (_, fn(&str) -> Bytes) = match self {
            Self::OpenAi => (openai::KEEP_ALIVE, openai::error_event),
            Self::Anthropic => (anthropic::KEEP_ALIVE, anthropic::error_event),
            Self::Ollama => (ollama::KEEP_ALIVE, ollama::error_event),
        };
        Fillers { keep_alive, error: error(message) }
    }

    pub(crate) fn stream_type(self) -> &'static str {
        match self {
            Self::OpenAi | Self::Anthropic => "text/event-stream; charset=utf-8",
            Self::Ollama => "application/x-ndjson",
        }
    }
}

/// An estimate, the same for equal requests.
fn usage(request: &ChatRequest, answer: &Answer) -> Usage {
    let guess = |bytes: usize| bytes as u64 / 4 + 1;
    answer.usage.unwrap_or(Usage { input: guess(request.raw.len()), output: guess(answer.text.len()) })
}
