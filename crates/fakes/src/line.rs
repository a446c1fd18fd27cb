//! One TCP connection that a handler can cut, at the byte it wants, under the HTTP server's feet.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// The scissors for one connection; every request carries them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Line(Arc<Scissors>);

#[derive(Debug, Default)]
struct Scissors {
    cut: AtomicBool,
    waker: AtomicWaker,
}

impl Line {
    /// Resets the connection: nothing more is written, and the peer gets an RST.
    pub(crate) fn reset(&self) {
        self.0.cut.store(true, Ordering::Release);
        self.0.waker.wake();
    }
}

/// All connections of one fake, so that all can be cut at once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<Weak<Scissors>>>>);

impl Lines {
    /// How many there were.
    pub(crate) fn reset_all(&self) -> usize {
        let lines = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        lines.iter().filter_map(Weak::upgrade).map(|line| Line(line).reset()).count()
    }

    fn add(&self, line: &Line) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == lines.capacity() {
            lines.retain(|line| line.strong_count() > 0);
        }
        lines.push(Arc::downgrade(&line.0));
    }
}

/// A listener whose connections can be cut.
pub(crate) struct Listening {
    pub(crate) inner: TcpListener,
    pub(crate) lines: Lines,
}

impl Listener for Listening {
    type Io = Wire;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Wire, SocketAddr) {
        let (stream, from) = Listener::accept(&mut self.inner).await;
        // Without it the kernel holds small writes back; with it failing, tests are only slower.
        let _slower = stream.set_nodelay(true);
        let line = Line::default();
        self.lines.add(&line);
        (Wire { stream, line }, from)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }
}

impl Connected<IncomingStream<'_, Listening>> for Line {
    fn connect_info(stream: IncomingStream<'_, Listening>) -> Self {
        stream.io().line.clone()
    }
}

pub(crate) struct Wire {
    stream: TcpStream,
    line: Line,
}

impl Wire {
    fn whole(&self) -> io::Result<()> {
        if self.line.0.cut.load(Ordering::Acquire) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(())
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if self.whole().is_err() {
            // Makes the close an RST; if refused, the peer sees an ordinary close without an answer.
            let _closed_anyway = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.line.0.waker.register(cx.waker());
        self.whole()?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.whole()?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.whole()?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.whole()?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
