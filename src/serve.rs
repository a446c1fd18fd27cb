//! Starts and stops a gateway together with its web listener and its control socket.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use petasos_cli::backup;
use petasos_cli::failure::{Failure, WRITABLE_ADVICE};
use petasos_cli::lock::Lock;
use petasos_cli::{logs, socket};
use petasos_config::Home;
use petasos_core::lifecycle::State;
use petasos_core::{Redactor, Secret};
use petasos_gateway::home::api_key;
use petasos_gateway::home::permissions;
use petasos_gateway::home::pid::{self, PidFile};
use petasos_gateway::home::{Durable, process::ProcessRecord, state};
use petasos_gateway::{ExitInfo, Handle, RunningGateway, StartError, clock};
use petasos_web::{ApiKey, ApiOptions, Scope};
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::wire::{Listen, Wired, api::DEFAULT};

/// A started gateway. Dropping it without `wait` leaves open work to the recovery of the next start.
#[derive(Debug)]
pub(crate) struct RunningPetasos {
    pub(crate) handle: Handle,
    pub(crate) url: Option<String>,
    pub(crate) socket: PathBuf,
    running: RunningGateway,
    listeners: Vec<JoinHandle<io::Result<()>>>,
    close: watch::Sender<bool>,
    pid: PidFile,
    /// Held until the end: the next process must find a closed database.
    _lock: Lock,
}

/// Adds the API key of the home if none is configured.
fn with_api_key(home: &Home, mut options: ApiOptions) -> Result<ApiOptions, Failure> {
    if options.keys.is_empty() {
        let secret = api_key::read_or_create(home.path()).map_err(|error| {
            Failure::new(format!("{}: {error}", api_key::path(home.path()).display())).next(WRITABLE_ADVICE)
        })?;
        let name = DEFAULT.to_owned();
        let scopes = Scope::ALL.into();
        options.keys.push(ApiKey { name, secret, scopes, per_minute: None });
    }
    Ok(options)
}

/// Records in the state file why the start failed.
pub(crate) fn record_start_failure(home: &Home, failure: &Failure) {
    let published = state::StateFile {
        record: ProcessRecord::of_this_process(),
        state: State::StartupFailed,
        exit_reason: Some(failure.to_string()),
        restart_requested: false,
        active_agents: 0,
        platforms: BTreeMap::new(),
        drain: None,
        restart_drain_timeout: None,
        updated_at: clock::now(),
    };
    if let Err(error) = state::write(home.path(), &published, Durable::Synced) {
        tracing::warn!(%error, "cannot write gateway_state.json");
    }
}

pub(crate) async fn start(home: &Home, mut wired: Wired, mut lock: Lock) -> Result<RunningPetasos, Failure> {
    // First the steps that can fail for external reasons: no message has been accepted yet.
    let listener = match &wired.listen {
        Some(listen) => Some(bind(listen).await?),
        None => None,
    };
    let api = wired.api.map(|options| with_api_key(home, options)).transpose()?;
    let keys = api.iter().flat_map(|options| &options.keys).map(|key| key.secret.expose());
    let redactor = Redactor::new(wired.secrets.iter().map(Secret::expose).chain(keys));
    logs::redact(redactor.clone());
    wired.gateway.redact(redactor);
    let socket = socket::path_for(home.path(), |name| std::env::var_os(name));
    socket::create_directory(&socket).map_err(|error| {
        Failure::new(format!("the directory of the control socket cannot be created: {error}"))
    })?;
    permissions::repair(home.path());
    workspace(&wired.gateway.settings.workspace)?;
    let pid = pid::claim(home.path()).map_err(|error| {
        Failure::new(format!("gateway.pid cannot be written: {error}")).next(WRITABLE_ADVICE)
    })?;
    let (handle, running) = petasos_gateway::start(wired.gateway).await.map_err(start_failure)?;
    let shutdown = {
        let handle = handle.clone();
        async move { handle.shutdown_started().await }
    };
    petasos_runtime::spawn(backup::schedule::run(shutdown, home.clone(), wired.backup));
    let (close, closing) = watch::channel(false);
    let mut listeners = Vec::new();
    let mut url = None;
    if let (Some((listener, address)), Some(listen)) = (listener, &wired.listen) {
        url = Some(address_of(listen, address));
        let hosts = vec![listen.host.clone()];
        let options =
            petasos_web::PublicOptions { hosts, credentials: wired.doors, api, pageless: wired.pageless };
        let router = petasos_web::public(handle.clone(), options);
        listeners.push(petasos_runtime::spawn(petasos_web::serve_tcp(
            listener,
            router,
            until_closed(closing.clone()),
        )));
    }
    let control = petasos_runtime::spawn({
        let socket = socket.clone();
        let router = petasos_web::control(handle.clone());
        async move { petasos_web::serve_unix(socket, router, until_closed(closing)).await }
    });
    listeners.push(wait_for_socket(&socket, control).await?);
    if let Err(error) = lock.publish_endpoints(&socket, url.as_deref()) {
        tracing::warn!(%error, "cannot publish the addresses in gateway.lock");
    }
    Ok(RunningPetasos { handle, url, socket, running, listeners, close, pid, _lock: lock })
}

