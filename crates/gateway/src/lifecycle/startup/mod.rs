//! Putting the parts together.
//!
//! In this order: open the store and recover the state of the previous process (`takeover`), look for a drain marker, start the
//! owners, connect the platforms. What was interrupted goes on as soon as its platform is connected (`resume`). How
//! it all ends is in `running`.

pub(crate) mod boot;
pub(crate) mod quarantine;
pub(crate) mod resume;
pub(crate) mod takeover;
mod tasks;

use std::path::Path;
use std::sync::Arc;

use petasos_agent::mcp::Servers;
use petasos_agent::{Brain, Terminal, Tools};
use petasos_core::Platform;
use petasos_core::message::Delivery;
use petasos_platforms::page::Pages;
use petasos_store::{Candidates, OpenError};
use serde_json::json;

use crate::api::handle::{Handle, Inner};
use crate::api::runs::Desk;
use crate::api::state_file::Publisher;
use crate::background::completions::Bell;
use crate::background::cron::Jobs;
use crate::background::delegation::{self, Delegation, Means};
use crate::background::hooks::{self, Hooks};
use crate::background::notifications::Notifications;
use crate::background::notifications::home_channels::Homes;
use crate::background::processes::Rows;
use crate::delivery::reactions::Marks;
use crate::delivery::{self, Deliver, Outward, Owners};
use crate::home::process::Record;
use crate::inbound::downloads::Fetcher;
use crate::inbound::ingest::{Entrance, Ingest, Rules};
use crate::lifecycle::Lifecycle;
use crate::lifecycle::config::{Config, Settings};
use crate::lifecycle::gate::Gate;
use crate::lifecycle::marker_watcher::Lookout;
use crate::lifecycle::shutdown::Stopper;
use crate::lifecycle::shutdown::running::Running;
use crate::lifecycle::startup::boot::World;
use crate::lifecycle::startup::quarantine::Quarantine;
use crate::lifecycle::startup::takeover::{Before, Recovered};
use crate::links::channels::{Channels, Relayed};
use crate::links::idle::Traffic;
use crate::links::supervisor::{self, LinkHandle};
use crate::links::{rate_limits, relay};
use crate::runtime;
use crate::sessions::approvals::Approvals;
use crate::sessions::errands;
use crate::sessions::questions::{self, Questions};
use crate::sessions::router::{self, Router};
use crate::sessions::{Agent, Handles, People};
use crate::storage::sessions_json;
use crate::{Error, clock};
use tasks::Tasks;

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
    let delivering = runtime::tasks::vital("deliver", &stopper, delivering);
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
    let home = config.home;
    let (settings, lifetime) = (Arc::new(config.settings), Arc::new(config.lifetime));
    let notifications = Notifications {
        db: db.clone(),
        channels: channels.clone(),
        deliver: deliver.clone(),
        homes: Arc::new(Homes::new(lifetime.home_channels.clone())),
        home: home.clone(),
        settings: settings.clone(),
        lifetime: lifetime.clone(),
        stopper: stopper.clone(),
    };
    let jobs =
        Jobs { db: db.clone(), router: router.clone(), settings: settings.clone(), bell: Bell::default() };
    let desk = errands::Desk {
        db: db.clone(),
        notifications: notifications.clone(),
        jobs: jobs.clone(),
        keys: rules.keys,
        pages: pages(),
    };
    let tools =
        tools(&home, &settings, approvals.clone(), rows)?.with_delegation(Arc::new(delegation.clone()));
    #[cfg(feature = "simulation")]
    let tools = match brain.given_tools() {
        Some(given) => tools.with_given(given, approvals.clone()),
        None => tools,
    };
    let tools = tools.with_errands(Arc::new(desk)).limited(&settings.tools);
    let traffic = Traffic::new(started_at);
    let handles = Arc::new(Handles {
        fetcher: Arc::new(Fetcher::new(&home, settings.inward_files.clone())),
        agent: Agent::new(brain, tools, delegation.clone(), &settings),
        people: People { approvals, questions: questions.clone(), owners },
        delivery: delivery::Delivery { deliver, reactions: marks },
        lifecycle: Lifecycle {
            gate,
            stopper: stopper.clone(),
            lifetime,
            started_at,
            counts: Arc::default(),
            quarantine: Arc::new(Quarantine::new(&held)),
            links: Arc::default(),
        },
        hooks: hooks(&home, &stopper),
        runs: Desk::new(config.runs),
        db,
        home,
        settings,
        channels,
        router,
        notifications,
        jobs,
    });
    let mut tasks = Tasks::new(&stopper);
    tasks.vital("lookout", lookout.run(stopper.clone()));
    tasks.vital("router", router::run(handles.clone(), asks));
    tasks.vital("questions", questions::run(questions, stopper.clone()));
    tasks.vital("delegation", delegation::run(delegation, batches, stopper.clone()));
    tasks.courtesies(markers);
    tasks.keep_house(&handles, &config.notifier);
    if config.mirror {
        let (db, home) = (handles.db.clone(), handles.home.clone());
        tasks.vital("mirror", sessions_json::run(db, home, stopper.clone()));
    }
    for lane in booted.due {
        handles.delivery.deliver.due(lane).await;
    }
    if let Some(terminal) = handles.agent.tools.terminal() {
        terminal.adopt(processes).await;
    }
    let ingest = Arc::new(Ingest {
        db: handles.db.clone(),
        router: handles.router.clone(),
        deliver: handles.delivery.deliver.clone(),
        channels: handles.channels.clone(),
        homes: handles.notifications.homes.clone(),
        gate: handles.lifecycle.gate.clone(),
        traffic: traffic.clone(),
        rules,
    });
    relay::remember(&handles.channels, &handles.db).await;
    let mut links = connect(&handles, &ingest, booted.candidates, &mut tasks).await;
    links.extend(config.unbuilt.into_iter().map(|it| LinkHandle::unbuilt(it.platform, it.reason)));
    links.sort_by_key(|link| link.name);
    // Set once, here; a session that asks before sees none.
    let _first = handles.lifecycle.links.set(links.clone());
    tasks.follow_links(&handles, &links, config.page, config.outward);
    tasks.watch_database(&handles);
    tasks.hand_over(&handles, &links, ingest.rules.keys, bell);
    tasks.release(&handles, &links, held, hold);
    tasks.sleep_when_idle(&handles, traffic);
    let publisher = Publisher::new(&handles.lifecycle, handles.home.clone(), own.clone(), links.clone());
    let publishing = petasos_runtime::spawn(publisher.run());
    handles.hooks.tell(
        "gateway:startup",
        || json!({ "platforms": links.iter().map(|link| link.name.to_string()).collect::<Vec<_>>() }),
    );
    let handle = Handle(Arc::new(Inner { handles: handles.clone(), ingest, links: links.clone() }));
    let running = Running {
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
    handles: &Arc<Handles>,
    ingest: &Arc<Ingest>,
    mut candidates: Candidates,
    tasks: &mut Tasks,
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
        let entrance = Entrance { ingest: ingest.clone(), waiting };
        let (link, task) = supervisor::supervisor(
            adapter.clone(),
            entrance,
            handles.lifecycle.stopper.clone(),
            &handles.lifecycle.lifetime,
        );
        links.push(link);
        tasks.vital("link", task);
    }
    for (platform, candidates) in candidates {
        // A platform that is switched off may come back; until then nothing of it is taken up.
        if handles.channels.capabilities(platform).delivery == Delivery::Pull {
            resume::take_up(ingest, candidates).await;
        }
    }
    links
}
