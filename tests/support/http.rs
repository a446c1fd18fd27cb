//! A small HTTP client that can also misbehave: it sends the bytes it is told to.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use serde_json::Value;

pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body)
            .unwrap_or_else(|_| panic!("{} is no JSON: {:?}", self.status, self.body))
    }
}

/// An answer that is read as it comes. Dropping it hangs up.
pub struct Stream {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    reader: Chunked,
}

impl Stream {
    /// Up to the next empty line; `None`: it is over.
    pub fn frame(&mut self) -> Option<Frame> {
        self.try_frame().expect("a line of the stream")
    }

    /// The same of a peer that may be gone.
    pub fn try_frame(&mut self) -> io::Result<Option<Frame>> {
        let mut frame = Frame::default();
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
                _ => panic!("not a line of a stream: {line:?}"),
            }
        }
    }

    pub fn rest(mut self) -> Vec<Frame> {
        std::iter::from_fn(|| self.frame()).collect()
    }
}

#[derive(Debug, Default, Clone)]
pub struct Frame {
    pub event: Option<String>,
    pub id: Option<String>,
    pub data: String,
    pub comment: Option<String>,
}

impl Frame {
    fn is_empty(&self) -> bool {
        self.data.is_empty() && self.comment.is_none()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }
}

/// One request on a connection of its own.
pub struct Ask<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub headers: Vec<(&'a str, String)>,
    pub body: Option<String>,
}

impl<'a> Ask<'a> {
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

    pub fn send(&self, address: impl ToSocketAddrs) -> io::Result<Reply> {
        let mut stream = self.open(address)?;
        let mut body = String::new();
        stream.reader.read_to_string(&mut body)?;
        Ok(Reply { status: stream.status, headers: stream.headers, body })
    }

    pub fn open(&self, address: impl ToSocketAddrs) -> io::Result<Stream> {
        raw(address, self.bytes().as_bytes())
    }

    /// Sends it and does not wait for anything. Dropping the socket hangs up.
    pub fn begin(&self, address: impl ToSocketAddrs) -> io::Result<TcpStream> {
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

/// Whatever these bytes are, and what came back. A peer that hangs up before it has read them all may still answer.
pub fn raw(address: impl ToSocketAddrs, bytes: &[u8]) -> io::Result<Stream> {
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
    let left = match (chunked, length) {
        (true, _) => Left::Chunks,
        (false, Some(length)) => Left::Bytes(length),
        (false, None) => Left::All,
    };
    Ok(Stream { status, headers, reader: Chunked { reader, left, ready: vec![] } })
}

enum Left {
    Chunks,
    Bytes(usize),
    All,
    Nothing,
}

struct Chunked {
    reader: BufReader<TcpStream>,
    left: Left,
    ready: Vec<u8>,
}

impl Chunked {
    fn more(&mut self) -> io::Result<bool> {
        match self.left {
            Left::Nothing => Ok(false),
            Left::Bytes(length) => {
                let mut body = vec![0; length];
                self.reader.read_exact(&mut body)?;
                self.ready.extend(body);
                self.left = Left::Nothing;
                Ok(true)
            }
            Left::All => {
                self.left = Left::Nothing;
                self.reader.read_to_end(&mut self.ready)?;
                Ok(true)
            }
            Left::Chunks => {
                let mut size = String::new();
                self.reader.read_line(&mut size)?;
                let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
                let mut chunk = vec![0; size + 2];
                if size == 0 {
                    self.left = Left::Nothing;
                    return Ok(false);
                }
                self.reader.read_exact(&mut chunk)?;
                chunk.truncate(size);
                self.ready.extend(chunk);
                Ok(true)
            }
        }
    }

    fn read_line(&mut self, line: &mut String) -> io::Result<usize> {
        loop {
            if let Some(end) = self.ready.iter().position(|byte| *byte == b'\n') {
                let bytes: Vec<u8> = self.ready.drain(..=end).collect();
                line.push_str(&String::from_utf8_lossy(&bytes));
                return Ok(bytes.len());
            }
            if !self.more()? {
                let rest = std::mem::take(&mut self.ready);
                line.push_str(&String::from_utf8_lossy(&rest));
                return Ok(rest.len());
            }
        }
    }

    fn read_to_string(&mut self, text: &mut String) -> io::Result<()> {
        while self.more()? {}
        text.push_str(&String::from_utf8_lossy(&std::mem::take(&mut self.ready)));
        Ok(())
    }
}
