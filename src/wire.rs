//! Turns settings into the plain structs that the parts take. Nothing is validated again after this.

mod access;
mod agent_config;
pub(crate) mod api;
mod connector;
mod cron;
pub(crate) mod lifecycle;
mod media;
mod platforms;
mod retention;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use petasos_agent::mcp::McpServerConfig;
use petasos_cli::backup::schedule::BackupSchedule;
use petasos_config::choices::{self, BusyInput, StreamingTransport};
use petasos_config::keys::{agent, gateway, sessions, web};
use petasos_config::limits::{self, Denied};
use petasos_config::{Home, Key, Problem, Resolved, Settings};
use petasos_core::admission::BusyMode;
use petasos_core::session::{FreshnessWindow, KeyOptions, ResetMode, ResetPolicies, ResetPolicy};
use petasos_core::turn::{LoopLimits, LoopThresholds, TurnLimits};
use petasos_core::{Platform, Redactor, Secret};
use petasos_gateway::sd::Notifier;
use petasos_gateway::{Lifetime, LocalService, StallLimits, Streaming, Transport, network};
use petasos_web::{AccessCredentials, ApiOptions};

pub(crate) use connector::connector;
use platforms::BuiltAdapter;
pub(crate) use platforms::configured_platforms;
pub(crate) use platforms::credential::is_placeholder;
pub(crate) use platforms::relay;
pub(crate) use platforms::webhook::subscriptions as webhook_subscriptions;

