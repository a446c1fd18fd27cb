//! Many gateways at once, on one runtime: they dial, say hello, acknowledge what comes, and tell when it came.

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

/// Dials under way at the same time.
const AT_ONCE: usize = 32;
const READ_BUFFER: usize = 4096;

/// Dropping it cuts them all off.
#[derive(Debug)]
pub struct Crowd {
    told: mpsc::Receiver<Told>,
    _runtime: Runtime,
}

/// What one of them heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Its number, from zero.
    pub gateway: usize,
    pub at: Instant,
    pub text: String,
}

impl Crowd {
    /// One gateway for each bearer. All of them have their descriptor when this returns.
    pub fn dial(connector: SocketAddr, bearers: Vec<String>, platform: &str, bot: &str) -> io::Result<Self> {
        let runtime =
            Builder::new_multi_thread().worker_threads(1).thread_name("crowd").enable_all().build()?;
        let hello = format!("{}\n", json!({"type": "hello", "platform": platform, "botId": bot}));
        let (tell, told) = mpsc::channel();
        let dials = futures_util::stream::iter(bearers.into_iter().enumerate()).map(|(gateway, bearer)| {
            let (hello, tell) = (hello.clone(), tell.clone());
            async move {
                let socket = open(connector, &bearer, hello).await?;
                tokio::spawn(listen(socket, gateway, tell));
                Ok::<_, io::Error>(())
            }
        });
        let opened: Vec<_> = runtime.block_on(dials.buffer_unordered(AT_ONCE).collect());
        opened.into_iter().collect::<io::Result<Vec<()>>>()?;
        Ok(Self { told, _runtime: runtime })
    }

    pub fn next(&self, within: Duration) -> Option<Told> {
        self.told.recv_timeout(within).ok()
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

async fn listen(mut socket: WebSocketStream<TcpStream>, gateway: usize, tell: mpsc::Sender<Told>) {
    while let Some(Ok(message)) = socket.next().await {
        let Message::Text(lines) = message else { continue };
        let at = Instant::now();
        for line in lines.lines() {
            let Ok(frame) = serde_json::from_str::<Value>(line) else { continue };
            if let Some(number) = frame["bufferId"].as_str() {
                let ack = format!("{}\n", json!({"type": "inbound_ack", "bufferId": number}));
                // The end is seen by the reader.
                let _ = socket.send(Message::text(ack)).await;
            }
            if let Some(text) = frame["event"]["text"].as_str() {
                // Nobody may be interested any more.
                let _ = tell.send(Told { gateway, at, text: text.to_owned() });
            }
        }
    }
}