impl RunningPetasos {
    pub(crate) async fn wait(self) -> ExitInfo {
        let Self { handle, running, listeners, close, pid, _lock, .. } = self;
        let closing = {
            let handle = handle.clone();
            async move {
                handle.stopped().await;
                close.send_replace(true);
                drop(handle);
                for listener in listeners {
                    if let Ok(Err(error)) = listener.await {
                        tracing::warn!(%error, "listener failed while closing");
                    }
                }
            }
        };
        drop(handle);
        let (exit, ()) = tokio::join!(running.wait(), closing);
        if let Err(error) = pid.remove() {
            tracing::warn!(%error, "cannot remove gateway.pid");
        }
        exit
    }
}

async fn until_closed(mut closing: watch::Receiver<bool>) {
    // A dropped sender counts as closed.
    let _ = closing.wait_for(|until_closed| *until_closed).await;
}

async fn bind(listen: &Listen) -> Result<(TcpListener, SocketAddr), Failure> {
    let Listen { host, port } = listen;
    let bound = TcpListener::bind((host.as_str(), *port)).await;
    let bound = bound.and_then(|listener| listener.local_addr().map(|address| (listener, address)));
    bound.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => {
            Failure::new(format!("port {port} on {host} is in use by another program"))
                .next("stop that program, or set another port: web.port in config.yaml, or API_SERVER_PORT")
        }
        _ => Failure::new(format!("{host}:{port} cannot be listened on: {error}"))
            .next("check web.host and web.port (petasos config explain web.host)"),
    })
}

fn address_of(listen: &Listen, address: SocketAddr) -> String {
    let host = match address.ip() {
        ip if ip.is_unspecified() => "127.0.0.1".to_owned(),
        _ if listen.host.contains(':') => format!("[{}]", listen.host),
        _ => listen.host.clone(),
    };
    format!("http://{host}:{}", address.port())
}

fn workspace(path: &Path) -> Result<(), Failure> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| {
        Failure::new(format!("the workspace {} cannot be created: {error}", path.display()))
            .next("set agent.workspace to a writable directory")
    })
}

fn start_failure(error: StartError) -> Failure {
    match error {
        StartError::Model(_) => {
            Failure::configuration(error.to_string()).next("check the section model in config.yaml")
        }
        StartError::Open(error) => error.into(),
        StartError::Gateway(_) => Failure::new(error.to_string()).next("petasos doctor checks for the cause"),
    }
}

/// Waits until clients can connect, before the start is announced.
async fn wait_for_socket(
    socket: &Path,
    control: JoinHandle<io::Result<()>>,
) -> Result<JoinHandle<io::Result<()>>, Failure> {
    for _ in 0..1000 {
        if UnixStream::connect(socket).await.is_ok() {
            return Ok(control);
        }
        if control.is_finished() {
            let reason = match control.await {
                Ok(Ok(())) => "the connection closed at once".to_owned(),
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            return Err(Failure::new(format!(
                "the control socket {} cannot be opened: {reason}",
                socket.display()
            )));
        }
        clock::sleep(Duration::from_millis(1)).await;
    }
    Err(Failure::new(format!("the control socket {} does not answer", socket.display())))
}
