//! What the adapters of one connector share: its description of the platforms, the way to the task that keeps the
//! connection (`link`), and what was learned of chats.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use petasos_core::{Platform, Source};
use petasos_relay::{Action, Answer, Descriptor, Descriptors, FromGateway};
use reqwest::Client;
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;
use tracing::debug;

use super::control::{self, Credentials};
use super::memory::Memory;
use super::{Config, Error, Identity, Invalid};
use crate::{download, http};

/// What is asked of the task that keeps the connection.
#[derive(Debug)]
pub(super) enum Ask {
    Send(Question),
    GoIdle {
        within: Duration,
        answer: oneshot::Sender<bool>,
    },
    Sleep {
        hold: Option<Duration>,
        answer: oneshot::Sender<bool>,
    },
    Wake,
    /// Whoever is not connected has nobody to tell.
    Tell(FromGateway),
}

/// An action that the connector answers.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) request: String,
    pub(super) line: String,
    /// The chat that it acts on.
    pub(super) chat: (Platform, String),
    pub(super) answer: oneshot::Sender<Result<Answer, Error>>,
}

/// How it is with the connection, for those that follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Down,
    Up,
    Revoked,
}

#[derive(Debug)]
pub(super) struct Wire {
    pub(super) config: Config,
    pub(super) standing: watch::Sender<Standing>,
    /// The number of the link that counts: a newer one takes over.
    pub(super) seat: watch::Sender<u64>,
    pub(super) files: download::Fetcher,
    pub(super) client: Client,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    asks: Option<mpsc::Sender<Ask>>,
    descriptors: Descriptors,
    memory: Memory,
    credentials: Option<Credentials>,
    /// A descriptor came once in this process: we were wanted.
    wanted: bool,
    /// Operations that were asked for and are not offered; said once.
    missing: BTreeSet<&'static str>,
}

const DEPTH: usize = 64;

impl Wire {
    pub(super) fn new(config: Config) -> Result<Self, Invalid> {
        let base = control::base(&config.url).ok_or(Invalid::Address)?;
        let client = http::client(&base, None);
        let client = client.map_err(|error| Invalid::Client(error.without_url().to_string()))?;
        let credentials = config.credentials.clone();
        Ok(Self {
            files: download::Fetcher::new(base, client.clone(), None),
            client,
            config,
            standing: watch::Sender::new(Standing::Down),
            seat: watch::Sender::new(0),
            state: Mutex::new(State { credentials, ..State::default() }),
        })
    }

    /// The way to whoever keeps the connection now.
    pub(super) fn open(&self) -> mpsc::Receiver<Ask> {
        let (asks, asked) = mpsc::channel(DEPTH);
        self.lock().asks = Some(asks);
        asked
    }

    pub(super) fn shut(&self) {
        self.lock().asks = None;
    }

    pub(super) fn descriptor(&self, platform: Platform) -> Option<Descriptor> {
        self.lock().descriptors.of(platform.as_str()).cloned()
    }

    /// `first`: of a connection. It describes everything anew; until it does, what was said last counts.
    pub(super) fn adopt(&self, descriptor: Descriptor, first: bool) {
        let mut state = self.lock();
        if first {
            state.descriptors = Descriptors::default();
        }
        state.descriptors.adopt(descriptor);
        state.wanted = true;
    }

    pub(super) fn wanted(&self) -> bool {
        self.lock().wanted
    }

    pub(super) fn credentials(&self) -> Option<Credentials> {
        self.lock().credentials.clone()
    }

    pub(super) fn adopt_credentials(&self, credentials: Credentials) {
        self.lock().credentials = Some(credentials);
    }

    pub(super) fn learn(&self, source: &Source) {
        self.lock().memory.learn(source);
    }

    pub(super) fn metadata(&self, platform: Platform, chat: &str) -> Map<String, Value> {
        self.lock().memory.metadata(platform, chat)
    }

    /// Remembers whether the connector lets something through to this chat. Only the task that reads the connection
    /// calls it: a decline must not be noted after a message that came later from the same chat.
    pub(super) fn note(&self, (platform, chat): &(Platform, String), answer: &Answer) {
        if answer.success || answer.is_declined() {
            self.lock().memory.note(*platform, chat, answer.is_declined());
        }
    }

    pub(super) fn is_declined(&self, platform: Platform, chat: &str) -> bool {
        self.lock().memory.is_declined(platform, chat)
    }

    pub(super) fn is_first_lack(&self, op: &'static str) -> bool {
        self.lock().missing.insert(op)
    }

    pub(super) fn identity(&self, platform: Platform) -> Option<&Identity> {
        self.config.identities.iter().find(|identity| identity.platform == platform)
    }

    /// Whose credential it is for. What names a permission is for the platform of that one, if we speak for it.
    fn tag(&self, platform: Platform, action: &Action) -> Option<(String, Option<String>)> {
        if let Some(named) = action.named_platform() {
            let identity = self.identity(Platform::parse(named)?)?;
            return Some((named.to_owned(), Some(identity.bot_id.clone())));
        }
        let bot_id = self.identity(platform).map(|identity| identity.bot_id.clone());
        (platform != Platform::relay()).then(|| (platform.as_str().to_owned(), bot_id))
    }

    /// One question, one try. `request`: the number under which the connector may recognise it.
    pub(super) async fn ask(
        &self,
        chat: (Platform, String),
        action: &Action,
        request: String,
    ) -> Result<Answer, Error> {
        let to = self.tag(chat.0, action);
        let line = FromGateway::outbound(request.clone(), action, to).line().map_err(|_| Error::TooLong)?;
        let asks = self.lock().asks.clone().ok_or(Error::NotConnected)?;
        let (answer, answered) = oneshot::channel();
        asks.try_send(Ask::Send(Question { request, line, chat, answer }))
            .map_err(|_| Error::NotConnected)?;
        let within = self.config.answer_timeout;
        match timeout(within, answered).await {
            Ok(Ok(answered)) => answered,
            // The link ended with the question in its hands.
            Ok(Err(_dropped)) => Err(Error::Lost),
            Err(_elapsed) => Err(Error::Unanswered(within)),
        }
    }

    pub(super) async fn go_idle(&self, within: Duration) -> bool {
        let Some(asks) = self.lock().asks.clone() else { return false };
        let (answer, granted) = oneshot::channel();
        let asked = asks.send(Ask::GoIdle { within, answer }).await;
        asked.is_ok() && granted.await.unwrap_or_default()
    }

    pub(super) async fn sleep(&self, hold: Option<Duration>) -> bool {
        let Some(asks) = self.lock().asks.clone() else { return false };
        let (answer, asleep) = oneshot::channel();
        let asked = asks.send(Ask::Sleep { hold, answer }).await;
        asked.is_ok() && asleep.await.unwrap_or_default()
    }

    /// Said, or not: nobody waits for it.
    pub(super) fn tell(&self, frame: FromGateway) {
        let told = self.lock().asks.as_ref().map(|asks| asks.try_send(Ask::Tell(frame)));
        if !matches!(told, Some(Ok(()))) {
            debug!("the connector is not told");
        }
    }

    pub(super) async fn wake(&self) {
        let asks = self.lock().asks.clone();
        if let Some(asks) = asks {
            // A link that is gone does not wake.
            let _gone = asks.send(Ask::Wake).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
