//! Putting the parts together, and taking them apart. There is no state to save at the end: whatever was promised is on
//! disk before.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use petasos_gateway::Commit;
use petasos_gateway::shell::{self as gateway, LinkHandle, Stopper, Writer};
use petasos_gateway::{Error, Lifetime, clock, network};
use petasos_platforms::body_budget;
use petasos_platforms::listener::{Listener, NotBound};
use petasos_store::{OpenError, Store};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::config::{Config, DATABASE};
use crate::instance::Instances;
use crate::intake::Intake;
use crate::pace::Pace;
use crate::queue::Queue;
use crate::requests::Requests;
use crate::shell::{Adapters, Shell};
use crate::wake::Waker;
use crate::{limits, routes, status, sweep, watch};

/// How long tasks may take to end.
const FAREWELL: Duration = Duration::from_secs(5);
/// Who may be told at the same time that they may not come in.
const STRANGERS: usize = 64;
/// Half of the listener's seats: the other half is for what takes a moment.
const FILES: usize = 32;

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Listen(#[from] NotBound),
    #[error(transparent)]
    Connector(#[from] Error),
}

/// Dropping it without `wait` is a crash like any other.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    shell: Arc<Shell>,
    writer: Writer,
    tasks: Vec<JoinHandle<()>>,
    links: Vec<LinkHandle>,
}

pub async fn start(config: Config) -> Result<Running, StartError> {
    let listener = Listener::bind(&config.listen).await?.with_budget(&body_budget::GATEWAYS);
    let mut running = assemble(config, listener.address()).await?;
    let door = serve(listener, running.shell.clone());
    running.tasks.push(gateway::vital("door", &running.shell.stopper, door));
    tracing::info!(address = %running.address, platforms = running.links.len(), "the connector listens");
    Ok(running)
}

/// Everything but the listener.
async fn assemble(config: Config, address: SocketAddr) -> Result<Running, StartError> {
    let path = config.home.join(DATABASE);
    let opened = petasos_runtime::blocking(move || Store::open_connector(path)).await;
    let store = opened.map_err(|_panicked| Error::Io("opening the database panicked".into()))??;
    let stopper = Stopper::default();
    let (db, writer) = gateway::open(store, stopper.clone())?;
    if let Some(single) = config.single_instance.clone() {
        let now = clock::now();
        db.write(Commit::Connector, move |tx| tx.ensure_single(&single, now)).await?;
    }
    let waker = Waker::new(config.wake_hosts);
    #[cfg(feature = "simulation")]
    let waker = waker.with(config.wake);
    let shell = Arc::new(Shell {
        queue: Queue::new(db.clone()),
        db,
        adapters: Adapters::new(config.adapters),
        access: config.access,
        single: config.single_instance,
        keys: config.keys,
        terms: config.terms,
        waker,
        instances: Instances::default(),
        requests: Requests::default(),
        seats: Arc::new(Semaphore::new(limits::sockets(config.max_sockets))),
        strangers: Arc::new(Semaphore::new(STRANGERS)),
        files: Arc::new(Semaphore::new(FILES)),
        guests: Arc::default(),
        provisioning: Pace::default(),
        max_gateways: config.max_gateways,
        silence: config.silence,
        hello_within: config.hello_within,
        url: config.public_url.unwrap_or_else(|| format!("http://{address}")),
        home: config.home,
        stopper: stopper.clone(),
    });
    restore_rate_limits(&shell).await?;
    // Whoever is owed something is woken, if need be, whether or not anything new comes.
    for instance in shell.db.read(|reader| reader.instances_with_work()).await? {
        shell.instances.mailbox(&shell, &instance);
    }
    let lifetime = Lifetime { sole: config.sole, ..Lifetime::default() };
    let (links, mut tasks) = listen(&shell, &lifetime);
    for adapter in shell.adapters.iter() {
        let keeping = gateway::keep_rate_limits(adapter.clone(), shell.db.clone(), stopper.clone());
        tasks.push(gateway::vital("rate limits", &stopper, keeping));
    }
    tasks.push(gateway::vital("watch", &stopper, watch::run(shell.clone())));
    tasks.push(gateway::vital("sweep", &stopper, sweep::run(shell.clone())));
    tasks.push(gateway::vital("check", &stopper, shell.db.clone().check_pages(stopper.clone())));
    // A link measures its waits and its silence by the wall clock.
    let network = network::watch(links.clone(), config.outward, stopper.clone());
    tasks.push(gateway::vital("network", &stopper, network));
    let publishing = status::run(shell.clone(), links.clone(), address.to_string());
    tasks.push(gateway::vital("status", &stopper, publishing));
    Ok(Running { address, shell, writer, tasks, links })
}

/// A connector without a listener: its sockets come through the door.
#[cfg(feature = "simulation")]
pub(crate) async fn start_given(config: Config) -> Result<(crate::simulation::Door, Running), StartError> {
    let running = assemble(config, SocketAddr::from(([127, 0, 0, 1], 9))).await?;
    Ok((crate::simulation::Door::new(running.shell.clone()), running))
}

/// Puts the rate limits in force that platforms imposed on earlier processes.
async fn restore_rate_limits(shell: &Shell) -> Result<(), Error> {
    let penalties = shell.db.write(Commit::RateLimit, |tx| tx.penalties_in_force(clock::now())).await?;
    for adapter in shell.adapters.iter() {
        let own = penalties.iter().filter(|penalty| penalty.platform == adapter.platform());
        adapter.limits().restore(clock::now, own.cloned());
    }
    Ok(())
}

fn listen(shell: &Arc<Shell>, lifetime: &Lifetime) -> (Vec<LinkHandle>, Vec<JoinHandle<()>>) {
    let stopper = &shell.stopper;
    let each = shell.adapters.iter().map(|adapter| {
        let (link, task) =
            gateway::supervisor(adapter.clone(), Intake(shell.clone()), stopper.clone(), lifetime);
        (link, gateway::vital("link", stopper, task))
    });
    each.unzip()
}

async fn serve(listener: Listener, shell: Arc<Shell>) {
    let stopper = shell.stopper.clone();
    petasos_runtime::select! {
        _never = listener.serve(move |request| routes::answer(shell.clone(), request)) => {}
        () = stopper.stopped() => {}
    }
}

impl Running {
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn links(&self) -> &[LinkHandle] {
        &self.links
    }

    /// Resolves when everything has ended: because of `stop`, or because a part of it failed. `true`: it was asked to.
    pub async fn wait(self, stop: impl Future<Output = ()>) -> bool {
        let Self { shell, writer, tasks, .. } = self;
        petasos_runtime::select! {
            () = stop => {}
            () = shell.stopper.stopped() => {}
        }
        shell.stopper.stop();
        let asked = !shell.stopper.failed();
        if tokio::time::timeout(FAREWELL, futures_util::future::join_all(tasks)).await.is_err() {
            tracing::warn!("something does not end; it is left behind");
        }
        shell.db.fold().await;
        drop(shell);
        // Tasks that hold on to the file keep the thread; it is complete either way.
        let _ = tokio::time::timeout(Duration::from_secs(1), writer.closed()).await;
        asked
    }
}
