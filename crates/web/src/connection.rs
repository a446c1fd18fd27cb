//! One connection. Whatever a caller can make us wait for has its time: the head of a request, its body, and that
//! somebody takes the answer.

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
use petasos_platforms::body_budget::{CALLERS, Charge};
use petasos_platforms::listener::bounded;
use petasos_platforms::seats::Seat;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};
use tower::ServiceExt;
use tracing::debug;

use crate::serve::Stop;

/// How long we wait for a caller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// For the head of a request, from the end of the one before.
    pub(crate) head: Duration,
    /// For the whole body.
    pub(crate) body: Duration,
    /// For a reader who takes nothing of what is sent.
    pub(crate) write: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let (head, body, write) = (15, 60, 30);
        let [head, body, write] = [head, body, write].map(Duration::from_secs);
        Self { head, body, write }
    }
}

/// Answers requests until the caller leaves, is too slow, or `stop` is asked for; what is under way then is finished.
pub(crate) async fn converse<S>(stream: S, router: Router, patience: Patience, mut stop: Stop, seat: Seat)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: axum::http::Request<Incoming>| {
        let charge = Arc::new(Charge::new(&CALLERS));
        let mut request = request.map(|body| Body::new(Hurried::new(body, patience.body, charge.clone())));
        request.extensions_mut().insert(seat.clone());
        let answered = router.clone().oneshot(request);
        async move {
            // A router never fails: it answers.
            let Ok(response) = answered.await;
            drop(charge);
            Ok::<_, Infallible>(response)
        }
    });
    let stream = TokioIo::new(Impatient::new(stream, patience.write));
    let mut conversation = pin!(bounded(patience.head).serve_connection(stream, service));
    let ended = tokio::select! {
        ended = conversation.as_mut() => ended,
        () = stop.asked() => {
            conversation.as_mut().graceful_shutdown();
            conversation.await
        }
    };
    if let Err(error) = ended {
        // Callers may send anything; it is of no interest unless somebody looks for it.
        debug!(%error, "a caller was not served to the end");
    }
}

/// A body that did not come in time.
#[derive(Debug, thiserror::Error)]
#[error("the body did not come in time")]
pub(crate) struct TooSlow;

/// Whether an error is, or is caused by, an `E`.
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

/// A body that has to be there after a while.
struct Hurried {
    body: Incoming,
    within: Duration,
    /// Since somebody had to wait for it.
    late: Option<Pin<Box<Sleep>>>,
    charge: Arc<Charge>,
}

impl Hurried {
    fn new(body: Incoming, within: Duration, charge: Arc<Charge>) -> Self {
        Self { body, within, late: None, charge }
    }

    /// Counts what came.
    fn counted(&self, frame: Result<Frame<Bytes>, hyper::Error>) -> Result<Frame<Bytes>, BoxError> {
        let frame = frame?;
        self.charge.add(frame.data_ref().map_or(0, Bytes::len))?;
        Ok(frame)
    }
}

impl hyper::body::Body for Hurried {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(frame) = polled {
            return Poll::Ready(frame.map(|frame| self.counted(frame)));
        }
        let within = self.within;
        let late = self.late.get_or_insert_with(|| Box::pin(sleep(within)));
        late.as_mut().poll(context).map(|()| Some(Err(TooSlow.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream that fails when nothing of what is written is taken for too long.
struct Impatient<S> {
    stream: S,
    within: Duration,
    /// Since nothing could be written.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Impatient<S> {
    fn new(stream: S, within: Duration) -> Self {
        Self { stream, within, stalled: None }
    }

    fn timed<T>(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stalled = None;
            return polled;
        }
        let within = self.within;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(within)));
        stalled.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.timed(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.timed(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.timed(context, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
