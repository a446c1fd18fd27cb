//! TCP connections that a request handler can reset below the HTTP server.

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

/// Resets one connection. Every request carries the handle of its connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct ResetHandle(Arc<ResetFlag>);

#[derive(Debug, Default)]
struct ResetFlag {
    is_reset: AtomicBool,
    waker: AtomicWaker,
}

impl ResetHandle {
    /// Nothing more is written, and the peer gets an RST.
    pub(crate) fn reset(&self) {
        self.0.is_reset.store(true, Ordering::Release);
        self.0.waker.wake();
    }
}

/// All connections of one fake.
#[derive(Debug, Clone, Default)]
pub(crate) struct Connections(Arc<Mutex<Vec<Weak<ResetFlag>>>>);

impl Connections {
    /// Returns the number of connections.
    pub(crate) fn reset_all(&self) -> usize {
        let connections = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        connections.iter().filter_map(Weak::upgrade).map(|flag| ResetHandle(flag).reset()).count()
    }

    fn add(&self, handle: &ResetHandle) {
        let mut connections = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if connections.len() == connections.capacity() {
            connections.retain(|flag| flag.strong_count() > 0);
        }
        connections.push(Arc::downgrade(&handle.0));
    }
}

/// A listener whose connections can be reset.
pub(crate) struct ResettableListener {
    pub(crate) inner: TcpListener,
    pub(crate) connections: Connections,
}

impl Listener for ResettableListener {
    type Io = ResettableStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (ResettableStream, SocketAddr) {
        let (stream, from) = Listener::accept(&mut self.inner).await;
        // Without it the kernel delays small writes; if it fails, tests are only slower.
        let _slower = stream.set_nodelay(true);
        let handle = ResetHandle::default();
        self.connections.add(&handle);
        (ResettableStream { stream, handle }, from)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }
}

impl Connected<IncomingStream<'_, ResettableListener>> for ResetHandle {
    fn connect_info(stream: IncomingStream<'_, ResettableListener>) -> Self {
        stream.io().handle.clone()
    }
}

pub(crate) struct ResettableStream {
    stream: TcpStream,
    handle: ResetHandle,
}

impl ResettableStream {
    fn check(&self) -> io::Result<()> {
        if self.handle.0.is_reset.load(Ordering::Acquire) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(())
    }
}

impl Drop for ResettableStream {
    fn drop(&mut self) {
        if self.check().is_err() {
            // Makes the close an RST; if refused, the peer sees an ordinary close without an answer.
            let _closed_anyway = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for ResettableStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.handle.0.waker.register(cx.waker());
        self.check()?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for ResettableStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
