//! A gateway and its two doors (web page on TCP, control socket) as one thing that starts and stops.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use petasos_cli::backup;
use petasos_cli::failure::{Failure, WRITABLE};
use petasos_cli::lock::Lock;
use petasos_cli::socket;
use petasos_config::Home;
use petasos_core::lifecycle::State;
use petasos_gateway::home::api_key;
use petasos_gateway::home::pid::{self, PidFile};
use petasos_gateway::home::{Durable, process::Record, state};
use petasos_gateway::{End, Handle, Running, StartError, clock};
use petasos_web::{ApiKey, ApiOptions, Scope};
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::wire::{Listen, Wired, api::DEFAULT};

/// A started gateway. Dropping it without `wait` leaves everything to the next start's recovery.
#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) handle: Handle,
    /// The page's address, without a token.
    pub(crate) url: Option<String>,
    pub(crate) socket: PathBuf,
    running: Running,
    doors: Vec<JoinHandle<io::Result<()>>>,
    close: watch::Sender<bool>,
    pid: PidFile,
    /// Held until the very end: the next process must find a closed database.
    _lock: Lock,
}

/// Whoever has configured no key for the API finds one in the home.
fn with_keys(home: &Home, mut options: ApiOptions) -> Result<ApiOptions, Failure> {
    if options.keys.is_empty() {
        let secret = api_key::read_or_make(home.path()).map_err(|error| {
            Failure::new(format!("{}: {error}", api_key::path(home.path()).display())).next(WRITABLE)
        })?;
        let (name, scopes) = (DEFAULT.to_owned(), Scope::ALL.into());
        options.keys.push(ApiKey { name, secret, scopes, per_minute: None });
    }
    Ok(options)
}

/// Whoever looks at the status file shall see why there is no gateway.
pub(crate) fn tell_unstartable(home: &Home, failure: &Failure) {
    let published = state::Published {
        record: Record::of_this_process(),
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
        tracing::warn!(%error, "gateway_state.json cannot be written");
    }
}

pub(crate) async fn start(home: &Home, wired: Wired, mut lock: Lock) -> Result<Serving, Failure> {
    // First what can fail for reasons outside: nothing has been promised yet.
    let listener = match &wired.listen {
        Some(listen) => Some(bind(listen).await?),
        None => None,
    };
    let api = wired.api.map(|options| with_keys(home, options)).transpose()?;
    let socket = socket::place(home.path(), |name| std::env::var_os(name));
    socket::prepare(&socket)
        .map_err(|error| Failure::new(format!("no place for the control socket: {error}")))?;
    workspace(&wired.gateway.settings.workspace)?;
    let pid = pid::claim(home.path())
        .map_err(|error| Failure::new(format!("gateway.pid cannot be written: {error}")).next(WRITABLE))?;
    let (handle, running) = petasos_gateway::start(wired.gateway).await.map_err(not_started)?;
    let leaving = {
        let handle = handle.clone();
        async move { handle.leaving().await }
    };
    tokio::spawn(backup::schedule::run(leaving, home.clone(), wired.backup));
    let (close, closing) = watch::channel(false);
    let mut doors = Vec::new();
    let mut url = None;
    if let (Some((listener, address)), Some(listen)) = (listener, &wired.listen) {
        url = Some(address_of(listen, address));
        let hosts = vec![listen.host.clone()];
        let options = petasos_web::Options { hosts, doors: wired.doors, api, pageless: wired.pageless };
        let router = petasos_web::public(handle.clone(), options);
        doors.push(tokio::spawn(petasos_web::serve_tcp(listener, router, closed(closing.clone()))));
    }
    let control = tokio::spawn({
        let (socket, router) = (socket.clone(), petasos_web::control(handle.clone()));
        async move { petasos_web::serve_unix(socket, router, closed(closing)).await }
    });
    doors.push(answering(&socket, control).await?);
    if let Err(error) = lock.announce(&socket, url.as_deref()) {
        tracing::warn!(%error, "gateway.lock does not say where the gateway is");
    }
    Ok(Serving { handle, url, socket, running, doors, close, pid, _lock: lock })
}

impl Serving {
    /// Resolves when everything has stopped, for whatever reason.
    pub(crate) async fn wait(self) -> End {
        let Self { handle, running, doors, close, pid, _lock, .. } = self;
        let closing = {
            let handle = handle.clone();
            async move {
                handle.stopped().await;
                close.send_replace(true);
                drop(handle);
                for door in doors {
                    if let Ok(Err(error)) = door.await {
                        tracing::warn!(%error, "a door closed badly");
                    }
                }
            }
        };
        drop(handle);
        let (end, ()) = tokio::join!(running.wait(), closing);
        if let Err(error) = pid.remove() {
            tracing::warn!(%error, "gateway.pid stays");
        }
        end
    }
}

async fn closed(mut closing: watch::Receiver<bool>) {
    // A sender that is gone has nothing left to serve either.
    let _ = closing.wait_for(|closed| *closed).await;
}

async fn bind(listen: &Listen) -> Result<(TcpListener, SocketAddr), Failure> {
    let Listen { host, port } = listen;
    let bound = TcpListener::bind((host.as_str(), *port)).await;
    let bound = bound.and_then(|listener| listener.local_addr().map(|address| (listener, address)));
    bound.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => {
            Failure::new(format!("port {port} on {host} is in use by another program"))
                .next("stop it, or choose another port: web.port in config.yaml, or API_SERVER_PORT")
        }
        _ => Failure::new(format!("{host}:{port} cannot be listened on: {error}"))
            .next("check web.host and web.port (petasos config explain web.host)"),
    })
}

/// The address to type into a browser on this machine.
fn address_of(listen: &Listen, address: SocketAddr) -> String {
    let host = match address.ip() {
        ip if ip.is_unspecified() => "127.0.0.1".to_owned(),
        _ if listen.host.contains(':') => format!("[{}]", listen.host),
        _ => listen.host.clone(),
    };
    format!("http://{host}:{}", address.port())
}

fn workspace(path: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(path).map_err(|error| {
        Failure::new(format!("the workspace {} cannot be created: {error}", path.display()))
            .next("set agent.workspace to a directory you may write to")
    })
}

fn not_started(error: StartError) -> Failure {
    match error {
        StartError::Model(_) => Failure::configuration(error.to_string()).next("see model in config.yaml"),
        StartError::Open(error) => error.into(),
        StartError::Gateway(_) => Failure::new(error.to_string()).next("petasos doctor looks for the reason"),
    }
}

/// Waits until companions can connect, so that whoever is told of the start can rely on it.
async fn answering(
    socket: &Path,
    control: JoinHandle<io::Result<()>>,
) -> Result<JoinHandle<io::Result<()>>, Failure> {
    for _ in 0..1000 {
        if UnixStream::connect(socket).await.is_ok() {
            return Ok(control);
        }
        if control.is_finished() {
            let reason = match control.await {
                Ok(Ok(())) => "it closed at once".to_owned(),
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            return Err(Failure::new(format!(
                "the control socket {} cannot be opened: {reason}",
                socket.display()
            )));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Err(Failure::new(format!("the control socket {} does not answer", socket.display())))
}
