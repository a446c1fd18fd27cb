//! The HTTP server of a fake: its runtime, its port, and outages on that port.
//!
//! The state of the service lives outside and survives an outage.

pub(crate) mod fake;
pub(crate) mod files;
pub(crate) mod log;
pub(crate) mod reset;
pub(crate) mod watched;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};

use axum::Router;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

use reset::{Connections, ResetHandle, ResettableListener};

#[derive(Debug)]
pub struct Server {
    /// `None` on a test's runtime, or while being dropped.
    own: Option<Runtime>,
    runtime: Handle,
    router: Router,
    addr: SocketAddr,
    connections: Connections,
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

    /// Starts on a test's runtime, whose clock may be paused. Only the runtime's thread may drive it.
    pub(crate) fn start_in(runtime: &Handle, router: Router) -> io::Result<Self> {
        Self::run(0, router, None, runtime.clone())
    }

    fn run(port: u16, router: Router, own: Option<Runtime>, runtime: Handle) -> io::Result<Self> {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let addr = socket.local_addr()?;
        let server = Self {
            own,
            runtime,
            router,
            addr,
            connections: Connections::default(),
            listener: Mutex::default(),
        };
        server.listen(socket)?;
        Ok(server)
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Resets every connection and refuses new ones. Returns the number of connections.
    pub(crate) fn down(&self) -> usize {
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(listener) = listener {
            listener.abort();
            while !listener.is_finished() {
                std::thread::yield_now(); // the task owns the listening socket until it ends
            }
        }
        self.connections.reset_all()
    }

    /// Listens again on the same port; does nothing when already up.
    pub(crate) fn up(&self) -> io::Result<()> {
        if self.listener.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            return Ok(());
        }
        self.listen(TcpListener::bind(self.addr)?)
    }

    pub(crate) fn reset_connections(&self) -> usize {
        self.connections.reset_all()
    }

    fn listen(&self, socket: TcpListener) -> io::Result<()> {
        socket.set_nonblocking(true)?;
        let _inside = self.runtime.enter();
        let inner = tokio::net::TcpListener::from_std(socket)?;
        let service = self.router.clone().into_make_service_with_connect_info::<ResetHandle>();
        let serve = axum::serve(ResettableListener { inner, connections: self.connections.clone() }, service);
        let task = self.runtime.spawn(async move {
            // Never returns: an error of one connection does not end it.
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
        self.connections.reset_all();
        if let Some(runtime) = self.own.take() {
            // The ordinary drop would block, and panics inside another runtime.
            runtime.shutdown_background();
        }
    }
}
