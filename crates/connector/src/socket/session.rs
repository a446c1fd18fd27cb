//! Handles the frames of one socket.

use std::sync::Arc;

use petasos_core::SessionKey;
use petasos_gateway::clock;
use petasos_platforms::Adapter;
use petasos_relay::{Answer, FromConnector, FromGateway, MOST_IDENTITIES, close};
use petasos_store::connector::GatewayCredentials;
use tokio::sync::Semaphore;

use super::{SocketHandle, SocketHandles, descriptor};
use crate::instances::task::InstanceCommand;
use crate::outbound::actions;

const MAX_CONCURRENT: usize = 64;
/// Platform name of a gateway that fronts no platform in particular.
const ANY_PLATFORM: &str = "relay";

pub(super) struct SocketSession {
    handles: Arc<SocketHandles>,
    gateway: Arc<GatewayCredentials>,
    wire: SocketHandle,
    /// Set by the first hello.
    epoch: Option<u64>,
    /// Identities of the hellos, in order.
    identities: Vec<SocketIdentity>,
    requests: Arc<Semaphore>,
}

struct SocketIdentity {
    platform: String,
    bot_id: String,
    adapter: Arc<Adapter>,
}

impl SocketSession {
    pub(super) fn new(handles: Arc<SocketHandles>, gateway: GatewayCredentials, wire: SocketHandle) -> Self {
        let requests = Arc::new(Semaphore::new(MAX_CONCURRENT));
        Self { handles, gateway: Arc::new(gateway), wire, epoch: None, identities: vec![], requests }
    }

    pub(super) const fn has_begun(&self) -> bool {
        self.epoch.is_some()
    }

    pub(super) async fn handle(&mut self, frame: FromGateway) {
        match frame {
            FromGateway::Hello { platform, bot_id, commands: _ } => self.hello(platform, bot_id).await,
            FromGateway::Outbound { request, action, platform, bot_id } => {
                self.outbound(request, action, platform, bot_id);
            }
            FromGateway::Ack { .. } | FromGateway::GoingIdle | FromGateway::Interrupt { .. }
                if self.epoch.is_none() => {}
            FromGateway::Ack { buffer } => self.send(InstanceCommand::Acked { id: buffer }).await,
            FromGateway::GoingIdle => {
                let epoch = self.epoch.unwrap_or_default();
                self.send(InstanceCommand::GoingIdle { epoch }).await;
            }
            FromGateway::Interrupt { session_key, reason: _ } => {
                self.interrupt(SessionKey(session_key)).await
            }
        }
    }

    pub(super) async fn close(self) {
        if let Some(epoch) = self.epoch {
            self.send(InstanceCommand::Closed { epoch }).await;
        }
    }

    async fn hello(&mut self, platform: String, bot_id: String) {
        let Some(adapter) = self.adapter_for(&platform, &bot_id) else {
            tracing::warn!(
                gateway = %self.gateway.id,
                platform,
                "hello for a platform or bot that is not served here"
            );
            if self.identities.is_empty() {
                self.wire.close(close::UNKNOWN_IDENTITY, "");
            }
            return;
        };
        let epoch = match self.epoch {
            Some(epoch) => epoch,
            None => match self.handles.queue.claim(&self.gateway).await {
                Ok(Some(epoch)) => epoch,
                Ok(None) => return self.wire.close(close::UNAUTHORIZED, close::REFUSED),
                Err(error) => {
                    tracing::error!(gateway = %self.gateway.id, %error, "cannot claim the instance");
                    return self.wire.close(close::INTERNAL, "");
                }
            },
        };
        let served = adapter.platform().as_str().to_owned();
        // The descriptor precedes any delivery.
        let descriptor = descriptor::describe(&adapter, self.handles.actions.requests.memory());
        self.wire.send_frame(&FromConnector::descriptor(&descriptor));
        let known = self.identities.iter().any(|it| it.platform == platform && it.bot_id == bot_id);
        if !known && self.identities.len() < MOST_IDENTITIES {
            self.identities.push(SocketIdentity { platform, bot_id, adapter });
        }
        let first = self.epoch.replace(epoch).is_none();
        self.send(InstanceCommand::Hello { epoch, platform: served, wire: self.wire.clone() }).await;
        if first {
            self.recheck_authorisation().await;
        }
    }

