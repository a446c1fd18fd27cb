//! A fake gateway: dials a connector, sends what a test orders, and records every frame.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::server::watched::Watched;

/// The frames received over a socket, in order.
#[derive(Debug, Default)]
pub struct Received {
    pub frames: Vec<Value>,
    /// Code and reason once the socket has ended; 1006 without a close frame.
    pub closed: Option<(u16, String)>,
}

impl Received {
    pub fn of_type<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.frames.iter().filter(move |frame| frame["type"] == kind)
    }

    /// The texts of messages, in order.
    pub fn texts(&self) -> Vec<String> {
        let texts = self.of_type("inbound").filter_map(|frame| frame["event"]["text"].as_str());
        texts.map(str::to_owned).collect()
    }
}

/// Which frames are acknowledged automatically.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acks {
    /// Every frame with a buffer id, at once.
    All,
    None,
}

/// One socket. Dropping it closes the connection without a close frame.
#[derive(Debug)]
pub struct Peer {
    received: Arc<Watched<Received>>,
    commands: mpsc::Sender<PeerCommand>,
    /// `None` while being dropped.
    runtime: Option<Runtime>,
}

#[derive(Debug)]
enum PeerCommand {
    Send(Message),
    /// Ends the connection without a close frame.
    Cut,
    /// Keeps the connection open and stops reading.
    Freeze,
}

impl Peer {
    pub fn dial(connector: SocketAddr, bearer: Option<&str>, acks: Acks) -> io::Result<Self> {
        Self::dial_at(connector, "/relay", bearer, acks)
    }

    pub fn dial_at(connector: SocketAddr, path: &str, bearer: Option<&str>, acks: Acks) -> io::Result<Self> {
        let runtime =
            Builder::new_multi_thread().worker_threads(1).thread_name("peer").enable_all().build()?;
        let mut request =
            format!("ws://{connector}{path}").into_client_request().map_err(io::Error::other)?;
        if let Some(bearer) = bearer {
            let value = HeaderValue::try_from(format!("Bearer {bearer}")).map_err(io::Error::other)?;
            request.headers_mut().insert("authorization", value);
        }
        let socket = runtime.block_on(async {
            let stream = TcpStream::connect(connector).await?;
            let (socket, _response) = client_async(request, stream).await.map_err(io::Error::other)?;
            Ok::<_, io::Error>(socket)
        })?;
        let received = Arc::new(Watched::<Received>::default());
        let (commands, receiver) = mpsc::channel(4096);
        runtime.spawn(run(socket, received.clone(), receiver, acks));
        Ok(Self { received, commands, runtime: Some(runtime) })
    }

    /// Sends one frame as a line.
    pub fn send(&self, frame: &Value) {
        self.send_raw(Message::text(format!("{frame}\n")));
    }

    /// Sends exactly this message.
    pub fn send_raw(&self, message: Message) {
        let _socket_ended = self.commands.blocking_send(PeerCommand::Send(message));
    }

    pub fn hello(&self, platform: &str, bot: &str) {
        self.send(&json!({"type": "hello", "platform": platform, "botId": bot}));
    }

    pub fn ack(&self, id: &str) {
        self.send(&json!({"type": "inbound_ack", "bufferId": id}));
    }

    pub fn going_idle(&self) {
        self.send(&json!({"type": "going_idle"}));
    }

    pub fn outbound(&self, request: &str, action: &Value) {
        self.send(&json!({"type": "outbound", "requestId": request, "action": action}));
    }

    pub fn read<T>(&self, read: impl FnOnce(&Received) -> T) -> T {
        self.received.read(read)
    }

    /// Calls `find` now and after every change, until it returns a value or the timeout elapses.
    pub fn wait_until<T>(&self, timeout: Duration, find: impl FnMut(&Received) -> Option<T>) -> Option<T> {
        self.received.wait_until(timeout, find)
    }

    pub fn wait_result(&self, request: &str, timeout: Duration) -> Option<Value> {
        self.wait_until(timeout, |received| {
            let mut results = received.of_type("outbound_result");
            results.find(|frame| frame["requestId"] == request).map(|frame| frame["result"].clone())
        })
    }

    /// Keeps the connection open but reads nothing more, not even pings.
    pub fn freeze(&self) {
        let _socket_ended = self.commands.blocking_send(PeerCommand::Freeze);
    }

    /// Ends the connection without a close frame.
    pub fn cut(&self) {
        let _socket_ended = self.commands.blocking_send(PeerCommand::Cut);
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn run(
    socket: WebSocketStream<TcpStream>,
    received: Arc<Watched<Received>>,
    mut commands: mpsc::Receiver<PeerCommand>,
    acks: Acks,
) {
    let (mut sink, mut stream) = socket.split();
    let mut carry = Vec::new();
    let over = loop {
        let message = tokio::select! {
            command = commands.recv() => match command {
                Some(PeerCommand::Send(message)) => {
                    if sink.send(message).await.is_err() {
                        break (1006, String::new());
                    }
                    continue;
                }
                Some(PeerCommand::Freeze) => {
                    // Until the peer is dropped.
                    while commands.recv().await.is_some() {}
                    break (1006, String::new());
                }
                Some(PeerCommand::Cut) | None => break (1006, String::new()),
            },
            message = stream.next() => message,
        };
        let bytes = match message {
            Some(Ok(Message::Text(text))) => text.as_bytes().to_vec(),
            Some(Ok(Message::Binary(bytes))) => bytes.to_vec(),
            Some(Ok(Message::Close(frame))) => {
                let close = frame.map(|frame| (u16::from(frame.code), frame.reason.to_string()));
                break close.unwrap_or((1005, String::new()));
            }
            Some(Ok(_control)) => continue,
            Some(Err(_)) | None => break (1006, String::new()),
        };
        carry.extend_from_slice(&bytes);
        while let Some(end) = carry.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = carry.drain(..=end).collect();
            let Ok(frame) = serde_json::from_slice::<Value>(&line) else { continue };
            let number = frame.get("bufferId").and_then(Value::as_str).map(str::to_owned);
            received.change(|received| received.frames.push(frame));
            if let (Acks::All, Some(number)) = (acks, number) {
                let ack = json!({"type": "inbound_ack", "bufferId": number});
                // An error ends the stream, too.
                let _ = sink.send(Message::text(format!("{ack}\n"))).await;
            }
        }
    };
    received.change(|received| received.closed = Some(over));
}
