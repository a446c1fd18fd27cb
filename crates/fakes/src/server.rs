//! The life of a fake: a runtime of its own or a test's, a fixed port, and going down and up again on that port.
//!
//! The fake's state lives outside and survives an outage.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};

use axum::Router;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

use crate::line::{Line, Lines, Listening};

#[derive(Debug)]
pub(crate) struct Server {
    /// `None`: it runs on somebody else's, or is being dropped.
    own: Option<Runtime>,
    runtime: Handle,
    router: Router,
    addr: SocketAddr,
    lines: Lines,
    /// `None`: down. Aborting it closes the listener.
    listener: Mutex<Option<JoinHandle<()>>>,
}

impl Server {
    /// Port 0 picks a free one.
    pub(crate) fn start(port: u16, router: Router) -> io::Result<Self> {
        let runtime =
            Builder::new_multi_thread().worker_threads(2).thread_name("fake").enable_all().build()?;
        let handle = runtime.handle().clone();
        Self::run(port, router, Some(runtime), handle)
    }

    /// On a test's runtime, whose clock may stand still. Only the runtime's thread may drive it.
    pub(crate) fn start_in(runtime: &Handle, router: Router) -> io::Result<Self> {
        Self::run(0, router, None, runtime.clone())
    }

    fn run(port: u16, router: Router, own: Option<Runtime>, runtime: Handle) -> io::Result<Self> {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let addr = socket.local_addr()?;
        let server = Self { own, runtime, router, addr, lines: Lines::default(), listener: Mutex::default() };
        server.listen(socket)?;
        Ok(server)
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Resets every connection and refuses new ones. Gives how many there were.
    pub(crate) fn down(&self) -> usize {
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(listener) = listener {
            listener.abort();
            while !listener.is_finished() {
                std::thread::yield_now(); // the port is refused only once the task has let it go
            }
        }
        self.lines.reset_all()
    }

    /// Listens again on the same port; does nothing when already up.
    pub(crate) fn up(&self) -> io::Result<()> {
        if self.listener.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            return Ok(());
        }
        self.listen(TcpListener::bind(self.addr)?)
    }

    pub(crate) fn reset_connections(&self) -> usize {
        self.lines.reset_all()
    }

    fn listen(&self, socket: TcpListener) -> io::Result<()> {
        socket.set_nonblocking(true)?;
        let _inside = self.runtime.enter();
        let inner = tokio::net::TcpListener::from_std(socket)?;
        let service = self.router.clone().into_make_service_with_connect_info::<Line>();
        let serve = axum::serve(Listening { inner, lines: self.lines.clone() }, service);
        let task = self.runtime.spawn(async move {
            // It never returns: errors of single connections stay theirs.
            let _never = serve.await;
        });
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(listener) = self.listener.lock().unwrap_or_else(PoisonError::into_inner).take() {
            listener.abort();
        }
        self.lines.reset_all();
        if let Some(runtime) = self.own.take() {
            // The ordinary drop would block, and panics inside another runtime.
            runtime.shutdown_background();
        }
    }
}
