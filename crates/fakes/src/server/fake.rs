//! The handle of a fake and the state it shares with its server: the same for every service.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::Server;
use super::files::StoredFile;
use super::watched::Watched;
use crate::faults::Fault;
use crate::faults::gate::Gate;
use crate::faults::rules::{RuleBuilder, Rules, Side};

/// A fake service. Its methods block, so a test needs no async. Dropping it stops the service and resets its
/// connections.
#[derive(Debug)]
pub struct Fake<S: FakeService> {
    pub(crate) shared: Arc<Shared<S>>,
    pub(crate) server: Server,
    pub(crate) tasks: JoinSet<()>,
}

pub trait FakeService: Sized + 'static {
    /// The state behind the service; it survives outages. Tests read it.
    type State: fmt::Debug + Default;
    /// Effect of a rule on a request; [`std::convert::Infallible`] if the service has no rules.
    type Fault;
    /// How the service identifies a chat.
    type ChatId;
    /// Visible changes, for observers.
    type Change;

    fn router(shared: Arc<Shared<Self>>) -> Router;

    /// Runs once, when the address is known.
    fn init(_fake: &mut Fake<Self>) {}
}

pub trait FileHost: FakeService {
    /// The path of a download, up to the file's name.
    const DOWNLOADS: &'static str;

    fn files(state: &mut Self::State) -> &mut HashMap<String, StoredFile>;
}

type Observer<C> = Arc<dyn Fn(&C) + Send + Sync>;

/// State shared by the handle and the server.
pub struct Shared<S: FakeService> {
    pub(crate) state: Watched<S::State>,
    pub(crate) rules: Rules<S::Fault, S::ChatId>,
    /// Wakes waiting polls and open sockets.
    pub(crate) changed: Notify,
    observers: RwLock<Vec<Observer<S::Change>>>,
}

impl<S: FakeService> fmt::Debug for Shared<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("state", &self.state).finish_non_exhaustive()
    }
}

impl<S: FakeService> Shared<S> {
    fn new() -> Self {
        Self {
            state: Watched::default(),
            rules: Rules::new(),
            changed: Notify::new(),
            observers: RwLock::default(),
        }
    }

    /// Changes the state, then wakes waiting polls and open sockets.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut S::State) -> T) -> T {
        let result = self.state.change(change);
        self.changed.notify_waiters();
        result
    }

    /// Runs outside the lock, so that an observer may push the next message.
    pub(crate) fn notify_observers(&self, change: &S::Change) {
        let observers = self.observers.read().unwrap_or_else(PoisonError::into_inner).clone();
        observers.iter().for_each(|observer| observer(change));
    }
}

impl<S: FakeService> Fake<S> {
    pub fn start() -> io::Result<Self> {
        Self::start_on(0)
    }

    pub fn start_on(port: u16) -> io::Result<Self> {
        Self::serve(|router| Server::start(port, router))
    }

    /// Starts on a test's runtime, whose clock may be paused.
    pub fn start_in(runtime: &Handle) -> io::Result<Self> {
        Self::serve(|router| Server::start_in(runtime, router))
    }

    fn serve(start: impl FnOnce(Router) -> io::Result<Server>) -> io::Result<Self> {
        let shared = Arc::new(Shared::new());
        let server = start(S::router(shared.clone()))?;
        let mut fake = Self { shared, server, tasks: JoinSet::new() };
        S::init(&mut fake);
        Ok(fake)
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.server.addr())
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.server.addr().port()
    }

    /// Resets every connection and refuses new ones until `up`. Returns the number of connections.
    pub fn down(&self) -> usize {
        self.server.down()
    }

    /// Serves again, on the same port and with the same state.
    pub fn up(&self) -> io::Result<()> {
        self.server.up()
    }

    /// Returns the number of connections.
    pub fn reset_connections(&self) -> usize {
        self.server.reset_connections()
    }

    /// Reads the whole state under its lock.
    pub fn read<T>(&self, read: impl FnOnce(&S::State) -> T) -> T {
        self.shared.state.read(read)
    }

    /// Calls `find` now and after every change, until it returns a value or the timeout elapses. The fake is
    /// locked while `find` runs, so `find` must not call the handle.
    pub fn wait_until<T>(&self, timeout: Duration, find: impl FnMut(&S::State) -> Option<T>) -> Option<T> {
        self.shared.state.wait_until(timeout, find)
    }
}

impl<S, E, X> Fake<S>
where
    S: FakeService<Fault = Fault<E, X>>,
{
    /// Starts a rule for a method, `*` for all: `on("sendMessage").chat(1).nth(2).does(fault)`.
    pub fn on(&self, method: impl Into<String>) -> RuleBuilder<'_, S::Fault, S::ChatId> {
        RuleBuilder::new(&self.shared.rules, method.into())
    }

    /// Stops every request of a method until it is released.
    #[must_use]
    pub fn gate(&self, method: impl Into<String>, side: Side) -> Gate {
        self.on(method).gate(side)
    }

    /// The number of requests that met a fault so far.
    #[must_use]
    pub fn faults_applied(&self) -> u64 {
        self.shared.rules.faults_applied()
    }

    /// Releases the requests that `Hang` and `HangAfter` hold now.
    pub fn release_hangs(&self) {
        self.shared.rules.release_hangs();
    }

    /// Removes all rules and releases all hanging requests.
    pub fn clear_faults(&self) {
        self.shared.rules.clear();
    }

    /// Calls `observer` for every change people see, before the bot gets its response. It may use the handle,
    /// and must be quick.
    pub fn observe(&self, observer: impl Fn(&S::Change) + Send + Sync + 'static) {
        let mut observers = self.shared.observers.write().unwrap_or_else(PoisonError::into_inner);
        observers.push(Arc::new(observer));
    }
}

impl<S: FileHost> Fake<S> {
    /// Hosts a file and returns its address.
    pub fn add_file(&self, name: impl Into<String>, content: impl Into<Bytes>) -> String {
        self.host(name.into(), StoredFile::Content(content.into()))
    }

    /// Hosts a redirect to another address.
    pub fn add_redirect(&self, name: impl Into<String>, to: impl Into<String>) -> String {
        self.host(name.into(), StoredFile::Redirect(to.into()))
    }

    fn host(&self, name: String, file: StoredFile) -> String {
        let address = format!("{}{}{name}", self.url(), S::DOWNLOADS);
        self.shared.state.change(|state| S::files(state).insert(name, file));
        address
    }
}
