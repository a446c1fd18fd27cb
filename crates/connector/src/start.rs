//! Startup and shutdown: builds the handles of every task. Shutdown saves nothing: everything acknowledged is on disk.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use petasos_core::Millis;
use petasos_core::rate_limit::Penalty;
use petasos_gateway::shell::{self as gateway, Db, LinkHandle, ShutdownHandle, Writer};
use petasos_gateway::{Error, Lifetime, clock, network};
use petasos_platforms::body_budget;
use petasos_platforms::listener::{BindError, Listener};
use petasos_store::OpenError;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::adapters::Adapters;
use crate::config::{Config, DATABASE};
use crate::database::{self, OpenedDatabase};
use crate::http::concurrency::ServerLimits;
use crate::http::files::MediaFiles;
use crate::http::manage::Management;
use crate::http::provisioning::ProvisioningLimiter;
use crate::http::routes::HttpServer;
use crate::inbound::routing::RoutingRules;
use crate::inbound::sink::ConnectorSink;
use crate::instances::queue::Queue;
use crate::instances::task::{InstanceHandles, Instances};
use crate::instances::wake::WakeClient;
use crate::outbound::actions::ActionHandles;
use crate::outbound::requests::RequestTable;
use crate::process::status::StatusWriter;
use crate::process::{access_watch, retention};
use crate::socket::{SocketHandles, SocketTimeouts, socket_limit};

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
    db: Db,
    writer: Writer,
    shutdown: ShutdownHandle,
    tasks: Vec<JoinHandle<()>>,
    links: Vec<LinkHandle>,
}

pub async fn start(config: Config) -> Result<RunningConnector, StartError> {
    let listener = Listener::bind(&config.listen).await?.with_budget(&body_budget::GATEWAYS);
    let (server, mut running) = assemble(config, listener.address()).await?;
    let serving = serve(listener, server, running.shutdown.clone());
    running.tasks.push(gateway::vital("listener", &running.shutdown, serving));
    tracing::info!(address = %running.address, platforms = running.links.len(), "connector listening");
    Ok(running)
}

#[cfg(feature = "simulation")]
pub(crate) async fn start_without_listener(
    config: Config,
) -> Result<(crate::simulation::Door, RunningConnector), StartError> {
    let (server, running) = assemble(config, SocketAddr::from(([127, 0, 0, 1], 9))).await?;
    Ok((crate::simulation::Door::new(server), running))
}

async fn assemble(
    mut config: Config,
    address: SocketAddr,
) -> Result<(Arc<HttpServer>, RunningConnector), StartError> {
    let path = config.home.join(DATABASE);
    let shutdown = ShutdownHandle::default();
    let opened = database::open(&path, config.single_instance.as_ref(), &shutdown).await?;
    let OpenedDatabase { db, writer, stored } = opened;
    let url = config.public_url.take().unwrap_or_else(|| format!("http://{address}"));
    let shared = SharedHandles::new(&mut config, db.clone(), url.clone(), shutdown.clone());
    restore_rate_limits(&stored.penalties, &shared.adapters);
    // Wakes instances with a backlog.
    for instance in &stored.instances_with_work {
        shared.instances.mailbox(instance);
    }
    let server = Arc::new(shared.server(&config, stored.requests_unknown_before));
    let lifetime = Lifetime {
        bot_locks: std::mem::take(&mut config.sole),
        redactor: config.redactor.clone(),
        ..Lifetime::default()
    };
    let (links, mut tasks) = shared.start_links(&config, &lifetime);
    tasks.extend(shared.start_maintenance());
    // Links measure waits and silence by the wall clock.
    let network = network::watch(links.clone(), config.outward, shutdown.clone());
    tasks.push(gateway::vital("network", &shutdown, network));
    let status = StatusWriter {
        db: db.clone(),
        adapters: shared.adapters,
        instances: shared.instances,
        links: links.clone(),
        home: config.home,
        listen: address.to_string(),
        url,
        shutdown: shutdown.clone(),
    };
    tasks.push(gateway::vital("status", &shutdown, status.run()));
    Ok((server, RunningConnector { address, db, writer, shutdown, tasks, links }))
}

/// Restores rate limits imposed on earlier processes.
fn restore_rate_limits(penalties: &[Penalty], adapters: &Adapters) {
    for adapter in adapters.iter() {
        let own = penalties.iter().filter(|penalty| penalty.platform == adapter.platform());
        adapter.limits().restore(clock::now, own.cloned());
    }
}

struct SharedHandles {
    db: Db,
    queue: Queue,
    adapters: Arc<Adapters>,
    media: Arc<MediaFiles>,
    instances: Arc<Instances>,
    shutdown: ShutdownHandle,
}

