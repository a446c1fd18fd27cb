//! What a gateway says on one socket, frame by frame.

use std::sync::Arc;

use petasos_gateway::clock;
use petasos_platforms::Adapter;
use petasos_relay::{Answer, FromConnector, FromGateway, MOST_IDENTITIES, close};
use petasos_store::connector::Gateway;
use tokio::sync::Semaphore;

use super::Wire;
use crate::descriptor;
use crate::instance::Ask;
use crate::outbound;
use crate::shell::Shell;

/// Requests of one socket under way at the same time.
const AT_ONCE: usize = 64;
/// What a gateway calls itself that fronts no platform in particular.
const ANY: &str = "relay";

pub(super) struct Conversation {
    shell: Arc<Shell>,
    gateway: Arc<Gateway>,
    wire: Wire,
    /// Since the first hello.
    epoch: Option<u64>,
    /// What was said hello for, the first one first.
    identities: Vec<Identity>,
    requests: Arc<Semaphore>,
}

struct Identity {
    platform: String,
    bot_id: String,
    adapter: Arc<Adapter>,
}

impl Conversation {
    pub(super) fn new(shell: Arc<Shell>, gateway: Gateway, wire: Wire) -> Self {
        let requests = Arc::new(Semaphore::new(AT_ONCE));
        Self { shell, gateway: Arc::new(gateway), wire, epoch: None, identities: vec![], requests }
    }

    pub(super) const fn has_begun(&self) -> bool {
        self.epoch.is_some()
    }

    pub(super) async fn hear(&mut self, frame: FromGateway) {
        match frame {
            FromGateway::Hello { platform, bot_id, commands: _ } => self.hello(platform, bot_id).await,
            FromGateway::Outbound { request, action, platform, bot_id } => {
                self.outbound(request, action, platform, bot_id);
            }
            FromGateway::Ack { .. } | FromGateway::GoingIdle | FromGateway::Interrupt { .. }
                if self.epoch.is_none() => {}
            FromGateway::Ack { buffer } => self.tell(Ask::Acked { id: buffer }).await,
            FromGateway::GoingIdle => {
                let epoch = self.epoch.unwrap_or_default();
                self.tell(Ask::GoingIdle { epoch }).await;
            }
            FromGateway::Interrupt { session_key, reason: _ } => self.interrupt(session_key).await,
        }
    }

    pub(super) async fn over(self) {
        if let Some(epoch) = self.epoch {
            self.tell(Ask::Closed { epoch }).await;
        }
    }

    async fn hello(&mut self, platform: String, bot_id: String) {
        let Some(adapter) = self.adapter_for(&platform, &bot_id) else {
            tracing::warn!(gateway = self.gateway.id, platform, "says hello for what is not served here");
            if self.identities.is_empty() {
                self.wire.close(close::UNKNOWN_IDENTITY, "");
            }
            return;
        };
        let epoch = match self.epoch {
            Some(epoch) => epoch,
            None => match self.shell.queue.claim(&self.gateway).await {
                Ok(Some(epoch)) => epoch,
                Ok(None) => return self.wire.close(close::UNAUTHORIZED, close::REFUSED),
                Err(error) => {
                    tracing::error!(gateway = self.gateway.id, %error, "it cannot be given its instance");
                    return self.wire.close(close::INTERNAL, "");
                }
            },
        };
        let served = adapter.platform().as_str().to_owned();
        // Before anything is delivered on it.
        self.wire.frame(&FromConnector::descriptor(&descriptor::of(&adapter)));
        let known = self.identities.iter().any(|it| it.platform == platform && it.bot_id == bot_id);
        if !known && self.identities.len() < MOST_IDENTITIES {
            self.identities.push(Identity { platform, bot_id, adapter });
        }
        let first = self.epoch.replace(epoch).is_none();
        self.tell(Ask::Hello { epoch, platform: served, wire: self.wire.clone() }).await;
        if first {
            self.look_again().await;
        }
    }

