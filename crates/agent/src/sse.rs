//! Lines and server-sent events out of whatever pieces the network hands us. Pure and tolerant: comments,
//! CRLF, split writes, data over several lines, a missing blank line, a missing end.

/// The longest line we hold. Tool arguments may come in one piece.
const LINE: usize = 4 << 20;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line of the stream is too long")]
pub(crate) struct TooLong;

#[derive(Debug, Default)]
pub(crate) struct Lines {
    buffer: Vec<u8>,
    /// Up to here there is no line end.
    searched: usize,
}

impl Lines {
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, TooLong> {
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
        if self.buffer.len() > LINE { Err(TooLong) } else { Ok(lines) }
    }

    /// What stands after the last line end.
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
pub(crate) struct Events {
    lines: Lines,
    /// The data of the event now being read.
    data: Option<String>,
}

impl Events {
    /// The data of every event that is complete. Names, ids and comments carry nothing we need.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, TooLong> {
        let mut events = Vec::new();
        for line in self.lines.push(bytes)? {
            self.line(&line, &mut events);
        }
        if self.data.as_ref().is_some_and(|data| data.len() > LINE) { Err(TooLong) } else { Ok(events) }
    }

    /// The last event, if the stream ended without the blank line that closes it.
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
            // Some servers forget the blank line; a value that is whole cannot be continued.
            Some(data) if whole(data) => events.extend(self.data.replace(value.to_owned())),
            Some(data) => {
                data.push('\n');
                data.push_str(value);
            }
            None => self.data = Some(value.to_owned()),
        }
    }
}

fn whole(data: &str) -> bool {
    data == "[DONE]" || serde_json::from_str::<serde::de::IgnoredAny>(data).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(stream: &str, want: &[&str]) {
        for size in [1, 2, 3, 7, stream.len().max(1)] {
            let mut events = Events::default();
            let mut got = Vec::new();
            for piece in stream.as_bytes().chunks(size) {
                got.extend(events.push(piece).unwrap());
            }
            got.extend(events.rest());
            assert_eq!(got, want, "pieces of {size}: {stream:?}");
        }
    }

    #[test]
    fn events_come_out_whole_whatever_the_pieces() {
        check("data: {\"a\":1}\n\ndata: [DONE]\n\n", &["{\"a\":1}", "[DONE]"]);
        check(": hello\r\n\r\nevent: x\r\nid: 4\r\ndata:{}\r\n\r\n", &["{}"]);
        check("data: {\"a\":\ndata: 1}\n\n", &["{\"a\":\n1}"]);
        check("data: {}\ndata: {}\n\n", &["{}", "{}"]);
        check("data: {\"a\": \"ü\"}", &["{\"a\": \"ü\"}"]);
        check("", &[]);
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut events = Events::default();
        let piece = vec![b'x'; LINE];
        assert_eq!(events.push(&piece), Ok(vec![]));
        assert_eq!(events.push(&piece), Err(TooLong));
    }
}
