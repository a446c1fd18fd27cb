//! A gateway's WebSocket: a reader handles frames in order, and one writer task sends lines in the order in which they
//! were queued, on which the idle handshake depends. Malformed lines are skipped; a silent socket is closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use petasos_core::GatewayId;
use petasos_gateway::shell::{Db, ShutdownHandle};
use petasos_relay::token::Refused;
use petasos_relay::{FromConnector, FromGateway, LONGEST_READ, Lines, close};
use petasos_runtime::clock;
use petasos_store::connector::GatewayCredentials;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::adapters::Adapters;
use crate::instances::queue::Queue;
use crate::instances::task::Instances;
use crate::outbound::actions::ActionHandles;

mod descriptor;
mod session;
pub(crate) mod socket_limit;

use session::SocketSession;

/// Send queue in lines: a window of events and as many answers.
const SEND_QUEUE_LINES: usize = 512;
/// Send queue in bytes. A slow reader is disconnected; its entries are delivered again.
const SEND_QUEUE_BYTES: usize = 8 << 20;
const MAX_LOGGED_SKIPS: u32 = 10;
/// Small, because every open socket has one and most are silent.
const READ_BUFFER: usize = 4096;
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Handles of the sockets.
#[derive(Debug)]
pub(crate) struct SocketHandles {
    pub(crate) db: Db,
    pub(crate) queue: Queue,
    pub(crate) adapters: Arc<Adapters>,
    pub(crate) instances: Arc<Instances>,
    pub(crate) actions: Arc<ActionHandles>,
    pub(crate) timeouts: SocketTimeouts,
    pub(crate) shutdown: ShutdownHandle,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct SocketTimeouts {
    /// A socket without any frame for this long is closed.
    pub(crate) silence: Duration,
    /// For the first hello.
    pub(crate) hello: Duration,
}

/// One open socket.
#[derive(Debug, Clone)]
pub(crate) struct SocketHandle {
    pub(crate) gateway: GatewayId,
    lines: mpsc::Sender<String>,
    waiting: Arc<AtomicUsize>,
    close: watch::Sender<Option<(u16, &'static str)>>,
}

impl SocketHandle {
    /// `false`: closed or full.
    pub(crate) fn write(&self, line: String) -> bool {
        let bytes = line.len();
        if self.waiting.fetch_add(bytes, Ordering::Relaxed) > SEND_QUEUE_BYTES {
            self.waiting.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        let queued = self.lines.try_send(line).is_ok();
        if !queued {
            self.waiting.fetch_sub(bytes, Ordering::Relaxed);
        }
        queued
    }

    /// Waits for space in the send queue.
    pub(crate) async fn send_when_free(&self, line: String) {
        self.waiting.fetch_add(line.len(), Ordering::Relaxed);
        let _ = self.lines.send(line).await;
    }

    /// Closes ahead of queued lines. The first reason wins.
    pub(crate) fn close(&self, code: u16, reason: &'static str) {
        self.close.send_if_modified(|close| {
            let first = close.is_none();
            if first {
                *close = Some((code, reason));
            }
            first
        });
    }

    pub(crate) fn send_frame(&self, frame: &FromConnector) -> bool {
        match frame.line() {
            Ok(line) => self.write(line),
            // Only events can be too long, and their size was checked before.
            Err(_too_long) => true,
        }
    }
}

pub(crate) async fn await_upgrade(upgrading: OnUpgrade) -> Option<TokioIo<Upgraded>> {
    timeout(CLOSE_TIMEOUT, upgrading).await.ok()?.ok().map(TokioIo::new)
}

pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

pub(crate) async fn serve(
    handles: Arc<SocketHandles>,
    io: impl Io,
    gateway: Result<GatewayCredentials, Refused>,
) {
    let limits = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .max_message_size(Some(LONGEST_READ))
        .max_frame_size(Some(LONGEST_READ));
    let stream = WebSocketStream::from_raw_socket(io, Role::Server, Some(limits)).await;
    match gateway {
        Ok(gateway) => run(handles, stream, gateway).await,
        Err(refused) => refuse(stream, refused).await,
    }
}

/// The gateway reads the reason from the close frame; an HTTP status would make it retry for ever.
async fn refuse(mut stream: WebSocketStream<impl Io>, refused: Refused) {
    let reason = match refused {
        Refused::Expired => close::EXPIRED,
        Refused::Unauthorized => close::REFUSED,
    };
    let closing = async {
        stream.send(Message::Close(Some(close_frame(close::UNAUTHORIZED, reason)))).await?;
        while let Some(Ok(_)) = stream.next().await {}
        Ok::<_, Error>(())
    };
    let _ = timeout(CLOSE_TIMEOUT, closing).await;
}

async fn run(handles: Arc<SocketHandles>, stream: WebSocketStream<impl Io>, gateway: GatewayCredentials) {
    let (sink, stream) = stream.split();
    let (lines, waiting) = mpsc::channel(SEND_QUEUE_LINES);
    let (close, ending) = watch::channel(None);
    let bytes = Arc::new(AtomicUsize::new(0));
    let wire = SocketHandle { gateway: gateway.id.clone(), lines, waiting: bytes.clone(), close };
    let every = handles.timeouts.silence / 2;
    let writer = petasos_runtime::spawn(write(sink, waiting, bytes, ending, every));
    let mut session = SocketSession::new(handles.clone(), gateway, wire.clone());
    read(&handles, stream, &mut session, &wire, writer).await;
    session.close().await;
}

async fn read<S: Io>(
    handles: &SocketHandles,
    mut stream: SplitStream<WebSocketStream<S>>,
    session: &mut SocketSession,
    wire: &SocketHandle,
    mut writer: JoinHandle<SplitSink<WebSocketStream<S>, Message>>,
) {
    let mut sink = None;
    let mut lines = Lines::default();
    let mut skipped = 0_u32;
    let hello_by = clock::monotonic() + handles.timeouts.hello;
    loop {
        let silent_at = clock::monotonic() + handles.timeouts.silence;
        let until = if session.has_begun() { silent_at } else { silent_at.min(hello_by) };
        let message = petasos_runtime::select! {
            message = tokio::time::timeout_at(until, stream.next()) => message,
            ended = &mut writer => {
                sink = ended.ok();
                break;
            }
            () = handles.shutdown.stopped() => {
                wire.close(close::GOING_AWAY, "");
                break;
            }
        };
        let bytes = match message {
            Ok(Some(Ok(Message::Text(text)))) => text.as_bytes().to_vec(),
            Ok(Some(Ok(Message::Binary(bytes)))) => bytes.to_vec(),
            Ok(Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)))) => continue,
            Ok(Some(Ok(Message::Close(_)))) | Ok(None) => break,
            Ok(Some(Err(Error::Capacity(_)))) => {
                wire.close(close::TOO_BIG, "");
                break;
            }
            Ok(Some(Err(_broken))) => break,
            Err(_silent) if !session.has_begun() && clock::monotonic() >= hello_by => {
                wire.close(close::NO_HELLO, "");
                break;
            }
            Err(_silent) => {
                tracing::info!(gateway = %wire.gateway, "socket timed out");
                writer.abort();
                return;
            }
        };
        let Ok(complete) = lines.push(&bytes) else {
            wire.close(close::TOO_BIG, "");
            break;
        };
        for line in complete {
            match FromGateway::read(&line) {
                Ok(Some(frame)) => session.handle(frame).await,
                Ok(None) => {}
                Err(reason) => {
                    skipped = skipped.saturating_add(1);
                    if skipped <= MAX_LOGGED_SKIPS {
                        tracing::warn!(gateway = %wire.gateway, %reason, "malformed line skipped");
                    }
                }
            }
        }
    }
    // No effect if a reason was given before.
    wire.close(close::GOING_AWAY, "");
    let closing = async {
        if sink.is_none() && !writer.is_finished() {
            sink = (&mut writer).await.ok();
        }
        while let Some(Ok(_)) = stream.next().await {}
        // Unread bytes would reset the connection and lose the close frame.
        if let Some(Ok(mut whole)) = sink.map(|sink| stream.reunite(sink)) {
            drain(whole.get_mut()).await;
        }
    };
    if timeout(CLOSE_TIMEOUT, closing).await.is_err() {
        writer.abort();
    }
}

