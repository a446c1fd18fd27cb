//! Many fake gateways on one runtime, for load tests: they dial, send a hello, acknowledge every frame and report
//! when it arrived.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

const CONCURRENT_DIALS: usize = 32;
const READ_BUFFER: usize = 4096;

/// Dropping it ends all connections.
#[derive(Debug)]
pub struct Fleet {
    received: mpsc::Receiver<ReceivedText>,
    _runtime: Runtime,
}

/// A message that one gateway received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedText {
    pub gateway: usize,
    pub at: Instant,
    pub text: String,
}

impl Fleet {
    /// Dials one gateway per bearer token and waits until each has its descriptor.
    pub fn dial(connector: SocketAddr, bearers: Vec<String>, platform: &str, bot: &str) -> io::Result<Self> {
        let runtime =
            Builder::new_multi_thread().worker_threads(1).thread_name("fleet").enable_all().build()?;
        let hello = format!("{}\n", json!({"type": "hello", "platform": platform, "botId": bot}));
        let (sender, received) = mpsc::channel();
        let dials = futures_util::stream::iter(bearers.into_iter().enumerate()).map(|(gateway, bearer)| {
            let hello = hello.clone();
            let sender = sender.clone();
            async move {
                let socket = open(connector, &bearer, hello).await?;
                tokio::spawn(listen(socket, gateway, sender));
                Ok::<_, io::Error>(())
            }
        });
        let opened: Vec<_> = runtime.block_on(dials.buffer_unordered(CONCURRENT_DIALS).collect());
        opened.into_iter().collect::<io::Result<Vec<()>>>()?;
        Ok(Self { received, _runtime: runtime })
    }

    pub fn next(&self, within: Duration) -> Option<ReceivedText> {
        self.received.recv_timeout(within).ok()
    }
}

async fn open(connector: SocketAddr, bearer: &str, hello: String) -> io::Result<WebSocketStream<TcpStream>> {
    let mut request = format!("ws://{connector}/relay").into_client_request().map_err(io::Error::other)?;
    let value = HeaderValue::try_from(format!("Bearer {bearer}")).map_err(io::Error::other)?;
    request.headers_mut().insert("authorization", value);
    let stream = TcpStream::connect(connector).await?;
    let config = WebSocketConfig::default().read_buffer_size(READ_BUFFER);
    let (mut socket, _response) =
        client_async_with_config(request, stream, Some(config)).await.map_err(io::Error::other)?;
    socket.send(Message::text(hello)).await.map_err(io::Error::other)?;
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) if text.contains("\"descriptor\"") => return Ok(socket),
            Some(Ok(Message::Ping(_))) => {}
            Some(Ok(other)) => return Err(io::Error::other(format!("no descriptor: {other:?}"))),
            Some(Err(error)) => return Err(io::Error::other(error)),
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

async fn listen(mut socket: WebSocketStream<TcpStream>, gateway: usize, sender: mpsc::Sender<ReceivedText>) {
    while let Some(Ok(message)) = socket.next().await {
        let Message::Text(lines) = message else { continue };
        let at = Instant::now();
        for line in lines.lines() {
            let Ok(frame) = serde_json::from_str::<Value>(line) else { continue };
            if let Some(number) = frame["bufferId"].as_str() {
                let ack = format!("{}\n", json!({"type": "inbound_ack", "bufferId": number}));
                // An error ends the stream, too.
                let _ = socket.send(Message::text(ack)).await;
            }
            if let Some(text) = frame["event"]["text"].as_str() {
                let _receiver_dropped = sender.send(ReceivedText { gateway, at, text: text.to_owned() });
            }
        }
    }
}
