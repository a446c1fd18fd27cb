//! From settings to the plain structs that the parts take. After this nobody checks again.

mod access;
pub(crate) mod api;
mod connector;
mod credential;
mod cron;
mod discord;
pub(crate) mod lifecycle;
mod mcp;
mod media;
mod model;
pub(crate) mod relay;
mod retention;
mod slack;
mod telegram;
mod terminal;
mod tools;
pub(crate) mod webhook;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use petasos_cli::backup::schedule::Schedule;
use petasos_config::choices::{self, BusyInput, ReplyMode, StreamingTransport};
use petasos_config::keys::{agent, gateway, sessions, web};
use petasos_config::limits::{self, Denied};
use petasos_config::{Home, Key, Problem, Resolved, Settings, Severity};
use petasos_core::admission::BusyMode;
use petasos_core::capability::ReplyTo;
use petasos_core::session::{KeyOptions, Mode, Policies, ResetPolicy, Window};
use petasos_core::turn::{Circles, Limits, Patience};
use petasos_core::{Platform, Secret};
use petasos_gateway::home::bot_lock::{self, Sole};
use petasos_gateway::sd::Notifier;
use petasos_gateway::{Lifetime, Page, Stall, Streaming, Transport, Unbuilt, network};
use petasos_platforms::{Adapter, AdapterKind};
use petasos_web::{ApiOptions, Doors};

pub(crate) use connector::connector;

/// Everything a gateway process is started with.
#[derive(Debug)]
pub(crate) struct Wired {
    pub(crate) gateway: petasos_gateway::Config,
    /// `None`: no web page.
    pub(crate) listen: Option<Listen>,
    pub(crate) doors: Doors,
    /// `None`: no API for programs. One without keys gets the key of the home.
    pub(crate) api: Option<ApiOptions>,
    /// There is an API and no page.
    pub(crate) pageless: bool,
    pub(crate) backup: Schedule,
}