    /// From here on `watch` sees this socket. Whoever was shut out since the claim, it may not have seen.
    async fn look_again(&self) {
        let (id, now) = (self.gateway.id.clone(), clock::now());
        match self.shell.db.read(move |reader| reader.gateway(&id, now)).await {
            Ok(Some(_)) => {}
            Ok(None) => self.wire.close(close::UNAUTHORIZED, close::REFUSED),
            Err(error) => {
                tracing::warn!(gateway = self.gateway.id, %error, "whether it may be here cannot be told");
                self.wire.close(close::INTERNAL, "");
            }
        }
    }

    fn adapter_for(&self, platform: &str, bot_id: &str) -> Option<Arc<Adapter>> {
        let adapters = &self.shell.adapters;
        let adapter = if platform == ANY { adapters.first() } else { adapters.named(platform) };
        adapter.filter(|adapter| bot_id.is_empty() || adapter.account() == bot_id).cloned()
    }

    /// The reader does not wait for platforms.
    fn outbound(
        &self,
        request: String,
        action: serde_json::Value,
        platform: Option<String>,
        bot_id: Option<String>,
    ) {
        let answer = |answer| FromConnector::Answer { request: request.clone(), answer };
        let adapter = match self.through(platform.as_deref(), bot_id.as_deref()) {
            Ok(adapter) => adapter,
            Err(why) => {
                self.wire.frame(&answer(Answer::refused(why)));
                return;
            }
        };
        let Ok(seat) = self.requests.clone().try_acquire_owned() else {
            let busy = Answer { retry_after: Some(1), ..Answer::failed("too many requests at once") };
            self.wire.frame(&answer(busy));
            return;
        };
        let (shell, gateway, wire) = (self.shell.clone(), self.gateway.clone(), self.wire.clone());
        petasos_runtime::spawn(async move {
            let answer = outbound::answer(shell, gateway, adapter, request.clone(), action).await;
            if let Ok(line) = (FromConnector::Answer { request, answer }).line() {
                wire.write_patiently(line).await;
            }
            drop(seat);
        });
    }

    /// No credential but that of what it said hello for.
    fn through(&self, platform: Option<&str>, bot_id: Option<&str>) -> Result<Arc<Adapter>, &'static str> {
        let first = self.identities.first().ok_or("no hello yet")?;
        let Some(platform) = platform else { return Ok(first.adapter.clone()) };
        let said = |it: &&Identity| it.platform == platform && bot_id.is_none_or(|id| it.bot_id == id);
        if let Some(identity) = self.identities.iter().find(said) {
            return Ok(identity.adapter.clone());
        }
        // Whoever fronts nothing in particular learns the platform from what comes in.
        let any = self.identities.iter().any(|it| it.platform == ANY) && bot_id.is_none_or(str::is_empty);
        let adapter = self.shell.adapters.named(platform).filter(|_| any);
        adapter.cloned().ok_or("this socket has said no hello for that platform")
    }

    /// To the instance that runs the session, if it is one of the same tenant and awake.
    async fn interrupt(&self, session_key: String) {
        let (tenant, key) = (self.gateway.tenant.clone(), session_key.clone());
        let found = self.shell.db.read(move |reader| reader.session_of(&tenant, &key)).await;
        match found {
            Ok(Some((instance, chat_id))) => {
                let by = self.epoch.filter(|_| instance == self.gateway.instance).unwrap_or_default();
                let ask = Ask::Interrupt { session_key, chat_id, by };
                // It may be stopping.
                let _ = self.shell.instances.ask(&self.shell, &instance, ask).await;
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "an interrupt is not passed on"),
        }
    }

    async fn tell(&self, ask: Ask) {
        // It ends with the connector.
        let _ = self.shell.instances.ask(&self.shell, &self.gateway.instance, ask).await;
    }
}
