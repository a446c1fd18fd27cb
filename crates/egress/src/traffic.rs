//! Byte counts and idle time of connections.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use petasos_runtime::clock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::credentials::SandboxId;
use crate::policy::host_port::HostPort;

/// When bytes last moved on a client's connection or on the connections made for it.
#[derive(Debug)]
pub(crate) struct IdleClock {
    last: Mutex<Instant>,
    /// Work that the connection waits for, such as a question; it is not idle meanwhile.
    pending: AtomicUsize,
}

impl IdleClock {
    pub(crate) fn start() -> Arc<Self> {
        Arc::new(Self { last: Mutex::new(clock::monotonic()), pending: AtomicUsize::new(0) })
    }

    pub(crate) fn touch(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = clock::monotonic();
    }

    /// The connection does not count as idle while the guard exists.
    pub(crate) fn pause(self: &Arc<Self>) -> IdlePause {
        self.pending.fetch_add(1, Ordering::Relaxed);
        IdlePause(self.clone())
    }

    /// Resolves when nothing has moved for `limit`.
    pub(crate) async fn expired(&self, limit: Duration) {
        loop {
            let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
            let paused = self.pending.load(Ordering::Relaxed) > 0;
            let deadline = if paused { clock::monotonic() + limit } else { last + limit };
            if deadline <= clock::monotonic() {
                return;
            }
            tokio::time::sleep_until(deadline).await;
        }
    }
}

#[derive(Debug)]
pub(crate) struct IdlePause(Arc<IdleClock>);

impl Drop for IdlePause {
    fn drop(&mut self) {
        self.0.touch();
        self.0.pending.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The end of a connection that is logged: who reached which host, and how much was moved.
#[derive(Debug)]
pub(crate) struct TrafficLog {
    pub(crate) sandbox: SandboxId,
    pub(crate) to: HostPort,
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
}

impl TrafficLog {
    pub(crate) fn new(sandbox: &SandboxId, to: &HostPort) -> Self {
        Self {
            sandbox: sandbox.clone(),
            to: to.clone(),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
        }
    }
}

impl Drop for TrafficLog {
    fn drop(&mut self) {
        let Self { sandbox, to, sent, received } = self;
        tracing::info!(
            session = sandbox.session(),
            host = %to.host,
            port = to.port,
            sent = *sent.get_mut(),
            received = *received.get_mut(),
            "network connection of a command closed"
        );
    }
}

/// A stream that moves the idle clock and, towards a server, counts bytes.
#[derive(Debug)]
pub(crate) struct Metered<S> {
    inner: S,
    idle: Arc<IdleClock>,
    log: Option<TrafficLog>,
}

impl<S> Metered<S> {
    pub(crate) fn client(inner: S, idle: Arc<IdleClock>) -> Self {
        Self { inner, idle, log: None }
    }

    pub(crate) fn server(inner: S, idle: Arc<IdleClock>, log: TrafficLog) -> Self {
        Self { inner, idle, log: Some(log) }
    }

    fn moved(&self, bytes: usize, counter: fn(&TrafficLog) -> &AtomicU64) {
        if bytes == 0 {
            return;
        }
        self.idle.touch();
        if let Some(log) = &self.log {
            counter(log).fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        self.moved(buffer.filled().len() - before, |log| &log.received);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(context, bytes);
        if let Poll::Ready(Ok(written)) = &polled {
            self.moved(*written, |log| &log.sent);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_expires_after_its_last_byte() {
        let idle = IdleClock::start();
        let begun = clock::monotonic();
        let touching = async {
            clock::sleep(Duration::from_secs(5)).await;
            idle.touch();
        };
        tokio::join!(touching, idle.expired(Duration::from_secs(10)));
        assert_eq!(begun.elapsed().as_secs(), 15);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_waits_for_an_answer_is_not_idle() {
        let idle = IdleClock::start();
        let begun = clock::monotonic();
        let pause = idle.pause();
        let asking = async {
            clock::sleep(Duration::from_secs(95)).await;
            drop(pause);
        };
        tokio::join!(asking, idle.expired(Duration::from_secs(10)));
        assert_eq!(begun.elapsed().as_secs(), 105);
    }
}
