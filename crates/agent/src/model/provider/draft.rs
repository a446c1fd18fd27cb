//! Accumulates a streamed model response.

use petasos_core::transcript::Usage;
use serde_json::{Map, Value};

use super::reasoning::ReasoningFilter;
use crate::model::request::{Chunk, FinishReason};

#[derive(Debug)]
pub(crate) struct ResponseDraft {
    /// Visible text, without reasoning.
    pub(crate) text: String,
    pub(crate) calls: Vec<PartialCall>,
    pub(crate) finish: Option<FinishReason>,
    /// The protocol's end-of-stream marker was seen.
    pub(crate) done: bool,
    pub(crate) reasoned: bool,
    pub(crate) usage: Usage,
    pub(crate) model: Option<String>,
    filter: ReasoningFilter,
    chunks: Vec<Chunk>,
}

/// A tool call whose parts are still arriving.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PartialCall {
    /// Position assigned by the server; some servers assign none.
    pub(crate) index: Option<u64>,
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

/// The delta of a tool call that one event carries.
#[derive(Debug, Default)]
pub(crate) struct CallDelta<'a> {
    pub(crate) index: Option<u64>,
    pub(crate) id: Option<&'a str>,
    pub(crate) name: Option<&'a str>,
    pub(crate) arguments: Option<&'a Value>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum ParsedArguments {
    Object(Map<String, Value>),
    Invalid(String),
}

impl ResponseDraft {
    pub(crate) fn new() -> Self {
        Self::with(ReasoningFilter::new())
    }

    /// A draft that continues an earlier, truncated text.
    pub(crate) fn continuing() -> Self {
        Self::with(ReasoningFilter::continuing())
    }

    fn with(filter: ReasoningFilter) -> Self {
        Self {
            text: String::new(),
            calls: Vec::new(),
            finish: None,
            done: false,
            reasoned: false,
            usage: Usage::default(),
            model: None,
            filter,
            chunks: Vec::new(),
        }
    }

    pub(crate) fn push_text(&mut self, text: &str) {
        let shown = self.filter.push(text);
        if shown.is_empty() && self.filter.thinking() {
            self.push_reasoning();
        }
        self.emit(shown);
    }

    pub(crate) fn push_reasoning(&mut self) {
        self.reasoned = true;
        self.chunks.push(Chunk::Reasoning);
    }

    pub(crate) fn close(&mut self) {
        self.done = true;
        self.flush();
    }

    pub(crate) fn flush(&mut self) {
        let held = self.filter.finish();
        self.emit(held);
    }

    /// Whether the server has announced the end of the response.
    pub(crate) fn is_complete(&self) -> bool {
        self.done || self.finish.is_some()
    }

    pub(crate) fn take_chunks(&mut self) -> impl Iterator<Item = Chunk> + use<> {
        std::mem::take(&mut self.chunks).into_iter()
    }

    pub(crate) fn set_model(&mut self, model: &Value) {
        if let (None, Some(name)) = (&self.model, model.as_str().filter(|name| !name.is_empty())) {
            self.model = Some(name.to_owned());
        }
    }

    pub(crate) fn push_call(&mut self, delta: &CallDelta<'_>) {
        let id = delta.id.filter(|id| !id.is_empty());
        let name = delta.name.filter(|name| !name.is_empty());
        let slot = self.call_for(delta.index, id, name);
        if slot.id.is_none() {
            slot.id = id.map(str::to_owned);
        }
        // Some servers repeat the name in every delta.
        if let (true, Some(name)) = (slot.name.is_empty(), name) {
            name.clone_into(&mut slot.name);
        }
        match delta.arguments {
            Some(Value::String(piece)) => slot.arguments.push_str(piece),
            Some(Value::Null) | None => {}
            Some(whole) => slot.arguments = whole.to_string(),
        }
    }

    /// The call that a delta belongs to: by index, then by id, else the last one. A second name starts a new
    /// call.
    fn call_for(&mut self, index: Option<u64>, id: Option<&str>, name: Option<&str>) -> &mut PartialCall {
        let mut known = self.calls.iter().enumerate().rev();
        let found = match (index, id) {
            (Some(_), Some(id)) => known
                .find(|(_, slot)| slot.index == index && slot.id.as_deref().is_none_or(|known| known == id)),
            (Some(_), None) => known.find(|(_, slot)| slot.index == index),
            (None, Some(id)) => known.find(|(_, slot)| slot.id.as_deref() == Some(id)),
            (None, None) => known.next().filter(|(_, slot)| name.is_none() || slot.name.is_empty()),
        };
        let at = match found {
            Some((at, _)) => at,
            None => {
                self.calls.push(PartialCall { index, ..PartialCall::default() });
                self.calls.len() - 1
            }
        };
        &mut self.calls[at]
    }

    fn emit(&mut self, shown: String) {
        if shown.is_empty() {
            return;
        }
        self.text.push_str(&shown);
        match self.chunks.last_mut() {
            Some(Chunk::Text(text)) => text.push_str(&shown),
            Some(Chunk::Reasoning | Chunk::Restart) | None => self.chunks.push(Chunk::Text(shown)),
        }
    }
}

impl PartialCall {
    /// Missing arguments mean an empty object; a JSON string that contains an object is unwrapped once.
    pub(crate) fn parse_arguments(&self) -> ParsedArguments {
        let text = self.arguments.trim();
        if text.is_empty() {
            return ParsedArguments::Object(Map::new());
        }
        match serde_json::from_str(text) {
            Ok(Value::Object(map)) => ParsedArguments::Object(map),
            Ok(Value::Null) => ParsedArguments::Object(Map::new()),
            Ok(Value::String(inner)) => match serde_json::from_str(&inner) {
                Ok(map) => ParsedArguments::Object(map),
                Err(_) => ParsedArguments::Invalid(inner),
            },
            Ok(_) | Err(_) => ParsedArguments::Invalid(text.to_owned()),
        }
    }
}
