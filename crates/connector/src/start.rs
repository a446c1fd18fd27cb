//! Startup and shutdown. Shutdown saves nothing: everything acknowledged is on disk already.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use petasos_gateway::shell::{self as gateway, Db, LinkHandle, ShutdownHandle, Writer};
use petasos_gateway::{Error, Lifetime, clock, network};
use petasos_platforms::body_budget;
use petasos_platforms::listener::{BindError, Listener};
use petasos_store::OpenError;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::config::{Config, DATABASE};
use crate::context::{Adapters, ConnectorContext};
use crate::database::{self, OpenedDatabase};
use crate::http::provisioning::ProvisioningLimiter;
use crate::http::routes;
use crate::inbound::sink::ConnectorSink;
use crate::instances::queue::Queue;
use crate::instances::task::Instances;
use crate::instances::wake::WakeClient;
use crate::outbound::requests::RequestTable;
use crate::process::{access_watch, retention, status};
use crate::socket::socket_limit;

/// Shutdown limit for tasks.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// Concurrent sockets that only receive a refusal.
const MAX_REFUSALS: usize = 64;
/// Half of the listener's connections; the other half stays free for short requests.
const MAX_TRANSFERS: usize = 32;

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Listen(#[from] BindError),
    #[error(transparent)]
    Connector(#[from] Error),
}

/// Why a connector stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopCause {
    Requested,
    TaskFailed,
    /// The next start salvages the database.
    DatabaseDamaged,
}

/// Dropping it without `wait` is equivalent to a crash.
#[derive(Debug)]
pub struct RunningConnector {
    address: SocketAddr,
    connector: Arc<ConnectorContext>,
    writer: Writer,
    tasks: Vec<JoinHandle<()>>,
    links: Vec<LinkHandle>,
}

pub async fn start(config: Config) -> Result<RunningConnector, StartError> {
    let listener = Listener::bind(&config.listen).await?.with_budget(&body_budget::GATEWAYS);
    let mut running = assemble(config, listener.address()).await?;
    let serving = serve(listener, running.connector.clone());
    running.tasks.push(gateway::vital("listener", &running.connector.shutdown, serving));
    tracing::info!(address = %running.address, platforms = running.links.len(), "connector listening");
    Ok(running)
}

/// Starts everything except the listener.
async fn assemble(config: Config, address: SocketAddr) -> Result<RunningConnector, StartError> {
    let shutdown = ShutdownHandle::default();
    let path = config.home.join(DATABASE);
    let opened = database::open(&path, config.single_instance.as_deref(), &shutdown).await?;
    let OpenedDatabase { db, writer, stored } = opened;
    let wake_client = WakeClient::new(config.wake_hosts);
    #[cfg(feature = "simulation")]
    let wake_client = wake_client.with_simulated(config.wake);
    let connector = Arc::new(ConnectorContext {
        queue: Queue::new(db.clone()),
        db,
        adapters: Adapters::new(config.adapters),
        access: config.access,
        single: config.single_instance,
        keys: config.keys,
        terms: config.terms,
        wake_client,
        instances: Instances::default(),
        requests: RequestTable::default(),
        requests_unknown_before: stored.requests_unknown_before,
        socket_slots: Arc::new(Semaphore::new(socket_limit::apply(config.max_sockets))),
        refusal_slots: Arc::new(Semaphore::new(MAX_REFUSALS)),
        file_slots: Arc::new(Semaphore::new(MAX_TRANSFERS)),
        concurrency: Arc::default(),
        provisioning: ProvisioningLimiter::default(),
        max_gateways: config.max_gateways,
        silence: config.silence,
        hello_within: config.hello_within,
        url: config.public_url.unwrap_or_else(|| format!("http://{address}")),
        home: config.home,
        shutdown: shutdown.clone(),
    });
    for adapter in connector.adapters.iter() {
        let own = stored.penalties.iter().filter(|penalty| penalty.platform == adapter.platform());
        adapter.limits().restore(clock::now, own.cloned());
    }
    // Wakes instances with a backlog.
    for instance in &stored.instances_with_work {
        connector.instances.mailbox(&connector, instance);
    }
    let lifetime = Lifetime { bot_locks: config.sole, ..Lifetime::default() };
    let (links, mut tasks) = start_links(&connector, &lifetime);
    for adapter in connector.adapters.iter() {
        let persisting =
            gateway::persist_rate_limits(adapter.clone(), connector.db.clone(), shutdown.clone());
        tasks.push(gateway::vital("rate limits", &shutdown, persisting));
    }
    tasks.push(gateway::vital("access watch", &shutdown, access_watch::run(connector.clone())));
    tasks.push(gateway::vital("retention", &shutdown, retention::run(connector.clone())));
    tasks.push(gateway::vital("check", &shutdown, connector.db.clone().check_pages(shutdown.clone())));
    // Links measure waits and silence by the wall clock.
    let network = network::watch(links.clone(), config.outward, shutdown.clone());
    tasks.push(gateway::vital("network", &shutdown, network));
    let publishing = status::run(connector.clone(), links.clone(), address.to_string());
    tasks.push(gateway::vital("status", &shutdown, publishing));
    Ok(RunningConnector { address, connector, writer, tasks, links })
}

/// Starts a connector without a listener.
#[cfg(feature = "simulation")]
pub(crate) async fn start_without_listener(
    config: Config,
) -> Result<(crate::simulation::Door, RunningConnector), StartError> {
    let running = assemble(config, SocketAddr::from(([127, 0, 0, 1], 9))).await?;
    Ok((crate::simulation::Door::new(running.connector.clone()), running))
}

fn start_links(
    connector: &Arc<ConnectorContext>,
    lifetime: &Lifetime,
) -> (Vec<LinkHandle>, Vec<JoinHandle<()>>) {
    let shutdown = &connector.shutdown;
    let each = connector.adapters.iter().map(|adapter| {
        let (link, task) = gateway::supervisor(
            adapter.clone(),
            ConnectorSink(connector.clone()),
            shutdown.clone(),
            lifetime,
        );
        (link, gateway::vital("link", shutdown, task))
    });
    each.unzip()
}

async fn serve(listener: Listener, connector: Arc<ConnectorContext>) {
    let shutdown = connector.shutdown.clone();
    petasos_runtime::select! {
        _never = listener.serve(move |request| routes::handle(connector.clone(), request)) => {}
        () = shutdown.stopped() => {}
    }
}

impl RunningConnector {
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn links(&self) -> &[LinkHandle] {
        &self.links
    }

    /// Waits for `stop`, a failed task, or damage that a restart salvages, then shuts down.
    pub async fn wait(self, stop: impl Future<Output = ()>) -> StopCause {
        let Self { connector, writer, tasks, .. } = self;
        let cause = petasos_runtime::select! {
            () = stop => StopCause::Requested,
            () = connector.shutdown.stopped() => StopCause::TaskFailed,
            () = salvage_due(&connector.db) => StopCause::DatabaseDamaged,
        };
        connector.shutdown.stop();
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, futures_util::future::join_all(tasks)).await.is_err() {
            tracing::warn!("a task did not stop in time");
        }
        connector.db.checkpoint().await;
        drop(connector);
        // Tasks that still hold the database keep its thread alive; the file is complete either way.
        let _ = tokio::time::timeout(Duration::from_secs(1), writer.closed()).await;
        cause
    }
}

/// Resolves when the database is damaged and a restart should salvage it.
async fn salvage_due(db: &Db) {
    let detail = db.damaged().await;
    while let Some(pause) = gateway::pause_before_salvage(db, &detail).await {
        tokio::time::sleep(pause).await;
    }
}
