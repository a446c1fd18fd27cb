//! Splits a byte stream into lines and server-sent events. Pure; tolerates comments, CRLF, split writes,
//! multi-line data, and a missing blank line or end.

/// Maximum line length; tool arguments may arrive in one piece.
const LINE: usize = 4 << 20;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line of the stream is too long")]
pub(crate) struct LineTooLong;

#[derive(Debug, Default)]
pub(crate) struct LineSplitter {
    buffer: Vec<u8>,
    /// The buffer contains no newline before this offset.
    searched: usize,
}

impl LineSplitter {
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, LineTooLong> {
        self.buffer.extend_from_slice(bytes);
        let mut lines = Vec::new();
        let mut start = 0;
        while let Some(length) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
            let end = self.searched + length;
            lines.push(text(&self.buffer[start..end]));
            start = end + 1;
            self.searched = start;
        }
        self.buffer.drain(..start);
        self.searched = self.buffer.len();
        if self.buffer.len() > LINE { Err(LineTooLong) } else { Ok(lines) }
    }

    /// The text after the last newline.
    pub(crate) fn rest(&mut self) -> Option<String> {
        self.searched = 0;
        let rest = text(&std::mem::take(&mut self.buffer));
        (!rest.trim().is_empty()).then_some(rest)
    }
}

fn text(line: &[u8]) -> String {
    String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned()
}

#[derive(Debug, Default)]
pub(crate) struct EventParser {
    lines: LineSplitter,
    data: Option<String>,
}

impl EventParser {
    /// Data of every completed event; names, ids and comments are ignored.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, LineTooLong> {
        let mut events = Vec::new();
        for line in self.lines.push(bytes)? {
            self.line(&line, &mut events);
        }
        if self.data.as_ref().is_some_and(|data| data.len() > LINE) { Err(LineTooLong) } else { Ok(events) }
    }

    /// The last event, if the stream ended without a closing blank line.
    pub(crate) fn rest(&mut self) -> Vec<String> {
        let mut events = Vec::new();
        if let Some(line) = self.lines.rest() {
            self.line(&line, &mut events);
        }
        events.extend(self.data.take());
        events
    }

    fn line(&mut self, line: &str, events: &mut Vec<String>) {
        if line.is_empty() {
            events.extend(self.data.take());
            return;
        }
        let Some(value) = line.strip_prefix("data:") else { return };
        let value = value.strip_prefix(' ').unwrap_or(value);
        match &mut self.data {
            // Some servers omit the blank line; complete JSON cannot continue.
            Some(data) if is_complete_json(data) => events.extend(self.data.replace(value.to_owned())),
            Some(data) => {
                data.push('\n');
                data.push_str(value);
            }
            None => self.data = Some(value.to_owned()),
        }
    }
}

fn is_complete_json(data: &str) -> bool {
    data == "[DONE]" || serde_json::from_str::<serde::de::IgnoredAny>(data).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(stream: &str, want: &[&str]) {
        for size in [1, 2, 3, 7, stream.len().max(1)] {
            let mut events = EventParser::default();
            let mut got = Vec::new();
            for piece in stream.as_bytes().chunks(size) {
                got.extend(events.push(piece).unwrap());
            }
            got.extend(events.rest());
            assert_eq!(got, want, "pieces of {size}: {stream:?}");
        }
    }

    #[test]
    fn parses_events_from_any_chunking() {
        check("data: {\"a\":1}\n\ndata: [DONE]\n\n", &["{\"a\":1}", "[DONE]"]);
        check(": hello\r\n\r\nevent: x\r\nid: 4\r\ndata:{}\r\n\r\n", &["{}"]);
        check("data: {\"a\":\ndata: 1}\n\n", &["{\"a\":\n1}"]);
        check("data: {}\ndata: {}\n\n", &["{}", "{}"]);
        check("data: {\"a\": \"ü\"}", &["{\"a\": \"ü\"}"]);
        check("", &[]);
    }

    #[test]
    fn rejects_endless_line() {
        let mut events = EventParser::default();
        let piece = vec![b'x'; LINE];
        assert_eq!(events.push(&piece), Ok(vec![]));
        assert_eq!(events.push(&piece), Err(LineTooLong));
    }
}