/// A platform that is to be spoken, and what nobody else may use meanwhile: its kind and itself.
#[derive(Debug)]
struct Spoken {
    adapter: Adapter,
    sole: Option<(&'static str, Secret)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listen {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// All errors at once, or something that can be started; warnings stay in `resolved`.
pub(crate) fn wire(home: &Home, resolved: &mut Resolved) -> Result<Wired, Vec<Problem>> {
    let settings = &resolved.settings;
    let mut problems = Vec::new();
    let (spoken, mut unbuilt) = platforms(home, settings, &mut problems);
    let relayed = |it: &&Spoken| it.adapter.relay().is_some();
    let native: Vec<_> = spoken.iter().filter(|it| !relayed(it)).map(|it| it.adapter.platform()).collect();
    let mut denied = limits::denied(settings, &native);
    problems.append(&mut denied.problems);
    problems.append(&mut denied.idle);
    problems.extend(tools::problems(settings));
    let sole = sole(home, &spoken);
    let adapters = spoken.into_iter().map(|spoken| spoken.adapter).collect();
    let model = model::model(settings, &mut problems);
    let doors = lifecycle::doors(settings, &mut problems);
    let page = settings.get(&web::ENABLED);
    let (api, listens) = match api::served(settings, &mut problems) {
        api::Served::No => (None, page),
        api::Served::Yes { options, asked_for } => (Some(options), page || asked_for),
        api::Served::Unbuilt(reason) => {
            unbuilt.push(reason);
            (None, page)
        }
    };
    let gateway = petasos_gateway::Config {
        home: home.path().into(),
        model,
        adapters,
        unbuilt,
        access: access::access(settings, &denied),
        keys: KeyOptions {
            group_per_user: settings.get(&sessions::GROUP_PER_USER),
            thread_per_user: settings.get(&sessions::THREAD_PER_USER),
            ..KeyOptions::default()
        },
        settings: petasos_gateway::Settings {
            mcp: mcp::servers(settings, &mut problems),
            ..session_settings(home, settings, &denied)
        },
        lifetime: Lifetime { sole, ..lifecycle::lifetime(settings, |name| std::env::var_os(name)) },
        notifier: Notifier::from_env(|name| std::env::var_os(name)),
        outward: network::outward,
        page: if listens { Page::Served } else { Page::None },
        runs: api::limits(settings),
        mirror: settings.get(&gateway::WRITE_SESSIONS_JSON),
    };
    let listen = listens.then(|| listen(settings));
    problems.extend(listen.as_ref().and_then(|listen| plain_http(settings, listen)));
    problems.extend(settings.idle().map(|(path, origin)| {
        Problem::warning(
            origin.to_string(),
            format!("{path} is accepted, but this version does nothing with it"),
        )
    }));
    resolved.problems.extend(problems);
    resolved.sort();
    if resolved.has_errors() {
        return Err(resolved.problems.clone());
    }
    let backup = Schedule::of(home, &resolved.settings);
    Ok(Wired { gateway, listen, doors, api, pageless: !page, backup })
}

fn sole(home: &Home, spoken: &[Spoken]) -> Vec<Sole> {
    let Some(directory) = bot_lock::directory(|name| std::env::var_os(name)) else { return vec![] };
    let used = spoken.iter().filter_map(|Spoken { adapter, sole }| {
        let (scope, identity) = sole.clone()?;
        let (directory, home) = (directory.clone(), home.path().into());
        Some(Sole { scope, platform: adapter.platform(), identity, directory, home })
    });
    used.collect()
}

/// One that cannot be built does not keep the others from working. Without any, its problems are those of the start.
fn platforms(home: &Home, settings: &Settings, problems: &mut Vec<Problem>) -> (Vec<Spoken>, Vec<Unbuilt>) {
    let mut kinds: Vec<_> = AdapterKind::all().collect();
    kinds.sort_by_key(|kind| stage(*kind));
    let (mut spoken, mut unbuilt, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    for kind in kinds {
        let mut found = Vec::new();
        let built = spoken_by(kind, home, settings, &spoken, &mut found);
        let reason = found.iter().find(|it| it.severity == Severity::Error).map(|it| it.what.clone());
        match (built, reason) {
            (built, _) if !built.is_empty() => spoken.extend(built),
            (_none, Some(reason)) => unbuilt.push(Unbuilt { platform: kind.platform(), reason }),
            (_none, None) => {}
        }
        let (wrong, odd): (Vec<_>, Vec<_>) = found.into_iter().partition(|it| it.severity == Severity::Error);
        errors.extend(wrong);
        problems.extend(odd);
    }
    if !spoken.is_empty() {
        errors.iter_mut().for_each(|problem| problem.severity = Severity::Warning);
    }
    problems.append(&mut errors);
    (spoken, unbuilt)
}

/// The only place that builds adapters from settings; none if the platform is not set up.
fn spoken_by(
    kind: AdapterKind,
    home: &Home,
    settings: &Settings,
    others: &[Spoken],
    found: &mut Vec<Problem>,
) -> Vec<Spoken> {
    match kind {
        AdapterKind::Telegram => Vec::from_iter(telegram::spoken(settings, found)),
        AdapterKind::Discord => Vec::from_iter(discord::spoken(settings, found)),
        AdapterKind::Slack => Vec::from_iter(slack::spoken(home, settings, found)),
        AdapterKind::Webhook => Vec::from_iter(webhook::spoken(home, settings, others, found)),
        AdapterKind::External(_) => relay::spoken(settings, others, found),
    }
}

/// Later ones depend on what earlier ones speak.
const fn stage(kind: AdapterKind) -> u8 {
    match kind {
        AdapterKind::Telegram | AdapterKind::Discord | AdapterKind::Slack => 0,
        // The relay fronts what is not spoken here.
        AdapterKind::External(_) => 1,
        // Answers to deliveries go to the others.
        AdapterKind::Webhook => 2,
    }
}

fn listen(settings: &Settings) -> Listen {
    Listen { host: settings.get(&web::HOST), port: settings.get(&web::PORT) }
}

/// Whoever can listen in on the network can read along, and browsers keep the sign-in only over HTTPS.
fn plain_http(settings: &Settings, listen: &Listen) -> Option<Problem> {
    let local = match listen.host.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => listen.host == "localhost" || listen.host.ends_with(".localhost"),
    };
    if local {
        return None;
    }
    let what = format!(
        "web.host {} can be reached from other machines, and the page speaks plain HTTP",
        listen.host
    );
    let problem = Problem::warning(settings.origin(&web::HOST).to_string(), what);
    Some(problem.next("put a proxy with HTTPS in front, or use 127.0.0.1 and a tunnel"))
}

fn session_settings(home: &Home, settings: &Settings, denied: &Denied) -> petasos_gateway::Settings {
    let quiet = settings.get(&sessions::RESET_QUIET);
    let quiet: Vec<Platform> = quiet.iter().filter_map(|name| Platform::parse(name)).collect();
    let policy = ResetPolicy {
        mode: mode(settings),
        idle_minutes: settings.get(&sessions::RESET_IDLE_MINUTES),
        at_hour: settings.get(&sessions::RESET_HOUR),
        notify: settings.get(&sessions::RESET_NOTIFY),
        notify_exclude_platforms: quiet,
        ..ResetPolicy::default()
    };
    petasos_gateway::Settings {
        resets: Policies { by_platform: lasting(&policy), default: policy, ..Policies::default() },
        resume_window: Window(settings.get(&agent::RESUME_WINDOW)),
        busy: busy(settings.get(&sessions::BUSY_INPUT)),
        busy_ack: settings.get(&sessions::BUSY_ACK),
        streaming: streaming(settings),
        limits: Limits {
            steps: settings.get(&agent::MAX_TURNS),
            patience: patience(settings),
            ..Limits::default()
        },
        stall: Stall { warn: settings.get(&agent::IDLE_WARNING), stop: settings.get(&agent::IDLE_TIMEOUT) },
        tools: tools::limits(settings, denied),
        narrowed: tools::narrowed(settings),
        tools_patience: settings.get(&agent::PARALLEL_TOOLS_TIMEOUT),
        outward_files: media::policy(home, settings, |name| std::env::var_os(name)),
        inward_files: media::inward(settings),
        workspace: workspace(home, settings),
        terminal: terminal::terminal(settings).filter(|_| !denied.terminal),
        consent: terminal::consent(settings),
        delegation: terminal::delegation(settings),
        persona: settings.get(&agent::SYSTEM_PROMPT),
        tiers: access::tiers(settings),
        filter_silence: settings.get(&sessions::FILTER_SILENCE),
        cron: cron::cron(settings),
        retention: retention::retention(settings),
        home: home.path().into(),
        memory: settings.get(&agent::MEMORY) && !denied.memories,
        mcp: vec![],
        compression: petasos_gateway::Compression {
            enabled: settings.get(&agent::COMPACTION),
            rows: settings.get(&agent::COMPACTION_MESSAGES),
        },
        parallel_calls: settings.get(&agent::MAX_PARALLEL_CALLS),
    }
}

/// A conversation that a program names is the one it gets, however old.
fn lasting(policy: &ResetPolicy) -> BTreeMap<Platform, ResetPolicy> {
    BTreeMap::from([(Platform::API_SERVER, ResetPolicy { mode: Mode::None, ..policy.clone() })])
}

fn mode(settings: &Settings) -> Mode {
    match settings.get(&sessions::RESET_MODE) {
        choices::ResetMode::None => Mode::None,
        choices::ResetMode::Idle => Mode::Idle,
        choices::ResetMode::Daily => Mode::Daily,
        choices::ResetMode::Both => Mode::Both,
    }
}

const fn busy(written: BusyInput) -> BusyMode {
    match written {
        BusyInput::Interrupt => BusyMode::Interrupt,
        BusyInput::Queue => BusyMode::Queue,
        BusyInput::Steer => BusyMode::Steer,
    }
}

fn streaming(settings: &Settings) -> Streaming {
    let (on, transport) = match settings.get(&sessions::STREAMING_TRANSPORT) {
        StreamingTransport::Auto | StreamingTransport::Draft => (true, Transport::Draft),
        StreamingTransport::Edit => (true, Transport::Edit),
        StreamingTransport::Off => (false, Transport::Draft),
    };
    Streaming {
        enabled: settings.get(&sessions::STREAMING) && on,
        transport,
        gap: settings.get(&sessions::STREAMING_INTERVAL),
        cursor: settings.get(&sessions::STREAMING_CURSOR),
    }
}

/// Relative to the home, unless it says otherwise.
fn workspace(home: &Home, settings: &Settings) -> PathBuf {
    home.path().join(settings.get(&agent::WORKSPACE))
}

const fn reply_to(written: ReplyMode) -> ReplyTo {
    match written {
        ReplyMode::Off => ReplyTo::Off,
        ReplyMode::First => ReplyTo::First,
        ReplyMode::All => ReplyTo::All,
    }
}

fn patience(settings: &Settings) -> Patience {
    let circles =
        |wanted: &Key<bool>, same_failure: &Key<u32>, tool_failure: &Key<u32>, same_result: &Key<u32>| {
            settings.get(wanted).then(|| Circles {
                same_failure: settings.get(same_failure),
                tool_failure: settings.get(tool_failure),
                same_result: settings.get(same_result),
            })
        };
    Patience {
        warn: circles(
            &agent::LOOP_WARNINGS,
            &agent::WARN_SAME_FAILURE,
            &agent::WARN_TOOL_FAILURE,
            &agent::WARN_SAME_RESULT,
        ),
        stop: circles(
            &agent::LOOP_STOP,
            &agent::STOP_SAME_FAILURE,
            &agent::STOP_TOOL_FAILURE,
            &agent::STOP_SAME_RESULT,
        ),
    }
}

#[cfg(test)]
mod closed_tests;
#[cfg(test)]
mod tests;
