//! Connections between gateway and connector: bytes arrive late and in order, or not at all. Each end is closed on its
//! own; after a cut an end may never see a close.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use petasos_platforms::simulated::{BoxFuture, Dial, Io};
use petasos_runtime::clock;
use petasos_runtime::simulation::Process;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, oneshot};

use crate::gateway::state::{Outside, State};
use crate::home::Crash;
use crate::outside::Class;
use crate::promise::Promise;

/// Longest time until an end of a cut connection sees the reset, if it sees one.
const NOTICED: u64 = 60_000;
/// The frame that lets a gateway sleep, and one that must not follow it.
const GRANT: &[u8] = b"\"type\":\"going_idle_ack\"";
const DELIVERY: &[u8] = b"\"type\":\"inbound\"";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Gateway,
    Connector,
}

impl Side {
    const BOTH: [Self; 2] = [Self::Gateway, Self::Connector];

    const fn other(self) -> Self {
        match self {
            Self::Gateway => Self::Connector,
            Self::Connector => Self::Gateway,
        }
    }
}

#[derive(Debug)]
pub(super) struct Wire {
    gateway: Half,
    connector: Half,
    /// Nothing is delivered any more.
    cut: bool,
    /// The connector has let the gateway sleep.
    granted: bool,
    /// Signalled when something was sent or an end was closed.
    changed: Arc<Notify>,
}

/// One end of a connection.
#[derive(Debug)]
struct Half {
    process: Process,
    /// The end has not been closed by its process.
    open: bool,
    /// On its way to this end, with the millisecond of its arrival.
    coming: VecDeque<(u64, Piece)>,
    arrived: VecDeque<u8>,
    over: Option<Over>,
    reader: Option<Waker>,
    last_at: u64,
}

#[derive(Debug)]
enum Piece {
    Bytes(Vec<u8>),
    Over(Over),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Closed,
    Reset,
}

impl Half {
    const fn new(process: Process) -> Self {
        Self {
            process,
            open: true,
            coming: VecDeque::new(),
            arrived: VecDeque::new(),
            over: None,
            reader: None,
            last_at: 0,
        }
    }

    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl Wire {
    const fn half(&mut self, side: Side) -> &mut Half {
        match side {
            Side::Gateway => &mut self.gateway,
            Side::Connector => &mut self.connector,
        }
    }
}

impl State {
    fn wire(&mut self, number: u64) -> &mut Wire {
        self.relay().wires.get_mut(&number).expect("a wire that was strung")
    }

    /// Something is written at one end.
    fn send(&mut self, number: u64, from: Side, piece: Piece) {
        if self.wire(number).cut {
            return;
        }
        let mut takes = self.luck.between(1, 300);
        let odds = self.plan.wire_odds;
        if matches!(piece, Piece::Bytes(_)) && self.fails(odds) {
            match self.luck.below(3) {
                0 => {
                    // Slow, not lost.
                    takes += self.luck.between(1_000, 90_000);
                    self.relay().stalls += 1;
                }
                _ => return self.cut(number),
            }
        }
        self.arrives_in(number, from.other(), piece, takes);
    }

    fn arrives_in(&mut self, number: u64, to: Side, piece: Piece, takes: u64) {
        let now = self.elapsed();
        let half = self.wire(number).half(to);
        let at = (now + takes).max(half.last_at + 1);
        half.last_at = at;
        half.coming.push_back((at, piece));
        self.wire(number).changed.notify_one();
    }

    /// When something arrives next. `None`: both ends are closed and nothing is in flight.
    fn next_arrival(&mut self, number: u64) -> Option<u64> {
        let wire = self.wire(number);
        let next =
            Side::BOTH.into_iter().filter_map(|side| wire.half(side).coming.front().map(|(at, _)| *at));
        let next = next.min();
        let over = !wire.gateway.open && !wire.connector.open;
        if over { next } else { next.or(Some(u64::MAX)) }
    }

    /// Delivers what is due at both ends.
    fn arrives(&mut self, number: u64) {
        let now = self.elapsed();
        for side in Side::BOTH {
            let half = self.wire(number).half(side);
            let mut some = false;
            while half.coming.front().is_some_and(|(at, _)| *at <= now)
                && let Some((_, piece)) = half.coming.pop_front()
            {
                some = true;
                match piece {
                    _ if half.over.is_some() => {}
                    Piece::Bytes(bytes) => half.arrived.extend(bytes),
                    Piece::Over(over) => half.over = Some(over),
                }
            }
            if some {
                half.wake();
            }
        }
    }

    /// A cut without a close: each end sees a reset later, or only its own heartbeat finds out.
    fn cut(&mut self, number: u64) {
        self.note(&format!("wire {number} is cut"));
        self.wire(number).cut = true;
        for side in Side::BOTH {
            self.wire(number).half(side).coming.clear();
            if self.luck.chance(700) {
                let takes = self.luck.between(10, NOTICED);
                self.arrives_in(number, side, Piece::Over(Over::Reset), takes);
            }
        }
    }

    /// A process closes its end.
    fn close(&mut self, number: u64, side: Side, over: Over) {
        let half = self.wire(number).half(side);
        if std::mem::replace(&mut half.open, false) {
            self.send(number, side, Piece::Over(over));
            self.wire(number).changed.notify_one();
        }
    }

