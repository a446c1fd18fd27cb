//! Putting the parts together.
//!
//! In this order: open the store and recover the state of the previous process (`takeover`), look for a drain marker, start the
//! owners, connect the platforms. What was interrupted goes on as soon as its platform is connected (`resume`). How
//! it all ends is in `running`.

pub(crate) mod boot;
pub(crate) mod quarantine;
pub(crate) mod resume;
pub(crate) mod takeover;

use std::path::Path;
use std::sync::{Arc, OnceLock};

use petasos_agent::mcp::Servers;
use petasos_agent::{Brain, Role, Terminal, Tools};
use petasos_core::Platform;
use petasos_core::message::Delivery;
use petasos_platforms::page::Pages;
use petasos_store::{Candidates, OpenError};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::api::handle::{Handle, Inner};
use crate::api::state_file::Publisher;
use crate::background::completions::Bell;
use crate::background::delegation::{self, Delegation, Means};
use crate::background::hooks::{self, Hooks};
use crate::background::notifications::home_channels::Homes;
use crate::background::processes::Rows;
use crate::background::{completions, cron};
use crate::delivery::reactions::Marks;
use crate::delivery::{Deliver, Outward, Owners};
use crate::home::process::Record;
use crate::inbound::downloads::Fetcher;
use crate::inbound::ingest::{Entrance, Ingest, Rules};
use crate::lifecycle::config::{Config, Settings};
use crate::lifecycle::gate::Gate;
use crate::lifecycle::heartbeat;
use crate::lifecycle::marker_watcher::Lookout;
use crate::lifecycle::shutdown::Stopper;
use crate::lifecycle::shutdown::running::Running;
use crate::lifecycle::startup::boot::World;
use crate::lifecycle::startup::quarantine::Quarantine;
use crate::lifecycle::startup::takeover::{Before, Recovered};
use crate::links::channels::{Channels, Relayed};
use crate::links::idle::Traffic;
use crate::links::supervisor::{self, LinkHandle};
use crate::links::{directory, idle, network, outages, rate_limits, relay};
use crate::runtime::tasks;
use crate::sessions::Shell;
use crate::sessions::approvals::Approvals;
use crate::sessions::errands::Desk;
use crate::sessions::questions::{self, Questions};
use crate::sessions::router::{self, Router};
use crate::storage::restart_counts::{self, Counts};
use crate::storage::{file_loss, retention, salvage, sessions_json, sweep};
use crate::{Error, clock, links};

