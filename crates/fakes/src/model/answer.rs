//! Scripted answers: content, streaming, quirks and faults.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::faults::gate::{Barrier, Gate};

/// One scripted answer; the same script serves all three protocols.
#[derive(Debug, Clone)]
pub struct Answer {
    pub(crate) text: String,
    pub(crate) reasoning: String,
    pub(crate) chunks: usize,
    pub(crate) every: Duration,
    pub(crate) tools: Vec<ToolCall>,
    pub(crate) finish: Option<String>,
    pub(crate) usage: Option<Usage>,
    pub(crate) quirks: Vec<Quirk>,
    pub(crate) fault: Option<Fault>,
    pub(crate) gates: Vec<(Point, Arc<Barrier>)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    pub arguments: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub input: u64,
    pub output: u64,
}

/// A point in an answer. Deltas are pieces of text or of tool calls, counted from 1; an answer that is not streamed
/// has only `Before`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// Before the status line.
    Before,
    /// After this many deltas; 0 is after the opening of the stream.
    AfterDelta(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quirk {
    /// Comments (in NDJSON: empty lines) between events.
    KeepAlives,
    /// OpenAI: tool calls without `index`, each in one piece.
    NoToolIndex,
    /// OpenAI: `arguments` as an object instead of a string.
    ArgumentsAsObject,
    /// OpenAI: the pieces of parallel tool calls are mixed.
    InterleavedTools,
    /// The last marker is missing: `[DONE]`, `message_stop`, `"done":true`.
    NoDone,
    /// No usage, even if requested.
    NoUsage,
    /// Every event arrives in two TCP writes.
    SplitWrites,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// An error status. An empty body becomes an error object of the protocol.
    Status {
        code: u16,
        body: String,
        retry_after: Option<u64>,
    },
    ResetBefore,
    /// Ends the connection after this many deltas; in the middle of the body if not streamed.
    CutAfter(usize),
    /// Stops at this point until `release_hangs`.
    Hang(Point),
    Garbage,
    /// Ends with an error object of the protocol after this many deltas; a 500 if not streamed.
    ErrorAfter {
        deltas: usize,
        message: String,
    },
}

impl Answer {
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            reasoning: String::new(),
            chunks: 1,
            every: Duration::ZERO,
            tools: Vec::new(),
            finish: None,
            usage: None,
            quirks: Vec::new(),
            fault: None,
            gates: Vec::new(),
        }
    }

    #[must_use]
    pub fn empty() -> Self {
        Self::text("")
    }

    pub fn tool(name: impl Into<String>, arguments: Value) -> Self {
        Self::empty().and_tool(name, arguments)
    }

    pub fn failing(fault: Fault) -> Self {
        Self::text("this should have failed").fault(fault)
    }

    /// An error status; an empty body becomes an error object of the protocol.
    pub fn status(code: u16, body: impl Into<String>) -> Self {
        Self::failing(Fault::Status { code, body: body.into(), retry_after: None })
    }

    /// A 429 with `Retry-After` in seconds.
    #[must_use]
    pub fn too_many(retry_after: u64) -> Self {
        Self::failing(Fault::Status { code: 429, body: String::new(), retry_after: Some(retry_after) })
    }

    #[must_use]
    pub fn and_tool(mut self, name: impl Into<String>, arguments: Value) -> Self {
        let id = format!("call_{}", self.tools.len() + 1);
        self.tools.push(ToolCall { id, name: name.into(), arguments });
        self
    }

    #[must_use]
    pub fn reasoning(mut self, thoughts: impl Into<String>) -> Self {
        self.reasoning = thoughts.into();
        self
    }

    /// Sets the number of pieces of the streamed text.
    #[must_use]
    pub fn chunks(mut self, chunks: usize) -> Self {
        self.chunks = chunks.max(1);
        self
    }

    /// Sets the pause before each delta; before the whole answer if not streamed.
    #[must_use]
    pub fn every(mut self, pause: Duration) -> Self {
        self.every = pause;
        self
    }

    /// Sets the finish reason in OpenAI's terms (`stop`, `length`, `tool_calls`). It is translated for the other
    /// protocols unless unknown.
    #[must_use]
    pub fn finish(mut self, reason: impl Into<String>) -> Self {
        self.finish = Some(reason.into());
        self
    }

    #[must_use]
    pub fn usage(mut self, input: u64, output: u64) -> Self {
        self.usage = Some(Usage { input, output });
        self
    }

    #[must_use]
    pub fn quirk(mut self, quirk: Quirk) -> Self {
        self.quirks.push(quirk);
        self
    }

    #[must_use]
    pub fn fault(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }

    #[must_use]
    pub fn gate(mut self, point: Point, gate: &Gate) -> Self {
        self.gates.push((point, gate.barrier()));
        self
    }

    pub(crate) fn has(&self, quirk: Quirk) -> bool {
        self.quirks.contains(&quirk)
    }

    pub(crate) fn finish_reason(&self) -> &str {
        match &self.finish {
            Some(reason) => reason,
            None if self.tools.is_empty() => "stop",
            None => "tool_calls",
        }
    }

    /// The pieces of the text, split between characters.
    pub(crate) fn pieces(&self) -> Vec<&str> {
        pieces(&self.text, self.chunks)
    }
}

pub(crate) fn pieces(text: &str, count: usize) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    let mut left = count.max(1);
    while !rest.is_empty() {
        let mut at = rest.len().div_ceil(left);
        while !rest.is_char_boundary(at) {
            at += 1;
        }
        let (piece, tail) = rest.split_at(at);
        found.push(piece);
        rest = tail;
        left = (left - 1).max(1);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::pieces;

    #[track_caller]
    fn check(text: &str, count: usize, want: &[&str]) {
        assert_eq!(pieces(text, count), want, "{text:?} in {count}");
    }

    #[test]
    fn splits_into_similar_pieces_between_characters() {
        check("", 3, &[]);
        check("abcd", 1, &["abcd"]);
        check("abcd", 0, &["abcd"]);
        check("abcde", 2, &["abc", "de"]);
        check("ab", 5, &["a", "b"]);
        check("äöü", 3, &["ä", "ö", "ü"]);
        check("😀😀", 4, &["😀", "😀"]);
    }
}
