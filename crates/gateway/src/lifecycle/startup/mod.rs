//! Startup: builds a gateway from its configuration.
//!
//! In this order: open the store and recover the state of the previous process (`takeover`), check for a drain marker,
//! start the tasks, connect the platforms. Interrupted work is resumed as soon as its platform is connected (`resume`).
//! Shutdown is in `running`.

pub(crate) mod boot;
pub(crate) mod quarantine;
pub(crate) mod resume;
pub(crate) mod takeover;
mod tasks;

use std::path::Path;
use std::sync::Arc;

use petasos_agent::mcp::McpServers;
use petasos_agent::{ModelChain, Terminal, Tools};
use petasos_core::Platform;
use petasos_core::message::Delivery;
use petasos_platforms::page::PageFetcher;
use petasos_store::{OpenError, ResumeCandidates};
use serde_json::json;

use crate::api::handle::{Handle, HandleInner};
use crate::api::runs::RunLimiter;
use crate::api::state_file::StatePublisher;
use crate::background::completions::WakeSignal;
use crate::background::cron::Jobs;
use crate::background::delegation::{self, Delegation, DelegationContext};
use crate::background::hooks::{self, Hooks};
use crate::background::notifications::Notifications;
use crate::background::notifications::home_channels::HomeChannels;
use crate::background::processes::ProcessLedger;
use crate::delivery::reactions::ReactionQueues;
use crate::delivery::{self, LaneContext, LaneDispatcher, Owners};
use crate::home::process::ProcessRecord;
use crate::inbound::downloads::Downloader;
use crate::inbound::ingest::{GatewaySink, Ingest, IngestRules};
use crate::lifecycle::Lifecycle;
use crate::lifecycle::config::{Config, Settings};
use crate::lifecycle::gate::AcceptGate;
use crate::lifecycle::marker_watcher::MarkerWatcher;
use crate::lifecycle::shutdown::ShutdownHandle;
use crate::lifecycle::shutdown::running::RunningGateway;
use crate::lifecycle::startup::boot::RecoveryContext;
use crate::lifecycle::startup::quarantine::Quarantine;
use crate::lifecycle::startup::takeover::{RecoveredState, RecoveryInputs};
use crate::links::channels::{Channels, RelayedPlatforms};
use crate::links::idle::Traffic;
use crate::links::supervisor::{self, LinkHandle};
use crate::links::{rate_limits, relay};
use crate::runtime;
use crate::sessions::approvals::Approvals;
use crate::sessions::errands;
use crate::sessions::questions::{self, Questions};
use crate::sessions::router::{self, Router};
use crate::sessions::{AgentHandles, Handles, PeopleHandles};
use crate::storage::sessions_json;
use crate::{Error, clock};
use tasks::TaskSet;

/// The database file in the home.
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

