//! A minimal blocking HTTP client that reports exactly what it received.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The body ended early.
    pub(crate) cut: bool,
    pub(crate) chunks: usize,
}

impl HttpResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|header| header.0 == name).map(|header| header.1.as_str())
    }
}

pub(crate) struct HttpConnection(BufReader<TcpStream>);

impl HttpConnection {
    pub(crate) fn open(port: u16) -> std::io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self(BufReader::new(stream)))
    }

    pub(crate) fn send(&mut self, path: &str, headers: &str, body: &[u8]) -> std::io::Result<()> {
        let length = body.len();
        let head = format!("POST {path} HTTP/1.1\r\nhost: fake\r\ncontent-length: {length}\r\n{headers}\r\n");
        self.0.get_mut().write_all(&[head.as_bytes(), body].concat())
    }

    /// `Err`: no response at all.
    pub(crate) fn receive(&mut self) -> std::io::Result<HttpResponse> {
        let status = self.read_line()?.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| Error::from(ErrorKind::InvalidData))?;
        let mut headers = Vec::new();
        loop {
            let line = self.read_line()?;
            let Some((name, value)) = line.split_once(": ") else {
                break;
            };
            headers.push((name.to_lowercase(), value.to_owned()));
        }
        let mut reply = HttpResponse { status, headers, body: Vec::new(), cut: false, chunks: 0 };
        reply.cut = match reply.header("content-length").map(|length| length.parse().unwrap()) {
            Some(length) => self.read_exactly(length, &mut reply.body).is_err(),
            None => self.read_chunks(&mut reply).is_err(),
        };
        Ok(reply)
    }

    fn read_line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    fn read_exactly(&mut self, length: u64, into: &mut Vec<u8>) -> std::io::Result<()> {
        let got = self.0.by_ref().take(length).read_to_end(into)?;
        if (got as u64) < length { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    fn read_chunks(&mut self, into: &mut HttpResponse) -> std::io::Result<()> {
        loop {
            let length = u64::from_str_radix(&self.read_line()?, 16).map_err(Error::other)?;
            self.read_exactly(length, &mut into.body)?;
            self.read_line()?;
            if length == 0 {
                return Ok(());
            }
            into.chunks += 1;
        }
    }
}

pub(crate) fn post(port: u16, path: &str, headers: &str, body: &[u8]) -> std::io::Result<HttpResponse> {
    let mut connection = HttpConnection::open(port)?;
    connection.send(path, headers, body)?;
    connection.receive()
}

/// A call to the Bot API with a JSON body.
pub(crate) fn call_bot(port: u16, method: &str, params: &Value) -> std::io::Result<HttpResponse> {
    let path = format!("/bot1:token/{method}");
    post(port, &path, "content-type: application/json\r\n", params.to_string().as_bytes())
}

pub(crate) fn call_bot_in_background(
    port: u16,
    method: &'static str,
    params: Value,
) -> JoinHandle<std::io::Result<HttpResponse>> {
    thread::spawn(move || call_bot(port, method, &params))
}

pub(crate) fn send_message(port: u16, chat: i64, text: &str) -> std::io::Result<HttpResponse> {
    call_bot(port, "sendMessage", &json!({"chat_id": chat, "text": text}))
}

/// Polls and returns the ids of the updates.
pub(crate) fn poll(port: u16, offset: i64, timeout: u64) -> Vec<i64> {
    let reply = call_bot(port, "getUpdates", &json!({"offset": offset, "timeout": timeout})).unwrap();
    let body = reply.json();
    body["result"].as_array().unwrap().iter().map(|update| update["update_id"].as_i64().unwrap()).collect()
}
