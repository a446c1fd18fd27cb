//! Serves one HTTP/1 connection, with timeouts for the request head, the request body and blocked writes.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::{BoxError, Router};
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use petasos_platforms::body_budget::{API_CLIENTS, Charge};
use petasos_platforms::listener::ConnectionSlot;
use petasos_platforms::listener::bounded_http1;
use petasos_runtime::clock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use tower::ServiceExt;
use tracing::debug;

use crate::server::StopSignal;

#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionTimeouts {
    /// For the head of a request, from the end of the previous request.
    pub(crate) head: Duration,
    pub(crate) body: Duration,
    /// For a client that reads nothing of the response.
    pub(crate) write: Duration,
}

impl Default for ConnectionTimeouts {
    fn default() -> Self {
        Self { head: Duration::from_secs(15), body: Duration::from_secs(60), write: Duration::from_secs(30) }
    }
}

/// Serves requests until the client disconnects or times out, or the server stops; a stop lets the current request
/// finish.
pub(crate) async fn serve_connection<S>(
    stream: S,
    router: Router,
    timeouts: ConnectionTimeouts,
    mut stop: StopSignal,
    slot: ConnectionSlot,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: axum::http::Request<Incoming>| {
        let charge = Arc::new(Charge::new(&API_CLIENTS));
        let mut request = request.map(|body| Body::new(TimedBody::new(body, timeouts.body, charge.clone())));
        request.extensions_mut().insert(slot.clone());
        let response = router.clone().oneshot(request);
        async move {
            // The error type of a router is `Infallible`.
            let Ok(response) = response.await;
            drop(charge);
            Ok::<_, Infallible>(response)
        }
    });
    let stream = TokioIo::new(WriteTimeout::new(stream, timeouts.write));
    let mut connection = pin!(bounded_http1(timeouts.head).serve_connection(stream, service));
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = stop.wait() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        // Clients may send anything, so this is no warning.
        debug!(%error, "connection ended with an error");
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the body did not arrive in time")]
pub(crate) struct BodyTimeout;

/// Whether `E` is in the source chain of an error.
pub(crate) fn is_caused_by<E: std::error::Error + 'static>(
    error: &(dyn std::error::Error + 'static),
) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<E>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// A request body with a timeout that charges the memory budget.
struct TimedBody {
    body: Incoming,
    timeout: Duration,
    /// Starts at the first poll that is pending.
    deadline: Option<Pin<Box<Sleep>>>,
    charge: Arc<Charge>,
}

impl TimedBody {
    fn new(body: Incoming, timeout: Duration, charge: Arc<Charge>) -> Self {
        Self { body, timeout, deadline: None, charge }
    }

    fn charge_frame(&self, frame: Result<Frame<Bytes>, hyper::Error>) -> Result<Frame<Bytes>, BoxError> {
        let frame = frame?;
        self.charge.add(frame.data_ref().map_or(0, Bytes::len))?;
        Ok(frame)
    }
}

impl hyper::body::Body for TimedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(frame) = polled {
            return Poll::Ready(frame.map(|frame| self.charge_frame(frame)));
        }
        let timeout = self.timeout;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(clock::sleep(timeout)));
        deadline.as_mut().poll(context).map(|()| Some(Err(BodyTimeout.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream whose writes fail after being blocked for too long.
struct WriteTimeout<S> {
    stream: S,
    timeout: Duration,
    /// Runs while writes are blocked.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    fn new(stream: S, timeout: Duration) -> Self {
        Self { stream, timeout, deadline: None }
    }

    fn with_write_timeout<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.deadline = None;
            return polled;
        }
        let timeout = self.timeout;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(clock::sleep(timeout)));
        deadline.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.with_write_timeout(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.with_write_timeout(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.with_write_timeout(context, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