pub async fn start(config: Config) -> Result<(Handle, RunningGateway), StartError> {
    let started_at = clock::now();
    let model_chain = Arc::new(ModelChain::new(config.model)?);
    let shutdown = ShutdownHandle::default();
    let relayed = RelayedPlatforms::of(&config.adapters);
    let rules = Arc::new(IngestRules { access: config.access, keys: config.keys, relayed });
    let channels = Arc::new(Channels::new(config.adapters));
    let homes = config.lifetime.home_channels.iter().map(|home| home.address().route()).collect();
    let context = RecoveryContext { rules: rules.clone(), channels: channels.clone(), homes };
    let inputs = RecoveryInputs {
        home: &config.home,
        lifetime: &config.lifetime,
        settings: &config.settings,
        notifier: &config.notifier,
        context,
    };
    let RecoveredState { db, writer, mut booted, hold, processes } =
        takeover::recover(inputs, &shutdown, started_at).await?;
    let held = std::mem::take(&mut booted.held);
    // Before the first lane or link starts.
    rate_limits::restore(&channels, std::mem::take(&mut booted.penalties));
    let own = ProcessRecord::of_this_process();
    let gate = AcceptGate::new(config.lifetime.session_cap);
    // A drain marker from before the start counts before anything else starts.
    let marker_watcher =
        MarkerWatcher::new(&config.home, config.lifetime.drain_max_age, gate.clone(), own.clone());
    let streaming = config.settings.streaming.clone();
    let policy = config.settings.attachments.clone();
    let owners = Owners { rules: rules.clone(), tiers: config.settings.tiers.clone() };
    let redactor = config.settings.redactor.clone();
    let lane_context = LaneContext::new(
        db.clone(),
        channels.clone(),
        streaming,
        policy,
        owners.clone(),
        redactor,
        shutdown.clone(),
    );
    let (lanes, delivering) = LaneDispatcher::new(lane_context);
    let delivering = runtime::tasks::vital("deliver", &shutdown, delivering);
    let (router, asks) = Router::new();
    let (marks, markers) = ReactionQueues::new(&channels, &shutdown);
    let wake = WakeSignal::default();
    let rows = ProcessLedger { db: db.clone(), wake: wake.clone() };
    let questions = Questions::new(db.clone(), lanes.clone(), channels.clone());
    let approval_settings = config.settings.approvals.clone();
    let approvals =
        Arc::new(Approvals::new(db.clone(), model_chain.clone(), approval_settings, &config.home));
    let (delegation, batches) = Delegation::new(DelegationContext {
        db: db.clone(),
        router: router.clone(),
        wake: wake.clone(),
        gate: gate.clone(),
        folder: config.home.join("cache").join("delegation"),
        settings: config.settings.clone(),
        hint: subagent_hint(&channels),
        model: model_chain.describe().model,
        window: model_chain.window().context,
    });
    let home = config.home;
    let settings = Arc::new(config.settings);
    let lifetime = Arc::new(config.lifetime);
    let notifications = Notifications {
        db: db.clone(),
        channels: channels.clone(),
        lanes: lanes.clone(),
        homes: Arc::new(HomeChannels::new(lifetime.home_channels.clone())),
        home: home.clone(),
        settings: settings.clone(),
        lifetime: lifetime.clone(),
        shutdown: shutdown.clone(),
    };
    let jobs = Jobs {
        db: db.clone(),
        router: router.clone(),
        settings: settings.clone(),
        wake: WakeSignal::default(),
    };
    let errands_runner = errands::ErrandRunner {
        db: db.clone(),
        notifications: notifications.clone(),
        jobs: jobs.clone(),
        keys: rules.keys,
        pages: pages(),
    };
    let tools =
        tools(&home, &settings, approvals.clone(), rows)?.with_delegation(Arc::new(delegation.clone()));
    #[cfg(feature = "simulation")]
    let tools = match model_chain.simulated_tools() {
        Some(simulated) => tools.with_simulated(simulated, approvals.clone()),
        None => tools,
    };
    let tools = tools.with_gateway_tools(Arc::new(errands_runner)).limited(&settings.tools);
    let traffic = Traffic::new(started_at);
    let handles = Arc::new(Handles {
        downloader: Arc::new(Downloader::new(&home, settings.downloads.clone())),
        agent: AgentHandles::new(model_chain, tools, delegation.clone(), &settings),
        people: PeopleHandles { approvals, questions: questions.clone(), owners },
        delivery: delivery::DeliveryHandles { lanes, reactions: marks },
        lifecycle: Lifecycle {
            gate,
            shutdown: shutdown.clone(),
            lifetime,
            started_at,
            counts: Arc::default(),
            quarantine: Arc::new(Quarantine::new(&held)),
            links: Arc::default(),
        },
        hooks: hooks(&home, &shutdown),
        runs: RunLimiter::new(config.runs),
        db,
        home,
        settings,
        channels,
        router,
        notifications,
        jobs,
    });
    let mut tasks = TaskSet::new(&shutdown);
    tasks.vital("marker_watcher", marker_watcher.run(shutdown.clone()));
    tasks.vital("router", router::run(handles.clone(), asks));
    tasks.vital("questions", questions::run(questions, shutdown.clone()));
    tasks.vital("delegation", delegation::run(delegation, batches, shutdown.clone()));
    tasks.spawn_optional(markers);
    tasks.start_maintenance(&handles, &config.notifier);
    if config.mirror {
        let db = handles.db.clone();
        let home = handles.home.clone();
        tasks.vital("mirror", sessions_json::run(db, home, shutdown.clone()));
    }
    for lane in booted.due {
        handles.delivery.lanes.wake(lane).await;
    }
    if let Some(terminal) = handles.agent.tools.terminal() {
        terminal.adopt(processes).await;
    }
    let ingest = Arc::new(Ingest {
        db: handles.db.clone(),
        router: handles.router.clone(),
        lanes: handles.delivery.lanes.clone(),
        channels: handles.channels.clone(),
        homes: handles.notifications.homes.clone(),
        gate: handles.lifecycle.gate.clone(),
        traffic: traffic.clone(),
        rules,
    });
    relay::restore_chats(&handles.channels, &handles.db).await;
    let mut links = connect(&handles, &ingest, booted.candidates, &mut tasks).await;
    links.extend(config.unbuilt.into_iter().map(|it| LinkHandle::unavailable(it.platform, it.reason)));
    links.sort_by_key(|link| link.name);
    // Set only here; sessions see no links before.
    let _first = handles.lifecycle.links.set(links.clone());
    tasks.follow_links(&handles, &links, config.page, config.outward);
    tasks.watch_database(&handles);
    tasks.start_background(&handles, &links, ingest.rules.keys, wake);
    tasks.start_quarantine(&handles, &links, held, hold);
    tasks.sleep_when_idle(&handles, traffic);
    let publisher = StatePublisher::new(&handles.lifecycle, handles.home.clone(), own.clone(), links.clone());
    let publishing = petasos_runtime::spawn(publisher.run());
    handles.hooks.notify(
        "gateway:startup",
        || json!({ "platforms": links.iter().map(|link| link.name.to_string()).collect::<Vec<_>>() }),
    );
    let handle = Handle(Arc::new(HandleInner { handles: handles.clone(), ingest, links: links.clone() }));
    let running = RunningGateway {
        handles,
        own,
        writer,
        tasks: tasks.into_handles(),
        deliver: delivering,
        publishing,
        links,
        notifier: config.notifier,
        handle: handle.clone(),
    };
    Ok((handle, running))
}

