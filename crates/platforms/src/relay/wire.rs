//! State shared by the adapters of one connector: descriptors, the channel to the link task, chat metadata.

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
use super::memory::ChatMemory;
use super::{Config, Error, Identity, RelayConfigError};
use crate::{download, http};

#[derive(Debug)]
pub(super) enum LinkCommand {
    Send(RelayRequest),
    GoIdle {
        within: Duration,
        answer: oneshot::Sender<bool>,
    },
    Sleep {
        hold: Option<Duration>,
        answer: oneshot::Sender<bool>,
    },
    Wake,
    /// Dropped while disconnected.
    Notify(FromGateway),
}

#[derive(Debug)]
pub(super) struct RelayRequest {
    pub(super) request: String,
    pub(super) line: String,
    pub(super) chat: (Platform, String),
    pub(super) answer: oneshot::Sender<Result<Answer, Error>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionState {
    Down,
    Up,
    Revoked,
}

#[derive(Debug)]
pub(super) struct RelayConnection {
    pub(super) config: Config,
    pub(super) connection: watch::Sender<ConnectionState>,
    /// Generation of the current link; a newer one takes over.
    pub(super) link_id: watch::Sender<u64>,
    pub(super) files: download::Fetcher,
    pub(super) client: Client,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    commands: Option<mpsc::Sender<LinkCommand>>,
    descriptors: Descriptors,
    memory: ChatMemory,
    credentials: Option<Credentials>,
    /// A descriptor was received in this process.
    wanted: bool,
    /// Unsupported operations that were logged.
    missing: BTreeSet<&'static str>,
}

const COMMAND_QUEUE: usize = 64;

impl RelayConnection {
    pub(super) fn new(config: Config) -> Result<Self, RelayConfigError> {
        let base = control::base(&config.url).ok_or(RelayConfigError::Address)?;
        let client = http::client(&base, None);
        let client = client.map_err(|error| RelayConfigError::Client(error.without_url().to_string()))?;
        let credentials = config.credentials.clone();
        Ok(Self {
            files: download::Fetcher::new(base, client.clone(), None),
            client,
            config,
            connection: watch::Sender::new(ConnectionState::Down),
            link_id: watch::Sender::new(0),
            state: Mutex::new(State { credentials, ..State::default() }),
        })
    }

    pub(super) fn open(&self) -> mpsc::Receiver<LinkCommand> {
        let (commands, receiver) = mpsc::channel(COMMAND_QUEUE);
        self.lock().commands = Some(commands);
        receiver
    }

    pub(super) fn shut(&self) {
        self.lock().commands = None;
    }

    pub(super) fn descriptor(&self, platform: Platform) -> Option<Descriptor> {
        self.lock().descriptors.of(platform.as_str()).cloned()
    }

    /// `first`: of a connection. It replaces all descriptors; until then the earlier ones count.
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

    /// Records whether the connector accepts messages to this chat. Called only by the reading task, so that a refusal
    /// is not recorded after a later message of the chat.
    pub(super) fn record_answer(&self, (platform, chat): &(Platform, String), answer: &Answer) {
        if answer.success || answer.is_declined() {
            self.lock().memory.record(*platform, chat, answer.is_declined());
        }
    }

    pub(super) fn is_declined(&self, platform: Platform, chat: &str) -> bool {
        self.lock().memory.is_declined(platform, chat)
    }

    pub(super) fn is_first_use_of_missing(&self, op: &'static str) -> bool {
        self.lock().missing.insert(op)
    }

    pub(super) fn identity(&self, platform: Platform) -> Option<&Identity> {
        self.config.identities.iter().find(|identity| identity.platform == platform)
    }

    /// Platform and bot id of a request. A named permission belongs to its platform, if there is an identity for it.
    fn tag(&self, platform: Platform, action: &Action) -> Option<(String, Option<String>)> {
        if let Some(named) = action.named_platform() {
            let identity = self.identity(Platform::parse(named)?)?;
            return Some((named.to_owned(), Some(identity.bot_id.clone())));
        }
        let bot_id = self.identity(platform).map(|identity| identity.bot_id.clone());
        (platform != Platform::relay()).then(|| (platform.as_str().to_owned(), bot_id))
    }

    /// Sends a request once. `request`: its idempotency key.
    pub(super) async fn request(
        &self,
        chat: (Platform, String),
        action: &Action,
        request: String,
    ) -> Result<Answer, Error> {
        let to = self.tag(chat.0, action);
        let line = FromGateway::outbound(request.clone(), action, to).line().map_err(|_| Error::TooLong)?;
        let commands = self.lock().commands.clone().ok_or(Error::NotConnected)?;
        let (answer, answered) = oneshot::channel();
        commands
            .try_send(LinkCommand::Send(RelayRequest { request, line, chat, answer }))
            .map_err(|_| Error::NotConnected)?;
        let within = self.config.answer_timeout;
        match timeout(within, answered).await {
            Ok(Ok(answered)) => answered,
            // The link ended while the request was pending.
            Ok(Err(_dropped)) => Err(Error::Lost),
            Err(_elapsed) => Err(Error::Unanswered(within)),
        }
    }

    pub(super) async fn go_idle(&self, within: Duration) -> bool {
        let Some(commands) = self.lock().commands.clone() else { return false };
        let (answer, granted) = oneshot::channel();
        let sent = commands.send(LinkCommand::GoIdle { within, answer }).await;
        sent.is_ok() && granted.await.unwrap_or_default()
    }

    pub(super) async fn sleep(&self, hold: Option<Duration>) -> bool {
        let Some(commands) = self.lock().commands.clone() else { return false };
        let (answer, asleep) = oneshot::channel();
        let sent = commands.send(LinkCommand::Sleep { hold, answer }).await;
        sent.is_ok() && asleep.await.unwrap_or_default()
    }

    pub(super) fn notify(&self, frame: FromGateway) {
        let sent =
            self.lock().commands.as_ref().map(|commands| commands.try_send(LinkCommand::Notify(frame)));
        if !matches!(sent, Some(Ok(()))) {
            debug!("notification dropped: not connected");
        }
    }

    pub(super) async fn wake(&self) {
        let commands = self.lock().commands.clone();
        if let Some(commands) = commands {
            let _gone = commands.send(LinkCommand::Wake).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
