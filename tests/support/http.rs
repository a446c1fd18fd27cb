//! A small HTTP client that can also send malformed requests.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use serde_json::Value;

pub struct HttpResponse {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl HttpResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body)
            .unwrap_or_else(|_| panic!("{}: not JSON: {:?}", self.status, self.body))
    }
}

/// A response that is read as it arrives. Dropping it closes the connection.
pub struct EventStream {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    reader: BodyReader,
}

impl EventStream {
    /// `None`: the stream has ended.
    pub fn next_frame(&mut self) -> Option<SseFrame> {
        self.try_next_frame().expect("a line of the stream")
    }

    /// [`Self::next_frame`] of a peer that may disconnect.
    pub fn try_next_frame(&mut self) -> io::Result<Option<SseFrame>> {
        let mut frame = SseFrame::default();
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line)? == 0 {
                return Ok((!frame.is_empty()).then_some(frame));
            }
            let line = line.trim_end_matches('\n');
            match line.split_once(':') {
                _ if line.is_empty() && frame.is_empty() => {}
                _ if line.is_empty() => return Ok(Some(frame)),
                Some(("", comment)) => frame.comment = Some(comment.trim().to_owned()),
                Some(("event", name)) => frame.event = Some(name.trim().to_owned()),
                Some(("id", id)) => frame.id = Some(id.trim().to_owned()),
                Some(("data", data)) => frame.data.push_str(data.trim_start()),
                _ => panic!("not a line of an event stream: {line:?}"),
            }
        }
    }

    pub fn rest(mut self) -> Vec<SseFrame> {
        std::iter::from_fn(|| self.next_frame()).collect()
    }
}

#[derive(Debug, Default, Clone)]
pub struct SseFrame {
    pub event: Option<String>,
    pub id: Option<String>,
    pub data: String,
    pub comment: Option<String>,
}

impl SseFrame {
    fn is_empty(&self) -> bool {
        self.data.is_empty() && self.comment.is_none()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }
}

/// One request on its own connection.
pub struct HttpRequest<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub headers: Vec<(&'a str, String)>,
    pub body: Option<String>,
}

impl<'a> HttpRequest<'a> {
    pub fn new(method: &'a str, path: &'a str) -> Self {
        Self { method, path, headers: vec![], body: None }
    }

    pub fn header(mut self, name: &'a str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub fn json(mut self, body: &Value) -> Self {
        self.body = Some(body.to_string());
        self.header("Content-Type", "application/json")
    }

    pub fn text(mut self, body: impl Into<String>) -> Self {
        self.body = Some(body.into());
        self
    }

    pub fn send(&self, address: impl ToSocketAddrs) -> io::Result<HttpResponse> {
        let mut stream = self.open(address)?;
        let mut body = String::new();
        stream.reader.read_to_string(&mut body)?;
        Ok(HttpResponse { status: stream.status, headers: stream.headers, body })
    }

    pub fn open(&self, address: impl ToSocketAddrs) -> io::Result<EventStream> {
        send_raw(address, self.bytes().as_bytes())
    }

    /// Sends the request without waiting for a response. Dropping the socket closes the connection.
    pub fn send_only(&self, address: impl ToSocketAddrs) -> io::Result<TcpStream> {
        let mut socket = TcpStream::connect(address)?;
        socket.write_all(self.bytes().as_bytes())?;
        Ok(socket)
    }

    pub fn bytes(&self) -> String {
        let mut head =
            format!("{} {} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        let body = self.body.as_deref().unwrap_or_default();
        if self.body.is_some() {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        format!("{head}\r\n{body}")
    }
}

/// Sends the bytes as they are. A peer that closes the connection before it has read them all may still respond.
pub fn send_raw(address: impl ToSocketAddrs, bytes: &[u8]) -> io::Result<EventStream> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    let sent = socket.write_all(bytes);
    let mut reader = BufReader::new(socket);
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        sent?;
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let status =
        line.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.to_owned())),
            None => break,
        }
    }
    let chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    let length =
        headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, it)| it.parse().ok());
    let framing = match (chunked, length) {
        (true, _) => BodyFraming::Chunked,
        (false, Some(length)) => BodyFraming::Length(length),
        (false, None) => BodyFraming::UntilClose,
    };
    Ok(EventStream { status, headers, reader: BodyReader { reader, framing, buffer: vec![] } })
}

enum BodyFraming {
    Chunked,
    Length(usize),
    UntilClose,
    Complete,
}

struct BodyReader {
    reader: BufReader<TcpStream>,
    framing: BodyFraming,
    buffer: Vec<u8>,
}

impl BodyReader {
    fn read_some(&mut self) -> io::Result<bool> {
        match self.framing {
            BodyFraming::Complete => Ok(false),
            BodyFraming::Length(length) => {
                let mut body = vec![0; length];
                self.reader.read_exact(&mut body)?;
                self.buffer.extend(body);
                self.framing = BodyFraming::Complete;
                Ok(true)
            }
            BodyFraming::UntilClose => {
                self.framing = BodyFraming::Complete;
                self.reader.read_to_end(&mut self.buffer)?;
                Ok(true)
            }
            BodyFraming::Chunked => {
                let mut size = String::new();
                self.reader.read_line(&mut size)?;
                let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
                let mut chunk = vec![0; size + 2];
                if size == 0 {
                    self.framing = BodyFraming::Complete;
                    return Ok(false);
                }
                self.reader.read_exact(&mut chunk)?;
                chunk.truncate(size);
                self.buffer.extend(chunk);
                Ok(true)
            }
        }
    }

    fn read_line(&mut self, line: &mut String) -> io::Result<usize> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let bytes: Vec<u8> = self.buffer.drain(..=end).collect();
                line.push_str(&String::from_utf8_lossy(&bytes));
                return Ok(bytes.len());
            }
            if !self.read_some()? {
                let rest = std::mem::take(&mut self.buffer);
                line.push_str(&String::from_utf8_lossy(&rest));
                return Ok(rest.len());
            }
        }
    }

    fn read_to_string(&mut self, text: &mut String) -> io::Result<()> {
        while self.read_some()? {}
        text.push_str(&String::from_utf8_lossy(&std::mem::take(&mut self.buffer)));
        Ok(())
    }
}
