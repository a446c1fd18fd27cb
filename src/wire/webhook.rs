//! The webhook listener, if there is to be one.

use std::path::PathBuf;
use std::time::Duration;

use petasos_core::Platform;
use petasos_platforms::listener::is_loopback;
use petasos_platforms::webhook::{self, Config, Invalid, Targets, Webhook};
use petasos_platforms::{Adapter, Secret};
use serde_json::{Map, Value};

use super::credential::{self, Wanted};
use super::{Spoken, lifecycle, seconds, small};
use crate::config::{Home, Problem, Settings};

const ROUTES: &str = "platforms.webhook.extra.routes";
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
        if let Some(key) = webhook::idle(route) {
            let what = format!("{ROUTES}.{name}.{key} is accepted, but this version does nothing with it");
            problems.push(Problem::warning(settings.origin(ROUTES).to_string(), what));
        }
    }
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
        targets: Targets(others.iter().map(|it| home_of(settings, it.adapter.platform())).collect()),
        github_token: settings.text(&path("github_token")).map(Secret::new),
        github_api: settings.text(&path("github_api")).unwrap_or(fresh.github_api),
        request_timeout: seconds(settings, &path("request_timeout")),
    }
}

fn home_of(settings: &Settings, platform: Platform) -> (Platform, Option<webhook::Home>) {
    let home = lifecycle::home_channel(settings, platform);
    (platform, home.map(|home| webhook::Home { chat_id: home.chat_id, thread_id: home.thread_id }))
}

/// Signatures keep others from speaking, not from listening.
fn plain_http(settings: &Settings, host: &str) -> Option<Problem> {
    let what = format!("webhooks on {host} can be reached from other machines, and are plain HTTP");
    let problem = Problem::warning(settings.origin(HOST).to_string(), what);
    (!is_loopback(host)).then(|| problem.next("put a proxy with HTTPS in front, and listen on 127.0.0.1"))
}
