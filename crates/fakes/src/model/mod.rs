//! A fake model: one server for the protocols of OpenAI, Anthropic and Ollama.
//!
//! Answers come from the script first, then from the responder; without either the model echoes.

mod answer;
mod anthropic;
mod frame;
mod http;
mod ollama;
mod openai;
mod protocol;
mod request;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;

pub use answer::{Answer, Fault, Point, Quirk, ToolCall, Usage};
pub use request::{ChatRequest, ModelApi, RequestOutcome};

use crate::faults::gate::{Barrier, Gate};
use crate::server::fake::{Fake, FakeService};
use crate::server::log::{Log, Retention};

/// A fake model; its requests go to `url()` + `/v1/...` or `/api/chat`.
pub type Model = Fake<ModelServer>;

type Shared = crate::server::fake::Shared<ModelServer>;

#[derive(Debug)]
pub struct ModelServer;

impl FakeService for ModelServer {
    type State = State;
    type Fault = Infallible;
    type ChatId = Infallible;
    type Change = Infallible;

    fn router(shared: Arc<Shared>) -> Router {
        Router::new().fallback(http::serve).with_state(shared)
    }

    fn init(model: &mut Model) {
        model.set_models(["fake-model"]);
    }
}

type Responder = Arc<dyn Fn(&ChatRequest) -> Answer + Send + Sync>;

/// The state of the fake: its script and the recorded requests.
#[derive(Default)]
pub struct State {
    script: VecDeque<Answer>,
    responder: Option<Responder>,
    requests: Log<Arc<ChatRequest>>,
    gates: Vec<(Point, Arc<Barrier>)>,
    /// Where answers hang; replaced on release.
    hang: Arc<Barrier>,
    key: Option<String>,
    models: Vec<String>,
    listings: u64,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("script", &self.script)
            .field("requests", &self.requests)
            .finish_non_exhaustive()
    }
}

impl State {
    pub fn requests(&self) -> impl DoubleEndedIterator<Item = &Arc<ChatRequest>> {
        self.requests.iter()
    }

    /// Chat requests ever received, still on record or not.
    #[must_use]
    pub fn request_count(&self) -> u64 {
        self.requests.next()
    }

    /// Scripted answers that no request has used yet.
    #[must_use]
    pub fn unused_answers(&self) -> usize {
        self.script.len()
    }
}

impl Model {
    /// Refuses other keys with 401 from now on.
    pub fn expect_key(&self, key: impl Into<String>) {
        let key = key.into();
        self.shared.state.change(|state| state.key = Some(key));
    }

    /// Sets the names in `/v1/models` and `/api/tags`; `fake-model` by default.
    pub fn set_models<N: Into<String>>(&self, names: impl IntoIterator<Item = N>) {
        let names = names.into_iter().map(Into::into).collect();
        self.shared.state.change(|state| state.models = names);
    }

    /// Adds an answer to the script; each is used once, in order of arrival.
    pub fn script(&self, answer: Answer) {
        self.shared.state.change(|state| state.script.push_back(answer));
    }

    pub fn script_many(&self, answers: impl IntoIterator<Item = Answer>) {
        let answers: Vec<Answer> = answers.into_iter().collect();
        self.shared.state.change(|state| state.script.extend(answers));
    }

    /// Sets the answers to requests after the script.
    pub fn respond(&self, responder: impl Fn(&ChatRequest) -> Answer + Send + Sync + 'static) {
        let responder: Responder = Arc::new(responder);
        self.shared.state.change(|state| state.responder = Some(responder));
    }

    /// Stops the answers to later requests at this point until they are released.
    #[must_use]
    pub fn gate(&self, point: Point) -> Gate {
        let gate = Gate::new();
        self.shared.state.change(|state| state.gates.push((point, gate.barrier())));
        gate
    }

    /// Releases the answers that `Fault::Hang` holds now.
    pub fn release_hangs(&self) {
        self.shared.state.change(|state| std::mem::take(&mut state.hang)).open();
    }

    /// Clears the script and the responder, and releases hanging answers.
    pub fn clear_script(&self) {
        self.shared.state.change(|state| {
            state.script.clear();
            state.responder = None;
        });
        self.release_hangs();
    }

    #[must_use]
    pub fn requests(&self) -> Vec<Arc<ChatRequest>> {
        self.read(|state| state.requests().cloned().collect())
    }

    #[must_use]
    pub fn listings(&self) -> u64 {
        self.read(|state| state.listings)
    }

    /// Waits until this many chat requests have arrived.
    #[must_use]
    pub fn wait_requests(&self, count: u64, timeout: Duration) -> bool {
        self.wait_until(timeout, |state| (state.request_count() >= count).then_some(())).is_some()
    }

    /// Sets how many requests are kept; by default all.
    pub fn set_retention(&self, retention: Retention) {
        self.shared.state.change(|state| state.requests.set_retention(retention));
    }

    pub fn clear(&self) {
        self.shared.state.change(|state| state.requests.clear());
    }
}
