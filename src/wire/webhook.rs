//! The webhook listener, if there is to be one.

use std::path::PathBuf;
use std::time::Duration;

use petasos_agent::Tools;
use petasos_config::keys;
use petasos_config::{Home, Problem, Settings};
use petasos_platforms::Adapter;
use petasos_platforms::listener::is_loopback;
use petasos_platforms::webhook::{self, Config, Invalid, Targets, Webhook};
use serde_json::{Map, Value};

use super::credential::{self, Wanted};
use super::{Spoken, lifecycle};

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
    match credential::wanted(settings, &keys::webhook::ENABLED) {
        Wanted::No => return None,
        Wanted::Maybe if routes.is_empty() => return None,
        Wanted::Maybe | Wanted::Yes => {}
    }
    for (name, route) in &routes {
        let wanted = webhook::wants_home(route);
        if let Some(platform) = wanted.filter(|it| lifecycle::home_channel(settings, *it).is_none()) {
            let what = format!(
                "{}.{name} delivers to {platform}'s home, and there is none yet",
                keys::webhook::ROUTES
            );
            let problem = Problem::warning(settings.origin(&keys::webhook::ROUTES).to_string(), what);
            problems.push(problem.next(format!("say /sethome in a chat on {platform}")));
        }
        if let Some(key) = webhook::idle(route) {
            let what = format!(
                "{}.{name}.{key} is accepted, but this version does nothing with it",
                keys::webhook::ROUTES
            );
            problems.push(Problem::warning(settings.origin(&keys::webhook::ROUTES).to_string(), what));
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
    let problem = Problem::error(settings.origin(&keys::webhook::ROUTES).to_string(), invalid.to_string());
    match invalid {
        Invalid::NoSecret(_) => {
            problem.next("give it one (secret: …), or set WEBHOOK_SECRET in .env for all")
        }
        Invalid::Route { .. } | Invalid::GitHubApi(_) | Invalid::Client(_) => problem,
    }
}

fn routes(settings: &Settings, problems: &mut Vec<Problem>) -> Map<String, Value> {
    match settings.get(&keys::webhook::ROUTES) {
        None => Map::new(),
        Some(Value::Object(routes)) => routes,
        Some(_) => {
            let what = format!("{}: expected names of routes with a section each", keys::webhook::ROUTES);
            problems.push(Problem::error(settings.origin(&keys::webhook::ROUTES).to_string(), what));
            Map::new()
        }
    }
}

fn config(home: &Home, settings: &Settings, routes: Map<String, Value>, others: &[Spoken]) -> Config {
    Config {
        host: settings.get(&keys::webhook::HOST),
        port: settings.get(&keys::webhook::PORT),
        secret: settings.get(&keys::webhook::SECRET),
        routes,
        subscriptions: Some(subscriptions(home)),
        rate_limit: settings.get(&keys::webhook::RATE_LIMIT),
        max_body: settings.get(&keys::webhook::MAX_BODY),
        delivery_wait: settings.get(&keys::webhook::DELIVERY_WAIT).min(LONGEST_WAIT),
        targets: Targets(others.iter().map(|it| it.adapter.platform()).collect()),
        github_token: settings.get(&keys::webhook::GITHUB_TOKEN),
        github_api: settings.get(&keys::webhook::GITHUB_API),
        request_timeout: settings.get(&keys::webhook::REQUEST_TIMEOUT),
    }
}

fn unknown_tools(settings: &Settings) -> Vec<Problem> {
    let mut named = settings.get(&keys::webhook::TOOLS);
    named.retain(|name| !Tools::names().contains(&name.as_str()));
    let problem = |name: String| {
        let what = format!("{}: there is no tool {name}", keys::webhook::TOOLS);
        let known = Tools::names().join(", ");
        Problem::warning(settings.origin(&keys::webhook::TOOLS).to_string(), what)
            .next(format!("known are {known}"))
    };
    named.into_iter().map(problem).collect()
}

/// Signatures keep others from speaking, not from listening.
fn plain_http(settings: &Settings, host: &str) -> Option<Problem> {
    let what = format!("webhooks on {host} can be reached from other machines, and are plain HTTP");
    let problem = Problem::warning(settings.origin(&keys::webhook::HOST).to_string(), what);
    (!is_loopback(host)).then(|| problem.next("put a proxy with HTTPS in front, and listen on 127.0.0.1"))
}