#[derive(Debug)]
pub(crate) struct Wired {
    pub(crate) gateway: petasos_gateway::Config,
    /// `None` if no web listener is needed.
    pub(crate) listen: Option<Listen>,
    pub(crate) doors: AccessCredentials,
    /// `None` without an API for programs. An API without keys gets the key of the home.
    pub(crate) api: Option<ApiOptions>,
    /// The listener serves the API only.
    pub(crate) pageless: bool,
    pub(crate) backup: BackupSchedule,
    /// Values to redact everywhere.
    pub(crate) secrets: Vec<Secret>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listen {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// Returns everything that a start needs, or all errors at once; warnings stay in `resolved`.
pub(crate) fn wire(home: &Home, resolved: &mut Resolved) -> Result<Wired, Vec<Problem>> {
    let settings = &resolved.settings;
    let mut problems = Vec::new();
    let (built, mut unavailable) = platforms::build_all(home, settings, &mut problems);
    let is_relay = |it: &&BuiltAdapter| it.adapter.relay().is_some();
    let native: Vec<_> = built.iter().filter(|it| !is_relay(it)).map(|it| it.adapter.platform()).collect();
    let mut denied = limits::denied(settings, &native);
    problems.append(&mut denied.problems);
    problems.append(&mut denied.idle);
    problems.extend(agent_config::tools::problems(settings));
    let bot_locks = platforms::bot_locks(home, &built);
    let adapters = built.into_iter().map(|it| it.adapter).collect();
    let model = agent_config::model::model(settings, &mut problems);
    let doors = lifecycle::control_access(settings, &mut problems);
    let page = settings.get(&web::ENABLED);
    let (api, listens) = match api::setup(settings, &mut problems) {
        api::ApiSetup::No => (None, page),
        api::ApiSetup::Yes { options, explicit } => (Some(options), page || explicit),
        api::ApiSetup::Unavailable(reason) => {
            unavailable.push(reason);
            (None, page)
        }
    };
    let gateway = petasos_gateway::Config {
        home: home.path().into(),
        model,
        adapters,
        unbuilt: unavailable,
        access: access::access(settings, &denied),
        keys: KeyOptions {
            group_per_user: settings.get(&sessions::GROUP_PER_USER),
            thread_per_user: settings.get(&sessions::THREAD_PER_USER),
            ..KeyOptions::default()
        },
        settings: petasos_gateway::Settings {
            mcp: agent_config::mcp::servers(settings, &mut problems),
            ..session_settings(home, settings, &denied)
        },
        lifetime: Lifetime { bot_locks, ..lifecycle::lifetime(settings, |name| std::env::var_os(name)) },
        notifier: Notifier::from_env(|name| std::env::var_os(name)),
        outward: network::outbound_addresses,
        page: if listens { LocalService::Served } else { LocalService::None },
        runs: api::limits(settings),
        mirror: settings.get(&gateway::WRITE_SESSIONS_JSON),
    };
    let listen = listens.then(|| listen(settings));
    problems.extend(listen.as_ref().and_then(|listen| plain_http(settings, listen)));
    problems.extend(settings.idle().map(|(path, origin)| {
        Problem::warning(origin.to_string(), format!("{path} is accepted but has no effect in this version"))
    }));
    resolved.problems.extend(problems);
    resolved.sort();
    if resolved.has_errors() {
        return Err(resolved.problems.clone());
    }
    let backup = BackupSchedule::from_settings(home, &resolved.settings);
    let secrets = resolved.secrets.clone();
    Ok(Wired { gateway, listen, doors, api, pageless: !page, backup, secrets })
}

/// The MCP servers, without the problems that `wire` reports.
pub(crate) fn mcp_servers(settings: &Settings) -> Vec<McpServerConfig> {
    agent_config::mcp::servers(settings, &mut vec![])
}

fn listen(settings: &Settings) -> Listen {
    Listen { host: settings.get(&web::HOST), port: settings.get(&web::PORT) }
}

/// Warns about plain HTTP: others on the network can read it, and browsers keep the sign-in only over HTTPS.
fn plain_http(settings: &Settings, listen: &Listen) -> Option<Problem> {
    let local = match listen.host.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => listen.host == "localhost" || listen.host.ends_with(".localhost"),
    };
    if local {
        return None;
    }
    let what =
        format!("web.host {} is reachable from other machines, and the page uses plain HTTP", listen.host);
    let problem = Problem::warning(settings.origin(&web::HOST).to_string(), what);
    Some(problem.next("put an HTTPS proxy in front, or use 127.0.0.1 and a tunnel"))
}

fn session_settings(home: &Home, settings: &Settings, denied: &Denied) -> petasos_gateway::Settings {
    let quiet = settings.get(&sessions::RESET_QUIET);
    let quiet: Vec<Platform> = quiet.iter().filter_map(|name| Platform::parse(name)).collect();
    let policy = ResetPolicy {
        mode: reset_mode(settings),
        idle_minutes: settings.get(&sessions::RESET_IDLE_MINUTES),
        at_hour: settings.get(&sessions::RESET_HOUR),
        notify: settings.get(&sessions::RESET_NOTIFY),
        notify_exclude_platforms: quiet,
        ..ResetPolicy::default()
    };
    petasos_gateway::Settings {
        resets: ResetPolicies {
            by_platform: permanent_policies(&policy),
            default: policy,
            ..ResetPolicies::default()
        },
        resume_window: FreshnessWindow(settings.get(&agent::RESUME_WINDOW)),
        busy: busy_mode(settings.get(&sessions::BUSY_INPUT)),
        busy_ack: settings.get(&sessions::BUSY_ACK),
        streaming: streaming(settings),
        limits: TurnLimits {
            steps: settings.get(&agent::MAX_TURNS),
            loops: loop_limits(settings),
            ..TurnLimits::default()
        },
        stall: StallLimits {
            warn: settings.get(&agent::IDLE_WARNING),
            stop: settings.get(&agent::IDLE_TIMEOUT),
        },
        tools: agent_config::tools::limits(settings, denied),
        narrowed: agent_config::tools::narrowed(settings),
        tools_patience: settings.get(&agent::PARALLEL_TOOLS_TIMEOUT),
        attachments: media::attachment_policy(home, settings, |name| std::env::var_os(name)),
        downloads: media::download_settings(settings),
        workspace: workspace(home, settings),
        terminal: agent_config::terminal::terminal(settings).filter(|_| !denied.terminal),
        approvals: agent_config::terminal::approval_settings(settings),
        delegation: agent_config::terminal::delegation(settings),
        persona: settings.get(&agent::SYSTEM_PROMPT),
        tiers: access::tiers(settings),
        filter_silence: settings.get(&sessions::FILTER_SILENCE),
        cron: cron::cron(settings),
        retention: retention::retention(settings),
        home: home.path().into(),
        memory: settings.get(&agent::MEMORY) && !denied.memories,
        mcp: vec![],
        compaction: petasos_gateway::CompactionSettings {
            enabled: settings.get(&agent::COMPACTION),
            rows: settings.get(&agent::COMPACTION_MESSAGES),
        },
        redactor: Redactor::default(),
        parallel_calls: settings.get(&agent::MAX_PARALLEL_CALLS),
    }
}

/// Conversations that a program names never expire.
fn permanent_policies(policy: &ResetPolicy) -> BTreeMap<Platform, ResetPolicy> {
    BTreeMap::from([(Platform::API_SERVER, ResetPolicy { mode: ResetMode::None, ..policy.clone() })])
}

fn reset_mode(settings: &Settings) -> ResetMode {
    match settings.get(&sessions::RESET_MODE) {
        choices::ResetMode::None => ResetMode::None,
        choices::ResetMode::Idle => ResetMode::Idle,
        choices::ResetMode::Daily => ResetMode::Daily,
        choices::ResetMode::Both => ResetMode::Both,
    }
}

const fn busy_mode(written: BusyInput) -> BusyMode {
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

fn workspace(home: &Home, settings: &Settings) -> PathBuf {
    home.path().join(settings.get(&agent::WORKSPACE))
}

fn loop_limits(settings: &Settings) -> LoopLimits {
    let thresholds =
        |wanted: &Key<bool>, same_failure: &Key<u32>, tool_failure: &Key<u32>, same_result: &Key<u32>| {
            settings.get(wanted).then(|| LoopThresholds {
                same_failure: settings.get(same_failure),
                tool_failure: settings.get(tool_failure),
                same_result: settings.get(same_result),
            })
        };
    LoopLimits {
        warn: thresholds(
            &agent::LOOP_WARNINGS,
            &agent::WARN_SAME_FAILURE,
            &agent::WARN_TOOL_FAILURE,
            &agent::WARN_SAME_RESULT,
        ),
        stop: thresholds(
            &agent::LOOP_STOP,
            &agent::STOP_SAME_FAILURE,
            &agent::STOP_TOOL_FAILURE,
            &agent::STOP_SAME_RESULT,
        ),
    }
}

#[cfg(test)]
mod restriction_tests;
#[cfg(test)]
mod tests;
