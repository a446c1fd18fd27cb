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
pub(crate) mod webhook;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use petasos_core::admission::BusyMode;
use petasos_core::capability::ReplyTo;
use petasos_core::session::{KeyOptions, Mode, Policies, ResetPolicy, Window};
use petasos_core::turn::{Circles, Limits, Patience};
use petasos_core::{Platform, Secret};
use petasos_gateway::home::bot_lock::{self, Sole};
use petasos_gateway::sd::Notifier;
use petasos_gateway::{Lifetime, Page, Stall, Streaming, Transport, Unbuilt, network};
use petasos_platforms::{Adapter, CatchUp};
use petasos_web::{ApiOptions, Doors};

use crate::backup::schedule::Schedule;
use crate::config::{Home, Problem, Resolved, Settings, Severity};

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
    let sole = sole(home, &spoken);
    let adapters = spoken.into_iter().map(|spoken| spoken.adapter).collect();
    let model = model::model(settings, &mut problems);
    let doors = lifecycle::doors(settings, &mut problems);
    let page = settings.flag("web.enabled");
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
        access: access::access(settings),
        keys: KeyOptions {
            group_per_user: settings.flag("group_sessions_per_user"),
            thread_per_user: settings.flag("thread_sessions_per_user"),
            ..KeyOptions::default()
        },
        settings: petasos_gateway::Settings {
            mcp: mcp::servers(settings, &mut problems),
            ..session_settings(home, settings)
        },
        lifetime: Lifetime { sole, ..lifecycle::lifetime(settings, |name| std::env::var_os(name)) },
        notifier: Notifier::from_env(|name| std::env::var_os(name)),
        outward: network::outward,
        page: if listens { Page::Served } else { Page::None },
        runs: api::limits(settings),
        mirror: settings.flag("gateway.write_sessions_json"),
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
    type Speak<'a> = &'a dyn Fn(&[Spoken], &mut Vec<Problem>) -> Vec<Spoken>;
    let known: [(&str, Speak<'_>); 5] = [
        ("telegram", &|_, found| Vec::from_iter(telegram::spoken(settings, found))),
        ("discord", &|_, found| Vec::from_iter(discord::spoken(settings, found))),
        ("slack", &|_, found| Vec::from_iter(slack::spoken(home, settings, found))),
        // It fronts what we do not speak ourselves.
        ("relay", &|others, found| relay::spoken(settings, others, found)),
        // Last: the answers to its deliveries go to the others.
        ("webhook", &|others, found| Vec::from_iter(webhook::spoken(home, settings, others, found))),
    ];
    let (mut spoken, mut unbuilt, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    for (name, speak) in known {
        let mut found = Vec::new();
        let built = speak(&spoken, &mut found);
        let reason = found.iter().find(|it| it.severity == Severity::Error).map(|it| it.what.clone());
        match (built, reason, Platform::parse(name)) {
            (built, ..) if !built.is_empty() => spoken.extend(built),
            (_none, Some(reason), Some(platform)) => unbuilt.push(Unbuilt { platform, reason }),
            (_none, ..) => {}
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

fn listen(settings: &Settings) -> Listen {
    let port = settings.count("web.port").and_then(|port| u16::try_from(port).ok());
    Listen { host: settings.text("web.host").unwrap_or_default(), port: port.unwrap_or_default() }
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
    let problem = Problem::warning(settings.origin("web.host").to_string(), what);
    Some(problem.next("put a proxy with HTTPS in front, or use 127.0.0.1 and a tunnel"))
}

fn session_settings(home: &Home, settings: &Settings) -> petasos_gateway::Settings {
    let quiet = settings.list("session_reset.notify_exclude_platforms");
    let quiet: Vec<Platform> = quiet.iter().filter_map(|name| Platform::parse(name)).collect();
    let policy = ResetPolicy {
        mode: mode(settings),
        idle_minutes: small(settings, "session_reset.idle_minutes"),
        at_hour: u8::try_from(small(settings, "session_reset.at_hour")).unwrap_or_default(),
        notify: settings.flag("session_reset.notify"),
        notify_exclude_platforms: quiet,
        ..ResetPolicy::default()
    };
    petasos_gateway::Settings {
        resets: Policies { by_platform: lasting(&policy), default: policy, ..Policies::default() },
        resume_window: Window(seconds(settings, "agent.gateway_auto_continue_freshness")),
        busy: BusyMode::parse(&settings.text("display.busy_input_mode").unwrap_or_default()),
        busy_ack: settings.flag("display.busy_ack_enabled"),
        streaming: streaming(settings),
        limits: Limits {
            steps: small(settings, "agent.max_turns"),
            patience: patience(settings),
            ..Limits::default()
        },
        stall: Stall {
            warn: some_seconds(settings, "agent.gateway_timeout_warning"),
            stop: some_seconds(settings, "agent.gateway_timeout"),
        },
        narrowed: webhook::narrowed(settings).into_iter().collect(),
        tools_patience: some_seconds(settings, "agent.concurrent_tool_timeout"),
        outward_files: media::policy(home, settings, |name| std::env::var_os(name)),
        inward_files: media::inward(settings),
        workspace: workspace(home, settings),
        terminal: terminal::terminal(settings),
        consent: terminal::consent(settings),
        delegation: terminal::delegation(settings),
        persona: settings.text("agent.system_prompt"),
        tiers: access::tiers(settings),
        filter_silence: settings.flag("filter_silence_narration"),
        cron: cron::cron(settings),
        retention: retention::retention(settings),
        home: home.path().into(),
        memory: settings.flag("memory.enabled"),
        mcp: vec![],
        compression: petasos_gateway::Compression {
            enabled: settings.flag("compression.enabled"),
            rows: small(settings, "compression.max_messages") as usize,
        },
        parallel_calls: settings
            .count("agent.max_parallel_calls")
            .and_then(|n| usize::try_from(n).ok())
            .unwrap_or(64),
    }
}

/// A conversation that a program names is the one it gets, however old.
fn lasting(policy: &ResetPolicy) -> BTreeMap<Platform, ResetPolicy> {
    BTreeMap::from([(Platform::API_SERVER, ResetPolicy { mode: Mode::None, ..policy.clone() })])
}

fn mode(settings: &Settings) -> Mode {
    match settings.text("session_reset.mode").as_deref() {
        Some("idle") => Mode::Idle,
        Some("daily") => Mode::Daily,
        Some("both") => Mode::Both,
        Some(_) | None => Mode::None,
    }
}

fn streaming(settings: &Settings) -> Streaming {
    let transport = settings.text("streaming.transport");
    let off = transport.as_deref() == Some("off");
    Streaming {
        enabled: settings.flag("streaming.enabled") && !off,
        transport: match transport.as_deref() {
            Some("edit") => Transport::Edit,
            Some(_) | None => Transport::Draft,
        },
        gap: seconds(settings, "streaming.edit_interval"),
        cursor: settings.text("streaming.cursor").unwrap_or_default(),
    }
}

/// Relative to the home, unless it says otherwise.
fn workspace(home: &Home, settings: &Settings) -> PathBuf {
    home.path().join(settings.text("agent.workspace").unwrap_or_else(|| "workspace".into()))
}

/// What is fetched after a time in which a platform could tell us nothing.
fn catch_up(settings: &Settings, platform: &str) -> CatchUp {
    let path = |name: &str| format!("platforms.{platform}.extra.missed_message_backfill.{name}");
    let limit = settings.count(&path("limit")).filter(|_| settings.flag(&path("enabled")));
    CatchUp {
        window: seconds(settings, &path("window_seconds")),
        messages: limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or_default(),
    }
}

fn reply_to(settings: &Settings, platform: &str) -> ReplyTo {
    let set = settings.text(&format!("platforms.{platform}.reply_to_mode"));
    set.map_or(ReplyTo::First, |word| ReplyTo::parse(&word))
}

/// The catalogue has checked the range.
fn small(settings: &Settings, path: &str) -> u32 {
    settings.count(path).and_then(|count| u32::try_from(count).ok()).unwrap_or_default()
}

fn patience(settings: &Settings) -> Patience {
    let circles = |flag: &str, after: &str| {
        let often = |what: &str| small(settings, &format!("tool_loop_guardrails.{after}.{what}"));
        settings.flag(&format!("tool_loop_guardrails.{flag}")).then(|| Circles {
            same_failure: often("exact_failure"),
            tool_failure: often("same_tool_failure"),
            same_result: often("idempotent_no_progress"),
        })
    };
    Patience {
        warn: circles("warnings_enabled", "warn_after"),
        stop: circles("hard_stop_enabled", "hard_stop_after"),
    }
}

/// `None` if it is switched off with 0.
fn some_seconds(settings: &Settings, path: &str) -> Option<Duration> {
    Some(seconds(settings, path)).filter(|time| !time.is_zero() && *time < Duration::MAX)
}

fn seconds(settings: &Settings, path: &str) -> Duration {
    Duration::try_from_secs_f64(settings.number(path)).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests;