/// The file in the home that holds everything.
pub const DATABASE: &str = "petasos.db";

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the model is not configured: {0}")]
    Model(#[from] petasos_agent::ConfigError),
    #[error(transparent)]
    Gateway(#[from] Error),
}

pub async fn start(config: Config) -> Result<(Handle, Running), StartError> {
    let started_at = clock::now();
    let brain = Arc::new(Brain::new(config.model)?);
    let stopper = Stopper::default();
    let relayed = Relayed::of(&config.adapters);
    let rules = Arc::new(Rules { access: config.access, keys: config.keys, relayed });
    let channels = Arc::new(Channels::new(config.adapters));
    let homes = config.lifetime.home_channels.iter().map(|home| home.place().route()).collect();
    let world = World { rules: rules.clone(), channels: channels.clone(), homes };
    let before = Before {
        home: &config.home,
        lifetime: &config.lifetime,
        settings: &config.settings,
        notifier: &config.notifier,
        world,
    };
    let Recovered { db, writer, mut booted, hold, processes } =
        takeover::recover(before, &stopper, started_at).await?;
    let held = std::mem::take(&mut booted.held);
    // Before the first lane or link starts.
    rate_limits::restore(&channels, std::mem::take(&mut booted.penalties));
    let own = Record::of_this_process();
    let gate = Gate::new(config.lifetime.session_cap);
    // A drain that was asked for before we came counts before anything starts.
    let lookout = Lookout::new(&config.home, config.lifetime.drain_max_age, gate.clone(), own.clone());
    let (streaming, policy) = (config.settings.streaming.clone(), config.settings.outward_files.clone());
    let owners = Owners { rules: rules.clone(), tiers: config.settings.tiers.clone() };
    let outward =
        Outward::new(db.clone(), channels.clone(), streaming, policy, owners.clone(), stopper.clone());
    let (deliver, delivering) = Deliver::new(outward);
    let delivering = tasks::vital("deliver", &stopper, delivering);
    let (router, asks) = Router::new();
    let (marks, markers) = Marks::new(&channels, &stopper);
    let bell = Bell::default();
    let rows = Rows { db: db.clone(), bell: bell.clone() };
    let questions = Questions::new(db.clone(), deliver.clone(), channels.clone());
    let consent = config.settings.consent.clone();
    let approvals = Arc::new(Approvals::new(db.clone(), brain.clone(), consent, &config.home));
    let (delegation, batches) = Delegation::new(Means {
        db: db.clone(),
        router: router.clone(),
        bell: bell.clone(),
        gate: gate.clone(),
        folder: config.home.join("cache").join("delegation"),
        settings: config.settings.clone(),
        hint: children_hint(&channels),
        model: brain.describe().model,
        window: brain.window().context,
    });
    let tools = tools(&config.home, &config.settings, approvals.clone(), rows)?
        .with_delegation(Arc::new(delegation.clone()));
    let keys = rules.keys;
    let shell = Arc::new_cyclic(|shell| {
        let desk = Arc::new(Desk { shell: shell.clone(), keys, pages: pages() });
        let tools = tools.with_errands(desk).limited(&config.settings.tools);
        Shell {
            fetcher: Fetcher::new(&config.home, config.settings.inward_files.clone()),
            db,
            brain,
            narrowed: config.settings.narrowed.iter().map(|(at, names)| (*at, tools.only(names))).collect(),
            leaf: tools.for_child(Role::Leaf),
            orchestrator: tools.for_child(Role::Orchestrator),
            tools,
            delegation: delegation.clone(),
            approvals,
            questions: questions.clone(),
            owners,
            channels,
            deliver,
            marks,
            router,
            calls: Semaphore::new(config.settings.parallel_calls.max(1)),
            settings: config.settings,
            hooks: hooks(&config.home, &stopper),
            homes: Arc::new(Homes::new(config.lifetime.home_channels.clone())),
            lifetime: config.lifetime,
            home: config.home,
            stopper: stopper.clone(),
            gate,
            started_at,
            counts: Counts::default(),
            runs: crate::api::runs::Desk::new(config.runs),
            ended: Bell::default(),
            quarantine: Quarantine::new(&held),
            traffic: Traffic::new(started_at),
            links: OnceLock::new(),
        }
    });
    let mut running = vec![
        tasks::vital("lookout", &stopper, lookout.run(stopper.clone())),
        tasks::vital("router", &stopper, router::run(shell.clone(), asks)),
        tasks::vital("questions", &stopper, questions::run(questions, stopper.clone())),
        tasks::vital("delegation", &stopper, delegation::run(delegation, batches, stopper.clone())),
        tasks::vital("counts", &stopper, restart_counts::run(shell.clone())),
        tasks::vital("sweep", &stopper, sweep::run(shell.clone())),
        tasks::vital("retention", &stopper, retention::run(shell.clone())),
        tasks::vital("pulse", &stopper, heartbeat::run(shell.clone(), config.notifier.clone())),
    ];
    running.extend(markers.into_iter().map(tokio::spawn));
    for adapter in shell.channels.adapters() {
        let keeping = rate_limits::keep(adapter.clone(), shell.db.clone(), stopper.clone());
        running.push(tasks::vital("rate limits", &stopper, keeping));
    }
    if config.mirror {
        running.push(tasks::vital("mirror", &stopper, sessions_json::run(shell.clone())));
    }
    for lane in booted.due {
        shell.deliver.due(lane).await;
    }
    if let Some(terminal) = shell.tools.terminal() {
        terminal.adopt(processes).await;
    }
    let ingest = Arc::new(Ingest::new(&shell, rules));
    relay::remember(&shell).await;
    let mut links = connect(&shell, &ingest, booted.candidates, &mut running).await;
    links.extend(config.unbuilt.into_iter().map(|it| LinkHandle::unbuilt(it.platform, it.reason)));
    links.sort_by_key(|link| link.name);
    // Set once, here; a session that asks before sees none.
    let _first = shell.links.set(links.clone());
    let watching = links::watch(links.clone(), shell.clone(), config.page);
    running.push(tasks::vital("links", &stopper, watching));
    let schedule = cron::run(shell.clone(), ingest.rules.keys, shell.ended.clone());
    running.push(tasks::vital("cron", &stopper, schedule));
    if !held.is_empty() {
        let releasing = quarantine::run(shell.clone(), held, hold, links.clone());
        running.push(tasks::vital("quarantine", &stopper, releasing));
    }
    let handing_over = completions::run(shell.clone(), bell, links.clone());
    running.push(tasks::vital("completions", &stopper, handing_over));
    running.push(tokio::spawn(idle::run(shell.clone())));
    running.push(tasks::vital("check", &stopper, shell.db.clone().check_pages(stopper.clone())));
    running.push(tasks::vital("salvage", &stopper, salvage::watch(shell.clone())));
    running.push(tasks::vital("file-loss", &stopper, file_loss::run(shell.clone())));
    running.push(tasks::vital("outages", &stopper, outages::run(shell.clone(), links.clone())));
    running.push(tasks::vital(
        "network",
        &stopper,
        network::watch(shell.clone(), links.clone(), config.outward),
    ));
    running.push(tasks::vital("directory", &stopper, directory::run(shell.clone(), links.clone())));
    let publishing = tokio::spawn(Publisher::new(&shell, own.clone(), links.clone()).run());
    shell.hooks.tell(
        "gateway:startup",
        || json!({ "platforms": links.iter().map(|link| link.name.to_string()).collect::<Vec<_>>() }),
    );
    let handle = Handle(Arc::new(Inner { shell: shell.clone(), ingest, links: links.clone() }));
    let running = Running {
        shell,
        own,
        writer,
        tasks: running,
        deliver: delivering,
        publishing,
        links,
        notifier: config.notifier,
        handle: handle.clone(),
    };
    Ok((handle, running))
}

/// Those that can be used; the others are named.
fn hooks(home: &Path, stopper: &Stopper) -> Hooks {
    let (good, broken) = hooks::read(home);
    for hook in broken {
        tracing::warn!(hook = %hook.folder.display(), why = hook.why, "a hook is skipped");
    }
    Hooks::start(good, stopper)
}

/// What a gateway without certificates cannot do, it says when it is asked to.
fn pages() -> Option<Pages> {
    Pages::new().inspect_err(|error| tracing::warn!(%error, "no web pages can be fetched")).ok()
}

/// What a child is told of where it is.
fn children_hint(channels: &Channels) -> String {
    channels.capabilities(Platform::SUBAGENT).hint.clone()
}

/// The terminal is there if it was asked for.
fn tools(home: &Path, settings: &Settings, approvals: Arc<Approvals>, rows: Rows) -> Result<Tools, Error> {
    let tools = Tools::default().with_servers(Servers::start(settings.mcp.clone()));
    let Some(config) = settings.terminal.clone() else { return Ok(tools) };
    let terminal = Terminal::new(config, home, approvals, Arc::new(rows));
    let terminal =
        terminal.map_err(|error| Error::Io(format!("the terminal's folder cannot be made: {error}")))?;
    Ok(tools.with_terminal(Arc::new(terminal)))
}

/// Starts the supervisors, each with what goes on when its platform is there. Page and terminal are always there.
async fn connect(
    shell: &Arc<Shell>,
    ingest: &Arc<Ingest>,
    mut candidates: Candidates,
    running: &mut Vec<JoinHandle<()>>,
) -> Vec<LinkHandle> {
    let mut links = Vec::new();
    for adapter in shell.channels.adapters() {
        let served = |platform: &Platform| shell.channels.is_served_by(*platform, adapter);
        let mut waiting = Vec::new();
        candidates.retain(|platform, of| {
            let served = served(platform);
            if served {
                waiting.append(of);
            }
            !served
        });
        let entrance = Entrance { ingest: ingest.clone(), waiting };
        let (link, task) =
            supervisor::supervisor(adapter.clone(), entrance, shell.stopper.clone(), &shell.lifetime);
        links.push(link);
        running.push(tasks::vital("link", &shell.stopper, task));
    }
    for (platform, candidates) in candidates {
        // A platform that is switched off may come back; until then nothing of it is taken up.
        if shell.channels.capabilities(platform).delivery == Delivery::Pull {
            resume::take_up(ingest, candidates).await;
        }
    }
    links
}
