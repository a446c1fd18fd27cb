//! A fake model: one server that speaks OpenAI, Anthropic and Ollama, and says what it is told to.
//!
//! Answers come from the script first, then from the responder; without either the model echoes.

mod answer;
mod anthropic;
mod frame;
mod http;
mod ollama;
mod openai;
mod request;
mod speak;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::runtime::Handle;

pub use answer::{Answer, Fault, Point, Quirk, ToolCall, Usage};
pub use request::{Api, Outcome, Request};

use crate::gate::{Door, Gate};
use crate::keep::{Keep, Log};
use crate::server::Server;
use crate::watched::Watched;

/// The handle. Dropping it stops the service and resets its connections.
#[derive(Debug)]
pub struct Model {
    shared: Arc<Shared>,
    server: Server,
}

type Shared = Watched<Desk>;
type Responder = Arc<dyn Fn(&Request) -> Answer + Send + Sync>;

/// Everything the model knows, as `wait_until` shows it.
#[derive(Default)]
pub struct Desk {
    script: std::collections::VecDeque<Answer>,
    responder: Option<Responder>,
    requests: Log<Arc<Request>>,
    gates: Vec<(Point, Arc<Door>)>,
    /// Where hanging answers wait; replaced when released.
    hang: Arc<Door>,
    key: Option<String>,
    models: Vec<String>,
    listings: u64,
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk")
            .field("script", &self.script)
            .field("requests", &self.requests)
            .finish_non_exhaustive()
    }
}

impl Desk {
    /// Chat requests, oldest first.
    pub fn requests(&self) -> impl DoubleEndedIterator<Item = &Arc<Request>> {
        self.requests.iter()
    }

    /// Chat requests ever received, recorded or not.
    #[must_use]
    pub fn request_count(&self) -> u64 {
        self.requests.next()
    }

    /// Scripted answers that nobody has asked for yet.
    #[must_use]
    pub fn unasked(&self) -> usize {
        self.script.len()
    }
}

impl Model {
    /// On a free port.
    pub fn start() -> io::Result<Self> {
        Self::start_on(0)
    }

    pub fn start_on(port: u16) -> io::Result<Self> {
        Self::serve(|router| Server::start(port, router))
    }

    /// On a test's runtime, whose clock may stand still.
    pub fn start_in(runtime: &Handle) -> io::Result<Self> {
        Self::serve(|router| Server::start_in(runtime, router))
    }

    fn serve(start: impl FnOnce(Router) -> io::Result<Server>) -> io::Result<Self> {
        let desk = Desk { models: vec!["fake-model".into()], ..Desk::default() };
        let shared = Arc::new(Watched::new(desk));
        let router = Router::new().fallback(http::serve).with_state(shared.clone());
        Ok(Self { shared, server: start(router)? })
    }

    /// `http://127.0.0.1:PORT`, to be followed by `/v1/...` or `/api/chat`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.server.addr())
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.server.addr().port()
    }

    /// Resets every connection and refuses new ones, until `up`.
    pub fn down(&self) {
        self.server.down();
    }

    pub fn up(&self) -> io::Result<()> {
        self.server.up()
    }

    pub fn reset_connections(&self) {
        self.server.reset_connections();
    }

    /// From now on other keys are refused with 401.
    pub fn expect_key(&self, key: impl Into<String>) {
        let key = key.into();
        self.shared.change(|desk| desk.key = Some(key));
    }

    /// The names `/v1/models` and `/api/tags` list; `fake-model` unless told.
    pub fn models<N: Into<String>>(&self, names: impl IntoIterator<Item = N>) {
        let names = names.into_iter().map(Into::into).collect();
        self.shared.change(|desk| desk.models = names);
    }

    /// Adds an answer to the script; each is given once, in order of arrival.
    pub fn script(&self, answer: Answer) {
        self.shared.change(|desk| desk.script.push_back(answer));
    }

    pub fn script_many(&self, answers: impl IntoIterator<Item = Answer>) {
        let answers: Vec<Answer> = answers.into_iter().collect();
        self.shared.change(|desk| desk.script.extend(answers));
    }

    /// Answers whatever the script leaves.
    pub fn respond(&self, responder: impl Fn(&Request) -> Answer + Send + Sync + 'static) {
        let responder: Responder = Arc::new(responder);
        self.shared.change(|desk| desk.responder = Some(responder));
    }

    /// Stops every answer at this point until released; requests that arrive later, that is.
    #[must_use]
    pub fn gate(&self, point: Point) -> Gate {
        let gate = Gate::new();
        self.shared.change(|desk| desk.gates.push((point, gate.door())));
        gate
    }

    /// Lets go on what `Fault::Hang` holds now.
    pub fn release_hangs(&self) {
        self.shared.change(|desk| std::mem::take(&mut desk.hang)).open();
    }

    /// Forgets the script and the responder, and opens all hangs.
    pub fn clear_script(&self) {
        self.shared.change(|desk| {
            desk.script.clear();
            desk.responder = None;
        });
        self.release_hangs();
    }

    /// Chat requests, oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<Arc<Request>> {
        self.look(|desk| desk.requests().cloned().collect())
    }

    /// How often the list of models was asked for.
    #[must_use]
    pub fn listings(&self) -> u64 {
        self.look(|desk| desk.listings)
    }

    /// One consistent look at everything.
    pub fn look<T>(&self, look: impl FnOnce(&Desk) -> T) -> T {
        self.shared.read(look)
    }

    /// Looks now and after every change, until something is found or time is up. The fake stands still
    /// while `look` runs, and `look` must not call the handle.
    pub fn wait_until<T>(&self, timeout: Duration, look: impl FnMut(&Desk) -> Option<T>) -> Option<T> {
        self.shared.wait_until(timeout, look)
    }

    /// Waits until so many chat requests have ever arrived.
    #[must_use]
    pub fn wait_requests(&self, count: u64, timeout: Duration) -> bool {
        self.wait_until(timeout, |desk| (desk.request_count() >= count).then_some(())).is_some()
    }

    /// How many requests are remembered; `All` unless told.
    pub fn record(&self, keep: Keep) {
        self.shared.change(|desk| desk.requests.keep(keep));
    }

    /// Forgets the requests, not the script.
    pub fn clear(&self) {
        self.shared.change(|desk| desk.requests.clear());
    }
}