    /// Closes the gap between the claim and the first check of this socket by `access_watch`.
    async fn recheck_authorisation(&self) {
        let id = self.gateway.id.clone();
        let now = clock::now();
        match self.handles.db.read(move |reader| reader.gateway(&id, now)).await {
            Ok(Some(_)) => {}
            Ok(None) => self.wire.close(close::UNAUTHORIZED, close::REFUSED),
            Err(error) => {
                tracing::warn!(gateway = %self.gateway.id, %error, "cannot check the authorisation of a gateway");
                self.wire.close(close::INTERNAL, "");
            }
        }
    }

    fn adapter_for(&self, platform: &str, bot_id: &str) -> Option<Arc<Adapter>> {
        let adapters = &self.handles.adapters;
        let adapter = if platform == ANY_PLATFORM { adapters.first() } else { adapters.named(platform) };
        adapter.filter(|adapter| bot_id.is_empty() || adapter.account() == bot_id).cloned()
    }

    /// Spawned, because the reader must not wait for platforms.
    fn outbound(
        &self,
        request: String,
        action: serde_json::Value,
        platform: Option<String>,
        bot_id: Option<String>,
    ) {
        let answer = |answer| FromConnector::Answer { request: request.clone(), answer };
        let adapter = match self.adapter_of(platform.as_deref(), bot_id.as_deref()) {
            Ok(adapter) => adapter,
            Err(reason) => {
                self.wire.send_frame(&answer(Answer::refused(reason)));
                return;
            }
        };
        let Ok(permit) = self.requests.clone().try_acquire_owned() else {
            let busy = Answer { retry_after: Some(1), ..Answer::failed("too many requests at once") };
            self.wire.send_frame(&answer(busy));
            return;
        };
        let handles = self.handles.actions.clone();
        let gateway = self.gateway.clone();
        let wire = self.wire.clone();
        petasos_runtime::spawn(async move {
            let answer = actions::handle(handles, gateway, adapter, request.clone(), action).await;
            if let Ok(line) = (FromConnector::Answer { request, answer }).line() {
                wire.send_when_free(line).await;
            }
            drop(permit);
        });
    }

    /// Only adapters of the gateway's hellos.
    fn adapter_of(&self, platform: Option<&str>, bot_id: Option<&str>) -> Result<Arc<Adapter>, &'static str> {
        let first = self.identities.first().ok_or("no hello received yet")?;
        let Some(platform) = platform else { return Ok(first.adapter.clone()) };
        let matches =
            |it: &&SocketIdentity| it.platform == platform && bot_id.is_none_or(|id| it.bot_id == id);
        if let Some(identity) = self.identities.iter().find(matches) {
            return Ok(identity.adapter.clone());
        }
        // A gateway without a platform learns it from inbound events.
        let any =
            self.identities.iter().any(|it| it.platform == ANY_PLATFORM) && bot_id.is_none_or(str::is_empty);
        let adapter = self.handles.adapters.named(platform).filter(|_| any);
        adapter.cloned().ok_or("no hello on this socket for that platform")
    }

    /// Forwards an interrupt to the instance of the session, if it belongs to the same tenant.
    async fn interrupt(&self, session_key: SessionKey) {
        let tenant = self.gateway.tenant.clone();
        let key = session_key.clone();
        let found = self.handles.db.read(move |reader| reader.session_of(&tenant, &key)).await;
        match found {
            Ok(Some((instance, chat_id))) => {
                let by = self.epoch.filter(|_| instance == self.gateway.instance).unwrap_or_default();
                let command = InstanceCommand::Interrupt { session_key, chat_id, by };
                let _ = self.handles.instances.send(&instance, command).await;
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "cannot forward an interrupt"),
        }
    }

    async fn send(&self, command: InstanceCommand) {
        // Fails only during shutdown.
        let _ = self.handles.instances.send(&self.gateway.instance, command).await;
    }
}
