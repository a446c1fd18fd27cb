//! An answer while it is being written.

use petasos_core::transcript::Usage;
use serde_json::{Map, Value};

use crate::request::{Chunk, Finish};
use crate::think::Filter;

#[derive(Debug)]
pub(crate) struct Draft {
    /// What a reader sees: thinking is filtered out.
    pub(crate) text: String,
    pub(crate) calls: Vec<Slot>,
    pub(crate) finish: Option<Finish>,
    /// The protocol's own end was seen.
    pub(crate) done: bool,
    pub(crate) reasoned: bool,
    pub(crate) usage: Usage,
    pub(crate) model: Option<String>,
    filter: Filter,
    fresh: Vec<Chunk>,
}

/// A tool call whose parts are still coming in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Slot {
    /// The place the server gave it, if it gives places.
    pub(crate) index: Option<u64>,
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

/// What one event says about a tool call.
#[derive(Debug, Default)]
pub(crate) struct Part<'a> {
    pub(crate) index: Option<u64>,
    pub(crate) id: Option<&'a str>,
    pub(crate) name: Option<&'a str>,
    pub(crate) arguments: Option<&'a Value>,
}

/// Arguments, read as far as they can be.
#[derive(Debug, PartialEq)]
pub(crate) enum Arguments {
    Object(Map<String, Value>),
    Broken(String),
}

impl Draft {
    pub(crate) fn new() -> Self {
        Self::with(Filter::new())
    }

    /// The draft of a text that goes on where another stopped.
    pub(crate) fn continuing() -> Self {
        Self::with(Filter::continuing())
    }

    fn with(filter: Filter) -> Self {
        Self {
            text: String::new(),
            calls: Vec::new(),
            finish: None,
            done: false,
            reasoned: false,
            usage: Usage::default(),
            model: None,
            filter,
            fresh: Vec::new(),
        }
    }

    pub(crate) fn say(&mut self, text: &str) {
        let shown = self.filter.push(text);
        if shown.is_empty() && self.filter.thinking() {
            self.reason();
        }
        self.show(shown);
    }

    pub(crate) fn reason(&mut self) {
        self.reasoned = true;
        self.fresh.push(Chunk::Reasoning);
    }

    /// The end of the stream was announced.
    pub(crate) fn close(&mut self) {
        self.done = true;
        self.flush();
    }

    /// Lets out what the filter held back.
    pub(crate) fn flush(&mut self) {
        let held = self.filter.finish();
        self.show(held);
    }

    /// The answer is complete, as far as the server says.
    pub(crate) fn over(&self) -> bool {
        self.done || self.finish.is_some()
    }

    pub(crate) fn fresh(&mut self) -> impl Iterator<Item = Chunk> + use<> {
        std::mem::take(&mut self.fresh).into_iter()
    }

    pub(crate) fn named(&mut self, model: &Value) {
        if let (None, Some(name)) = (&self.model, model.as_str().filter(|name| !name.is_empty())) {
            self.model = Some(name.to_owned());
        }
    }

    pub(crate) fn call(&mut self, part: &Part<'_>) {
        let id = part.id.filter(|id| !id.is_empty());
        let name = part.name.filter(|name| !name.is_empty());
        let slot = self.slot(part.index, id, name);
        if slot.id.is_none() {
            slot.id = id.map(str::to_owned);
        }
        // Some servers repeat the name in every piece.
        if let (true, Some(name)) = (slot.name.is_empty(), name) {
            name.clone_into(&mut slot.name);
        }
        match part.arguments {
            Some(Value::String(piece)) => slot.arguments.push_str(piece),
            Some(Value::Null) | None => {}
            Some(whole) => slot.arguments = whole.to_string(),
        }
    }

    /// The call an event belongs to: by place, by id, else the last one. A second name starts another.
    fn slot(&mut self, index: Option<u64>, id: Option<&str>, name: Option<&str>) -> &mut Slot {
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
                self.calls.push(Slot { index, ..Slot::default() });
                self.calls.len() - 1
            }
        };
        &mut self.calls[at]
    }

    fn show(&mut self, shown: String) {
        if shown.is_empty() {
            return;
        }
        self.text.push_str(&shown);
        match self.fresh.last_mut() {
            Some(Chunk::Text(text)) => text.push_str(&shown),
            Some(Chunk::Reasoning | Chunk::Restart) | None => self.fresh.push(Chunk::Text(shown)),
        }
    }
}

impl Slot {
    /// Nothing at all means no arguments; a text that holds an object is unwrapped once.
    pub(crate) fn read(&self) -> Arguments {
        let text = self.arguments.trim();
        if text.is_empty() {
            return Arguments::Object(Map::new());
        }
        match serde_json::from_str(text) {
            Ok(Value::Object(map)) => Arguments::Object(map),
            Ok(Value::Null) => Arguments::Object(Map::new()),
            Ok(Value::String(inner)) => match serde_json::from_str(&inner) {
                Ok(map) => Arguments::Object(map),
                Err(_) => Arguments::Broken(inner),
            },
            Ok(_) | Err(_) => Arguments::Broken(text.to_owned()),
        }
    }
}