async fn drain(raw: &mut (impl AsyncRead + Unpin)) {
    let mut bytes = [0; 4096];
    while raw.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
}

/// Sends lines in order, pings between them, and the close frame.
async fn write<S: Io>(
    mut sink: SplitSink<WebSocketStream<S>, Message>,
    mut lines: mpsc::Receiver<String>,
    waiting: Arc<AtomicUsize>,
    mut ending: watch::Receiver<Option<(u16, &'static str)>>,
    every: Duration,
) -> SplitSink<WebSocketStream<S>, Message> {
    let mut pings = tokio::time::interval(every);
    pings.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let message = petasos_runtime::select! {
            biased;
            closing = ending.wait_for(Option::is_some) => {
                let (code, reason) = closing.ok().and_then(|close| *close).unwrap_or((close::GOING_AWAY, ""));
                Message::Close(Some(close_frame(code, reason)))
            }
            line = lines.recv() => match line {
                Some(line) => {
                    waiting.fetch_sub(line.len(), Ordering::Relaxed);
                    Message::text(line)
                }
                None => return sink,
            },
            _tick = pings.tick() => Message::Ping(Vec::new().into()),
        };
        let last = matches!(message, Message::Close(_));
        if sink.send(message).await.is_err() || last {
            return sink;
        }
    }
}

fn close_frame(code: u16, reason: &'static str) -> CloseFrame {
    CloseFrame { code: CloseCode::from(code), reason: reason.into() }
}
