//! Parses the server-sent events of the gateway.

use serde_json::Value;

use super::Error;

#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub name: String,
    pub data: Value,
}

/// An open event stream. Dropping it closes the connection.
#[derive(Debug)]
pub struct EventStream {
    response: reqwest::Response,
    parser: SseParser,
}

impl EventStream {
    pub(super) fn new(response: reqwest::Response) -> Self {
        Self { response, parser: SseParser::default() }
    }

    /// The next event, or `Unreachable` once the gateway has closed the stream.
    pub async fn next(&mut self) -> Result<Event, Error> {
        loop {
            if let Some(event) = self.parser.pop() {
                return Ok(event);
            }
            let chunk = self.response.chunk().await.map_err(|_| Error::Unreachable)?;
            self.parser.push(&chunk.ok_or(Error::Unreachable)?);
        }
    }
}

/// Incremental parser: bytes in, events out.
#[derive(Debug, Default)]
struct SseParser {
    buffer: Vec<u8>,
}

impl SseParser {
    fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    fn pop(&mut self) -> Option<Event> {
        loop {
            let end = self.buffer.windows(2).position(|pair| pair == b"\n\n")?;
            let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
            if let Some(event) = parse_event(&String::from_utf8_lossy(&block)) {
                return Some(event);
            }
        }
    }
}

/// `None` for a block without data, such as a heartbeat.
fn parse_event(block: &str) -> Option<Event> {
    let field = |name: &str| {
        let values = block.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let values: Vec<&str> = values.map(|value| value.strip_prefix(' ').unwrap_or(value)).collect();
        (!values.is_empty()).then(|| values.join("\n"))
    };
    let data = serde_json::from_str(&field("data")?).ok()?;
    Some(Event { name: field("event").unwrap_or_else(|| "message".into()), data })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn parses_events_from_any_chunking() {
        let text =
            ": hello\n\nevent: row\nid: 4\ndata: {\"a\":\"ß\"}\n\nevent: idle\ndata: {}\n\n".as_bytes();
        for step in 1..text.len() {
            let mut parser = SseParser::default();
            let mut events = Vec::new();
            for chunk in text.chunks(step) {
                parser.push(chunk);
                events.extend(std::iter::from_fn(|| parser.pop()));
            }
            let want = [("row", json!({"a": "ß"})), ("idle", json!({}))];
            let want = want.map(|(name, data)| Event { name: name.into(), data });
            assert_eq!(events, want, "chunks of {step}");
        }
    }
}
