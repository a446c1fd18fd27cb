//! A gateway as a connector sees it, by the public contract: it dials, says what a test says, and records what comes.
//! And the address that somebody calls to wake it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::server::Server;
use crate::watched::Watched;

/// What a gateway shows when it dials. `exp`: in Unix seconds.
pub fn token(gateway: &str, secret: &str, exp: u64) -> String {
    let signed = format!("{gateway}:{exp}");
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature: String =
        hmac::sign(&key, signed.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    URL_SAFE_NO_PAD.encode(format!("{signed}:{signature}"))
}

/// The same, good for five minutes.
pub fn fresh_token(gateway: &str, secret: &str) -> String {
    token(gateway, secret, now() + 300)
}

/// Unix seconds.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// What came over a socket, in the order in which it came.
#[derive(Debug, Default)]
pub struct Heard {
    pub frames: Vec<Value>,
    /// Code and reason, once it is over; 1006 if nobody said why.
    pub closed: Option<(u16, String)>,
}

impl Heard {
    pub fn of_type<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.frames.iter().filter(move |frame| frame["type"] == kind)
    }

    /// The texts of messages, in order.
    pub fn texts(&self) -> Vec<String> {
        let texts = self.of_type("inbound").filter_map(|frame| frame["event"]["text"].as_str());
        texts.map(str::to_owned).collect()
    }
}

/// What is done without being asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acks {
    /// Everything that has a number is acknowledged at once.
    All,
    None,
}

/// One socket. Dropping it cuts it off.
#[derive(Debug)]
pub struct Peer {
    heard: Arc<Watched<Heard>>,
    says: mpsc::Sender<Said>,
    /// `None`: being dropped.
    runtime: Option<Runtime>,
}

#[derive(Debug)]
enum Said {
    Message(Message),
    /// Not even a goodbye.
    Cut,
    /// Open, and deaf from now on.
    Freeze,
}

impl Peer {
    /// An error: it never became a socket. The text has the status, if there was one.
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
        let heard = Arc::new(Watched::new(Heard::default()));
        let (says, said) = mpsc::channel(4096);
        runtime.spawn(keep(socket, heard.clone(), said, acks));
        Ok(Self { heard, says, runtime: Some(runtime) })
    }

    /// One frame, as a line.
    pub fn say(&self, frame: &Value) {
        self.say_raw(Message::text(format!("{frame}\n")));
    }

    /// Exactly this message, whatever it holds.
    pub fn say_raw(&self, message: Message) {
        // A socket that is over hears nothing.
        let _ = self.says.blocking_send(Said::Message(message));
    }

    pub fn hello(&self, platform: &str, bot: &str) {
        self.say(&json!({"type": "hello", "platform": platform, "botId": bot}));
    }

    pub fn ack(&self, id: &str) {
        self.say(&json!({"type": "inbound_ack", "bufferId": id}));
    }

    pub fn going_idle(&self) {
        self.say(&json!({"type": "going_idle"}));
    }

    pub fn outbound(&self, request: &str, action: &Value) {
        self.say(&json!({"type": "outbound", "requestId": request, "action": action}));
    }

    pub fn look<T>(&self, look: impl FnOnce(&Heard) -> T) -> T {
        self.heard.read(look)
    }

    /// Looks now and after every change, until `look` finds something or time is up.
    pub fn wait_until<T>(&self, timeout: Duration, look: impl FnMut(&Heard) -> Option<T>) -> Option<T> {
        self.heard.wait_until(timeout, look)
    }

    /// The answer to this request, once there is one.
    pub fn answer(&self, request: &str, timeout: Duration) -> Option<Value> {
        self.wait_until(timeout, |heard| {
            let mut answers = heard.of_type("outbound_result");
            answers.find(|frame| frame["requestId"] == request).map(|frame| frame["result"].clone())
        })
    }

    /// The connection stays, and nothing on it is read any more, not even a ping.
    pub fn freeze(&self) {
        let _ = self.says.blocking_send(Said::Freeze);
    }

    /// The connection is gone, without a word.
    pub fn cut(&self) {
        let _ = self.says.blocking_send(Said::Cut);
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn keep(
    socket: WebSocketStream<TcpStream>,
    heard: Arc<Watched<Heard>>,
    mut said: mpsc::Receiver<Said>,
    acks: Acks,
) {
    let (mut sink, mut stream) = socket.split();
    let mut carry = Vec::new();
    let over = loop {
        let message = tokio::select! {
            word = said.recv() => match word {
                Some(Said::Message(message)) => {
                    if sink.send(message).await.is_err() {
                        break (1006, String::new());
                    }
                    continue;
                }
                Some(Said::Freeze) => {
                    // Until whoever holds us is dropped.
                    while said.recv().await.is_some() {}
                    break (1006, String::new());
                }
                Some(Said::Cut) | None => break (1006, String::new()),
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
            heard.change(|heard| heard.frames.push(frame));
            if let (Acks::All, Some(number)) = (acks, number) {
                let ack = json!({"type": "inbound_ack", "bufferId": number});
                // The end is seen by the reader.
                let _ = sink.send(Message::text(format!("{ack}\n"))).await;
            }
        }
    };
    heard.change(|heard| heard.closed = Some(over));
}

/// A call of the wake address.
#[derive(Debug, Clone)]
pub struct Call {
    pub method: String,
    pub path: String,
    pub has_credentials: bool,
    pub body: usize,
}

/// An address that somebody calls.
#[derive(Debug)]
pub struct Alarm {
    server: Server,
    calls: Arc<Watched<Vec<Call>>>,
}

#[derive(Debug, Clone)]
struct Ringing {
    calls: Arc<Watched<Vec<Call>>>,
    leads_to: Option<String>,
}

impl Alarm {
    pub fn start() -> io::Result<Self> {
        Self::answering(None)
    }

    /// One that sends whoever calls elsewhere.
    pub fn leading_to(url: &str) -> io::Result<Self> {
        Self::answering(Some(url.to_owned()))
    }

    fn answering(leads_to: Option<String>) -> io::Result<Self> {
        let calls = Arc::new(Watched::new(vec![]));
        let ringing = Ringing { calls: calls.clone(), leads_to };
        let router = Router::new().fallback(ring).with_state(ringing);
        Ok(Self { server: Server::start(0, router)?, calls })
    }

    pub fn address(&self) -> SocketAddr {
        self.server.addr()
    }

    pub fn url(&self) -> String {
        format!("http://{}/wake?of=this", self.address())
    }

    pub fn calls(&self) -> Vec<Call> {
        self.calls.read(Vec::clone)
    }

    pub fn wait_for(&self, count: usize, timeout: Duration) -> bool {
        self.calls.wait_until(timeout, |calls| (calls.len() >= count).then_some(())).is_some()
    }
}

async fn ring(
    State(ringing): State<Ringing>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: bytes::Bytes,
) -> Response {
    let call = Call {
        method: method.to_string(),
        path: uri.to_string(),
        has_credentials: headers.contains_key("authorization") || headers.contains_key("cookie"),
        body: body.len(),
    };
    ringing.calls.change(|calls| calls.push(call));
    match ringing.leads_to {
        Some(url) => (StatusCode::FOUND, [("location", url)]).into_response(),
        None => StatusCode::OK.into_response(),
    }
}