    /// The operating system closes the connections of a dead process, unless the machine died as well.
    pub(crate) fn close_wires_of(&mut self, process: Process, crash: Crash) {
        let Some(relay) = &self.relay else { return };
        let numbers: Vec<_> = relay.wires.keys().copied().collect();
        for number in numbers {
            for side in Side::BOTH {
                let half = self.wire(number).half(side);
                if half.process != process || !half.open {
                    continue;
                }
                half.open = false;
                if self.luck.chance(200) || crash.is_power_cut() {
                    self.cut(number);
                } else {
                    self.send(number, side, Piece::Over(Over::Reset));
                }
            }
        }
    }

    /// Nothing is delivered behind the grant on the same connection.
    fn look_at_frames(&mut self, number: u64, bytes: &[u8]) -> Result<(), (Promise, String)> {
        let contains = |what: &[u8]| bytes.windows(what.len()).any(|at| at == what);
        if self.wire(number).granted && contains(DELIVERY) {
            return Err((Promise::G1, "something is sent behind the grant".into()));
        }
        if contains(GRANT) {
            self.wire(number).granted = true;
            self.figures.grants += 1;
        }
        Ok(())
    }
}

/// One end of a connection, as its process has it.
#[derive(Debug)]
struct End {
    outside: Outside,
    number: u64,
    side: Side,
}

impl Io for End {}

impl AsyncRead for End {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.outside.lock();
        let now = state.time();
        let half = state.wire(self.number).half(self.side);
        if !half.arrived.is_empty() {
            let count = half.arrived.len().min(to.remaining());
            let bytes: Vec<u8> = half.arrived.drain(..count).collect();
            to.put_slice(&bytes);
            if self.side == Side::Gateway {
                state.heard.insert(Class::Relayed, now);
            }
            return Poll::Ready(Ok(()));
        }
        match half.over {
            Some(Over::Closed) => Poll::Ready(Ok(())),
            Some(Over::Reset) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            None => {
                half.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl AsyncWrite for End {
    fn poll_write(self: Pin<&mut Self>, _context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.outside.lock();
        if state.wire(self.number).half(self.side).over == Some(Over::Reset) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if !state.wire(self.number).half(self.side.other()).open {
            // The other end is closed: its system answers with a reset.
            state.send(self.number, self.side.other(), Piece::Over(Over::Reset));
            return Poll::Ready(Ok(bytes.len()));
        }
        let check = match self.side {
            Side::Connector => state.look_at_frames(self.number, bytes),
            Side::Gateway => Ok(()),
        };
        state.send(self.number, self.side, Piece::Bytes(bytes.to_vec()));
        drop(state);
        self.outside.check(check);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.outside.lock().close(self.number, self.side, Over::Closed);
        Poll::Ready(Ok(()))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let mut state = self.outside.lock();
        // Closing with unread bytes sends a reset.
        let unread = !state.wire(self.number).half(self.side).arrived.is_empty();
        let over = if unread { Over::Reset } else { Over::Closed };
        state.close(self.number, self.side, over);
    }
}

/// How the gateway reaches the connector.
#[derive(Debug)]
pub(super) struct Dialler(pub(super) Outside);

impl Dial for Dialler {
    fn dial(&self, bearer: Option<String>) -> BoxFuture<'_, Result<Box<dyn Io>, Option<u16>>> {
        Box::pin(async move {
            let outside = &self.0;
            let (there, back, fails) = {
                let mut state = outside.lock();
                let odds = state.plan.wire_odds * 4;
                (state.luck.between(5, 200), state.luck.between(5, 200), state.fails(odds))
            };
            clock::sleep(Duration::from_millis(there)).await;
            if fails && outside.lock().luck.chance(300) {
                // No answer at all: the dial has to time out.
                return std::future::pending().await;
            }
            let door = outside.door().filter(|_| !fails).ok_or(None)?;
            let (near, far, process) = outside.string();
            let (answer, answered) = oneshot::channel();
            let simulation = outside.lock().simulation.clone();
            drop(simulation.spawn_in(process, async move {
                let shown = bearer.map(|bearer| format!("Bearer {bearer}"));
                // The dial may have timed out.
                let _ = answer.send(door.open(shown.as_deref(), far).await);
            }));
            let opened = answered.await.map_err(|_gone| None)?;
            clock::sleep(Duration::from_millis(back)).await;
            opened.map_err(Some)?;
            Ok(Box::new(near) as Box<dyn Io>)
        })
    }
}

impl Outside {
    /// Delivers the bytes of a connection when they are due.
    async fn carry(self, number: u64, changed: Arc<Notify>) {
        loop {
            let wait = {
                let mut state = self.lock();
                state.arrives(number);
                let Some(next) = state.next_arrival(number) else { return };
                next.saturating_sub(state.elapsed())
            };
            tokio::select! {
                biased;
                () = changed.notified() => {}
                () = clock::sleep(Duration::from_millis(wait)) => {}
            }
        }
    }

    /// A new connection of the running processes: the gateway's end, the connector's, and the connector's process.
    fn string(&self) -> (End, End, Process) {
        let mut state = self.lock();
        let gateway = state.process();
        let relay = state.relay();
        let number = relay.wires.len() as u64;
        let process = relay.process();
        let gateway = Half::new(gateway);
        let connector = Half::new(process);
        let changed = Arc::new(Notify::new());
        let wire = Wire { gateway, connector, cut: false, granted: false, changed: changed.clone() };
        relay.wires.insert(number, wire);
        let courier = self.clone().carry(number, changed);
        drop(state.simulation.spawn_in(Process::default(), courier));
        let end = |side| End { outside: self.clone(), number, side };
        (end(Side::Gateway), end(Side::Connector), process)
    }
}
