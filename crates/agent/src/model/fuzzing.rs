//! Parses bytes as the streamed response of a model, in the protocol of every provider.

use super::provider::{Protocol, ResponseDraft};
use super::transport::sse::EventParser;

/// Whether any protocol reads an event. The bytes arrive in two pieces.
pub fn stream(bytes: &[u8]) -> bool {
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let mut parser = EventParser::default();
    let mut events = parser.push(first).unwrap_or_default();
    events.extend(parser.push(second).unwrap_or_default());
    events.extend(parser.rest());
    let protocols = [Protocol::Chat, Protocol::Messages, Protocol::Ollama];
    let read = protocols.map(|protocol| {
        let mut draft = ResponseDraft::new();
        let read =
            events.iter().filter(|event| protocol.apply_event(&mut draft, event, None).is_ok()).count();
        draft.flush();
        read
    });
    read.iter().any(|events| *events > 0)
}
