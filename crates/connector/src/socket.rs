//! One socket of a gateway: what it says is handed on in order, and one task writes what it is told.
//!
//! The writer takes lines in the order in which they were queued; that is what the proof of going idle rests on. A
//! socket that says nothing for a while, not even in answer to a ping, is dead. Nothing it says can do worse than be
//! skipped, but for a line that is too long.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use petasos_relay::token::Refused;
use petasos_relay::{FromConnector, FromGateway, LONGEST_READ, Lines, close};
use petasos_store::connector::Gateway;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::shell::Shell;

mod heard;

use heard::Conversation;

/// Lines that may wait to be written: a window's worth of events, and as many answers.
const DEPTH: usize = 512;
/// The same in bytes. Whoever does not read is closed, and what waited comes again.
const MOST_WAITING: usize = 8 << 20;
/// Lines of one socket that are not read, and said to be so; whoever sends more is not worth more words.
const MOST_WORDS: u32 = 10;
/// Every socket has one for as long as it is open, and most of them are silent.
const READ_BUFFER: usize = 4096;
/// How long the other end may take to agree to the end.
const FAREWELL: Duration = Duration::from_secs(2);

/// The way to a socket.
#[derive(Debug, Clone)]
pub(crate) struct Wire {
    pub(crate) gateway: String,
    lines: mpsc::Sender<String>,
    /// Bytes of the lines that wait.
    waiting: Arc<AtomicUsize>,
    over: watch::Sender<Option<(u16, &'static str)>>,
}

impl Wire {
    /// `false`: it takes no more.
    pub(crate) fn write(&self, line: String) -> bool {
        let bytes = line.len();
        if self.waiting.fetch_add(bytes, Ordering::Relaxed) > MOST_WAITING {
            self.waiting.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        let queued = self.lines.try_send(line).is_ok();
        if !queued {
            self.waiting.fetch_sub(bytes, Ordering::Relaxed);
        }
        queued
    }

    /// The same for those who may wait.
    pub(crate) async fn write_patiently(&self, line: String) {
        self.waiting.fetch_add(line.len(), Ordering::Relaxed);
        // A socket that has gone needs no answer.
        let _ = self.lines.send(line).await;
    }

    /// Ends it, ahead of what waits to be written. The first reason counts.
    pub(crate) fn close(&self, code: u16, reason: &'static str) {
        self.over.send_if_modified(|over| {
            let first = over.is_none();
            if first {
                *over = Some((code, reason));
            }
            first
        });
    }

    pub(crate) fn frame(&self, frame: &FromConnector) -> bool {
        match frame.line() {
            Ok(line) => self.write(line),
            // Nothing of ours but an event can be so long, and those are measured before.
            Err(_too_long) => true,
        }
    }
}

/// What is below the socket when the request has become one.
pub(crate) async fn upgraded(upgrading: OnUpgrade) -> Option<TokioIo<Upgraded>> {
    timeout(FAREWELL, upgrading).await.ok()?.ok().map(TokioIo::new)
}

/// What a socket is spoken over.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

/// Keeps the socket until it ends.
pub(crate) async fn serve(shell: Arc<Shell>, io: impl Io, who: Result<Gateway, Refused>) {
    let limits = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .max_message_size(Some(LONGEST_READ))
        .max_frame_size(Some(LONGEST_READ));
    let stream = WebSocketStream::from_raw_socket(io, Role::Server, Some(limits)).await;
    match who {
        Ok(gateway) => converse(shell, stream, gateway).await,
        Err(refused) => refuse(stream, refused).await,
    }
}

/// A gateway learns that it may not come in from the close frame; an HTTP status would tell it to try for ever.
async fn refuse(mut stream: WebSocketStream<impl Io>, refused: Refused) {
    let reason = match refused {
        Refused::Expired => close::EXPIRED,
        Refused::Unauthorized => close::REFUSED,
    };
    let goodbye = async {
        stream.send(Message::Close(Some(farewell(close::UNAUTHORIZED, reason)))).await?;
        while let Some(Ok(_)) = stream.next().await {}
        Ok::<_, Error>(())
    };
    // Whoever does not wait for it has gone already.
    let _ = timeout(FAREWELL, goodbye).await;
}

async fn converse(shell: Arc<Shell>, stream: WebSocketStream<impl Io>, gateway: Gateway) {
    let (sink, stream) = stream.split();
    let (lines, waiting) = mpsc::channel(DEPTH);
    let (over, ending) = watch::channel(None);
    let bytes = Arc::new(AtomicUsize::new(0));
    let wire = Wire { gateway: gateway.id.clone(), lines, waiting: bytes.clone(), over };
    let every = shell.silence / 2;
    let writer = petasos_runtime::spawn(write(sink, waiting, bytes, ending, every));
    let mut conversation = Conversation::new(shell.clone(), gateway, wire.clone());
    read(&shell, stream, &mut conversation, &wire, writer).await;
    conversation.over().await;
}

/// Until either end has had enough.
async fn read<S: Io>(
    shell: &Shell,
    mut stream: SplitStream<WebSocketStream<S>>,
    conversation: &mut Conversation,
    wire: &Wire,
    mut writer: JoinHandle<SplitSink<WebSocketStream<S>, Message>>,
) {
    let mut sink = None;
    let (mut lines, mut skipped) = (Lines::default(), 0_u32);
    let hello_by = Instant::now() + shell.hello_within;
    loop {
        let patience = Instant::now() + shell.silence;
        let until = if conversation.has_begun() { patience } else { patience.min(hello_by) };
        let message = petasos_runtime::select! {
            message = tokio::time::timeout_at(until, stream.next()) => message,
            ended = &mut writer => {
                sink = ended.ok();
                break;
            }
            () = shell.stopper.stopped() => {
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
            Err(_silent) if !conversation.has_begun() && Instant::now() >= hello_by => {
                wire.close(close::NO_HELLO, "");
                break;
            }
            Err(_silent) => {
                tracing::info!(gateway = wire.gateway, "a socket fell silent");
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
                Ok(Some(frame)) => conversation.hear(frame).await,
                Ok(None) => {}
                Err(why) => {
                    skipped = skipped.saturating_add(1);
                    if skipped <= MOST_WORDS {
                        tracing::warn!(gateway = wire.gateway, %why, "a line was skipped");
                    }
                }
            }
        }
    }
    // What is still to be said: a reason to close. An end that we did not want has none.
    wire.close(close::GOING_AWAY, "");
    let quiet = async {
        if sink.is_none() && !writer.is_finished() {
            sink = (&mut writer).await.ok();
        }
        while let Some(Ok(_)) = stream.next().await {}
        // What is no message any more is read, too: a socket that is left with something unread takes our reason with it.
        if let Some(Ok(mut whole)) = sink.map(|sink| stream.reunite(sink)) {
            drain(whole.get_mut()).await;
        }
    };
    if timeout(FAREWELL, quiet).await.is_err() {
        writer.abort();
    }
}

/// Reads to the end and keeps nothing.
async fn drain(raw: &mut (impl AsyncRead + Unpin)) {
    let mut bytes = [0; 4096];
    while raw.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
}

/// The one writer: lines in the order in which they came, pings between them, and the end.
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
            over = ending.wait_for(Option::is_some) => {
                let (code, reason) = over.ok().and_then(|over| *over).unwrap_or((close::GOING_AWAY, ""));
                Message::Close(Some(farewell(code, reason)))
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

fn farewell(code: u16, reason: &'static str) -> CloseFrame {
    CloseFrame { code: CloseCode::from(code), reason: reason.into() }
}