fn hooks(home: &Path, shutdown: &ShutdownHandle) -> Hooks {
    let (good, broken) = hooks::read(home);
    for hook in broken {
        tracing::warn!(hook = %hook.folder.display(), why = hook.reason, "invalid hook skipped");
    }
    Hooks::start(good, shutdown)
}

fn pages() -> Option<PageFetcher> {
    PageFetcher::new().inspect_err(|error| tracing::warn!(%error, "cannot fetch web pages")).ok()
}

fn subagent_hint(channels: &Channels) -> String {
    channels.capabilities(Platform::SUBAGENT).hint.clone()
}

fn tools(
    home: &Path,
    settings: &Settings,
    approvals: Arc<Approvals>,
    rows: ProcessLedger,
) -> Result<Tools, Error> {
    let tools = Tools::default().with_servers(McpServers::start(settings.mcp.clone()));
    let Some(config) = settings.terminal.clone() else { return Ok(tools) };
    let terminal = Terminal::new(config, home, approvals, Arc::new(rows));
    let terminal =
        terminal.map_err(|error| Error::Io(format!("cannot create the terminal's folder: {error}")))?;
    Ok(tools.with_terminal(Arc::new(terminal)))
}

/// Starts the link supervisors, each with the work to resume when its platform connects. Work of the page and the
/// terminal is resumed at once.
async fn connect(
    handles: &Arc<Handles>,
    ingest: &Arc<Ingest>,
    mut candidates: ResumeCandidates,
    tasks: &mut TaskSet,
) -> Vec<LinkHandle> {
    let mut links = Vec::new();
    for adapter in handles.channels.adapters() {
        let served = |platform: &Platform| handles.channels.is_served_by(*platform, adapter);
        let mut waiting = Vec::new();
        candidates.retain(|platform, of| {
            let served = served(platform);
            if served {
                waiting.append(of);
            }
            !served
        });
        let sink = GatewaySink { ingest: ingest.clone(), waiting };
        let (link, task) = supervisor::supervisor(
            adapter.clone(),
            sink,
            handles.lifecycle.shutdown.clone(),
            &handles.lifecycle.lifetime,
        );
        links.push(link);
        tasks.vital("link", task);
    }
    for (platform, candidates) in candidates {
        // Work of a platform that is not configured waits until it is again.
        if handles.channels.capabilities(platform).delivery == Delivery::Pull {
            resume::resume_candidates(ingest, candidates).await;
        }
    }
    links
}