impl SharedHandles {
    fn new(config: &mut Config, db: Db, url: String, shutdown: ShutdownHandle) -> Self {
        let adapters = Arc::new(Adapters::new(std::mem::take(&mut config.adapters)));
        let queue = Queue::new(db.clone());
        let wake_client = WakeClient::new(std::mem::take(&mut config.wake_hosts));
        #[cfg(feature = "simulation")]
        let wake_client = wake_client.with_simulated(config.wake.take());
        let instances = Instances::new(InstanceHandles {
            queue: queue.clone(),
            adapters: adapters.clone(),
            wake_client: Arc::new(wake_client),
            terms: config.terms,
            shutdown: shutdown.clone(),
        });
        let media = MediaFiles::new(db.clone(), adapters.clone(), &config.home, url);
        Self { db, queue, adapters, media: Arc::new(media), instances: Arc::new(instances), shutdown }
    }

    fn server(&self, config: &Config, requests_unknown_before: Option<Millis>) -> HttpServer {
        let limits = ServerLimits {
            sockets: Arc::new(Semaphore::new(socket_limit::apply(config.max_sockets))),
            refusals: Arc::new(Semaphore::new(MAX_REFUSALS)),
            transfers: Arc::new(Semaphore::new(MAX_TRANSFERS)),
            gateways: Arc::default(),
        };
        let management = Management {
            db: self.db.clone(),
            single: config.single_instance.clone(),
            max_gateways: config.max_gateways,
            provisioning: ProvisioningLimiter::default(),
        };
        let sockets = Arc::new(self.sockets(config, requests_unknown_before));
        HttpServer { db: self.db.clone(), limits, management, media: self.media.clone(), sockets }
    }

    fn sockets(&self, config: &Config, requests_unknown_before: Option<Millis>) -> SocketHandles {
        let actions = ActionHandles {
            db: self.db.clone(),
            requests: RequestTable::new(self.db.clone(), requests_unknown_before),
            media: self.media.clone(),
            single: config.single_instance.clone(),
        };
        SocketHandles {
            db: self.db.clone(),
            queue: self.queue.clone(),
            adapters: self.adapters.clone(),
            instances: self.instances.clone(),
            actions: Arc::new(actions),
            timeouts: SocketTimeouts { silence: config.silence, hello: config.hello_within },
            shutdown: self.shutdown.clone(),
        }
    }

    fn start_links(&self, config: &Config, lifetime: &Lifetime) -> (Vec<LinkHandle>, Vec<JoinHandle<()>>) {
        let rules = RoutingRules {
            access: config.access.clone(),
            single: config.single_instance.clone(),
            keys: config.keys,
        };
        let sink = ConnectorSink {
            db: self.db.clone(),
            adapters: self.adapters.clone(),
            rules: Arc::new(rules),
            media: self.media.clone(),
            instances: self.instances.clone(),
        };
        let each = self.adapters.iter().map(|adapter| {
            let shutdown = self.shutdown.clone();
            let (link, task) = gateway::supervisor(adapter.clone(), sink.clone(), shutdown, lifetime);
            (link, gateway::vital("link", &self.shutdown, task))
        });
        each.unzip()
    }

    /// Saves rate limits, applies changes of other processes, deletes what has expired and checks the database.
    fn start_maintenance(&self) -> Vec<JoinHandle<()>> {
        let Self { db, adapters, shutdown, .. } = self;
        let persist = |adapter: &Arc<_>| {
            let task = gateway::persist_rate_limits(Arc::clone(adapter), db.clone(), shutdown.clone());
            gateway::vital("rate limits", shutdown, task)
        };
        let mut tasks: Vec<_> = adapters.iter().map(persist).collect();
        let watch = access_watch::run(db.clone(), self.instances.clone(), shutdown.clone());
        tasks.push(gateway::vital("access watch", shutdown, watch));
        let retention = retention::run(db.clone(), self.media.folder().to_owned(), shutdown.clone());
        tasks.push(gateway::vital("retention", shutdown, retention));
        tasks.push(gateway::vital("check", shutdown, db.clone().check_pages(shutdown.clone())));
        tasks
    }
}

async fn serve(listener: Listener, server: Arc<HttpServer>, shutdown: ShutdownHandle) {
    let handle = move |request| {
        let server = server.clone();
        async move { server.handle(request).await }
    };
    petasos_runtime::select! {
        _never = listener.serve(handle) => {}
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
        let Self { db, writer, shutdown, tasks, .. } = self;
        let cause = petasos_runtime::select! {
            () = stop => StopCause::Requested,
            () = shutdown.stopped() => StopCause::TaskFailed,
            () = salvage_due(&db) => StopCause::DatabaseDamaged,
        };
        shutdown.stop();
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, futures_util::future::join_all(tasks)).await.is_err() {
            tracing::warn!("a task did not stop in time");
        }
        db.checkpoint().await;
        drop(db);
        // Tasks that still hold the database keep its thread alive; the file is complete either way.
        let _ = tokio::time::timeout(Duration::from_secs(1), writer.closed()).await;
        cause
    }
}

/// Resolves when the database is damaged and a restart should salvage it.
async fn salvage_due(db: &Db) {
    let detail = db.damaged().await;
    while let Some(pause) = gateway::pause_before_salvage(db, &detail).await {
        clock::sleep(pause).await;
    }
}
