//! The webhook listener, if there is to be one.

use std::path::PathBuf;
use std::time::Duration;

use petasos_agent::Tools;
use petasos_core::Platform;
use petasos_platforms::listener::is_loopback;
use petasos_platforms::webhook::{self, Config, Invalid, Targets, Webhook};
use petasos_platforms::{Adapter, Secret};
use serde_json::{Map, Value};

use super::credential::{self, Wanted};
use super::{Spoken, lifecycle, seconds, small};
use crate::config::{Home, Problem, Settings};

const ROUTES: &str = "platforms.webhook.extra.routes";
const TOOLS: &str = "platforms.webhook.extra.tools";
const HOST: &str = "platforms.webhook.extra.host";
/// A caller is cut off after a minute.
const LONGEST_WAIT: Duration = Duration::from_secs(50);

/// Routes that were added at run time.
pub(crate) fn subscriptions(home: &Home) -> PathBuf {
    home.path().join("webhook_subscriptions.json")
}

/// `others`: where answers may go.
pub(super) fn spoken(
    home: &Home,
    settings: &Settings,
    others: &[Spoken],
    problems: &mut Vec<Problem>,
) -> Option<Spoken> {
    let routes = routes(settings, problems);
    match credential::wanted(settings, "webhook") {
        Wanted::No => return None,
        Wanted::Maybe if routes.is_empty() => return None,
        Wanted::Maybe | Wanted::Yes => {}
    }
    for (name, route) in &routes {
        let wanted = webhook::wants_home(route);
        if let Some(platform) = wanted.filter(|it| lifecycle::home_channel(settings, *it).is_none()) {
            let what = format!("{ROUTES}.{name} delivers to {platform}'s home, and there is none yet");
            let problem = Problem::warning(settings.origin(ROUTES).to_string(), what);
            problems.push(problem.next(format!("say /sethome in a chat on {platform}")));
        }
        if let Some(key) = webhook::idle(route) {
            let what = format!("{ROUTES}.{name}.{key} is accepted, but this version does nothing with it");
            problems.push(Problem::warning(settings.origin(ROUTES).to_string(), what));
        }
    }
    problems.extend(unknown_tools(settings));
    let config = config(home, settings, routes, others);
    problems.extend(plain_http(settings, &config.host));
    match Webhook::new(config) {
        // Its port is all that it needs for itself, and a port knows only one owner anyway.
        Ok(webhook) => Some(Spoken { adapter: Adapter::Webhook(webhook), sole: None }),
        Err(invalid) => {
            problems.push(problem(settings, &invalid));
            None
        }
    }
}

fn problem(settings: &Settings, invalid: &Invalid) -> Problem {
    let problem = Problem::error(settings.origin(ROUTES).to_string(), invalid.to_string());
    match invalid {
        Invalid::NoSecret(_) => {
            problem.next("give it one (secret: …), or set WEBHOOK_SECRET in .env for all")
        }
        Invalid::Route { .. } | Invalid::GitHubApi(_) | Invalid::Client(_) => problem,
    }
}

fn routes(settings: &Settings, problems: &mut Vec<Problem>) -> Map<String, Value> {
    match settings.value(ROUTES) {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(routes)) => routes,
        Some(_) => {
            let what = format!("{ROUTES}: expected names of routes with a section each");
            problems.push(Problem::error(settings.origin(ROUTES).to_string(), what));
            Map::new()
        }
    }
}

fn config(home: &Home, settings: &Settings, routes: Map<String, Value>, others: &[Spoken]) -> Config {
    let path = |name: &str| format!("platforms.webhook.extra.{name}");
    let fresh = Config::default();
    let count = |name: &str| settings.count(&path(name));
    Config {
        host: settings.text(HOST).unwrap_or(fresh.host),
        port: count("port").and_then(|port| u16::try_from(port).ok()).unwrap_or(fresh.port),
        secret: settings.text(&path("secret")).map(Secret::new),
        routes,
        subscriptions: Some(subscriptions(home)),
        rate_limit: small(settings, &path("rate_limit")),
        max_body: count("max_body_bytes").and_then(|it| usize::try_from(it).ok()).unwrap_or(fresh.max_body),
        delivery_wait: seconds(settings, &path("delivery_wait")).min(LONGEST_WAIT),
        targets: Targets(others.iter().map(|it| it.adapter.platform()).collect()),
        github_token: settings.text(&path("github_token")).map(Secret::new),
        github_api: settings.text(&path("github_api")).unwrap_or(fresh.github_api),
        request_timeout: seconds(settings, &path("request_timeout")),
    }
}

/// The tools of turns that a delivery starts.
pub(super) fn narrowed(settings: &Settings) -> Option<(Platform, Vec<String>)> {
    Some((Platform::parse("webhook")?, settings.list(TOOLS)))
}

fn unknown_tools(settings: &Settings) -> Vec<Problem> {
    let mut named = settings.list(TOOLS);
    named.retain(|name| !Tools::names().contains(&name.as_str()));
    let problem = |name: String| {
        let what = format!("{TOOLS}: there is no tool {name}");
        let known = Tools::names().join(", ");
        Problem::warning(settings.origin(TOOLS).to_string(), what).next(format!("known are {known}"))
    };
    named.into_iter().map(problem).collect()
}

/// Signatures keep others from speaking, not from listening.
fn plain_http(settings: &Settings, host: &str) -> Option<Problem> {
    let what = format!("webhooks on {host} can be reached from other machines, and are plain HTTP");
    let problem = Problem::warning(settings.origin(HOST).to_string(), what);
    (!is_loopback(host)).then(|| problem.next("put a proxy with HTTPS in front, and listen on 127.0.0.1"))
}
