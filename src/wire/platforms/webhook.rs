//! Builds the webhook listener.

use std::path::PathBuf;
use std::time::Duration;

use petasos_agent::Tools;
use petasos_config::keys;
use petasos_config::{Home, Problem, Settings};
use petasos_platforms::Adapter;
use petasos_platforms::listener::is_loopback;
use petasos_platforms::webhook::{self, Config, Targets, Webhook, WebhookConfigError};
use serde_json::{Map, Value};

use super::BuiltAdapter;
use super::credential::{self, Enabled};
use crate::wire::lifecycle;

const MAX_DELIVERY_WAIT: Duration = Duration::from_secs(50);

/// File with the routes that were added at run time.
pub(crate) fn subscriptions(home: &Home) -> PathBuf {
    home.path().join("webhook_subscriptions.json")
}

/// `others`: the platforms that answers can go to.
pub(super) fn build(
    home: &Home,
    settings: &Settings,
    others: &[BuiltAdapter],
    problems: &mut Vec<Problem>,
) -> Option<BuiltAdapter> {
    let routes = routes(settings, problems);
    match credential::enabled(settings, &keys::webhook::ENABLED) {
        Enabled::No => return None,
        Enabled::IfConfigured if routes.is_empty() => return None,
        Enabled::IfConfigured | Enabled::Yes => {}
    }
    for (name, route) in &routes {
        let wanted = webhook::home_platform(route);
        if let Some(platform) = wanted.filter(|it| lifecycle::home_channel(settings, *it).is_none()) {
            let what = format!(
                "{}.{name} delivers to the home channel of {platform}, which is not set",
                keys::webhook::ROUTES
            );
            let problem = Problem::warning(settings.origin(&keys::webhook::ROUTES).to_string(), what);
            problems.push(problem.next(format!("send /sethome in a chat on {platform}")));
        }
        if let Some(key) = webhook::ineffective_setting(route) {
            let what = format!(
                "{}.{name}.{key} is accepted but has no effect in this version",
                keys::webhook::ROUTES
            );
            problems.push(Problem::warning(settings.origin(&keys::webhook::ROUTES).to_string(), what));
        }
    }
    problems.extend(unknown_tools(settings));
    let config = config(home, settings, routes, others);
    problems.extend(plain_http(settings, &config.host));
    match Webhook::new(config) {
        // Its port can have only one owner, so it needs no bot lock.
        Ok(webhook) => Some(BuiltAdapter { adapter: Adapter::Webhook(webhook), bot_lock: None }),
        Err(invalid) => {
            problems.push(problem(settings, &invalid));
            None
        }
    }
}

fn problem(settings: &Settings, invalid: &WebhookConfigError) -> Problem {
    let problem = Problem::error(settings.origin(&keys::webhook::ROUTES).to_string(), invalid.to_string());
    match invalid {
        WebhookConfigError::NoSecret(_) => {
            problem.next("set one (secret: …), or set WEBHOOK_SECRET in .env for all routes")
        }
        WebhookConfigError::Route { .. }
        | WebhookConfigError::GitHubApi(_)
        | WebhookConfigError::Client(_) => problem,
    }
}

fn routes(settings: &Settings, problems: &mut Vec<Problem>) -> Map<String, Value> {
    match settings.get(&keys::webhook::ROUTES) {
        None => Map::new(),
        Some(Value::Object(routes)) => routes,
        Some(_) => {
            let what = format!("{}: expected route names, each with a section", keys::webhook::ROUTES);
            problems.push(Problem::error(settings.origin(&keys::webhook::ROUTES).to_string(), what));
            Map::new()
        }
    }
}

fn config(home: &Home, settings: &Settings, routes: Map<String, Value>, others: &[BuiltAdapter]) -> Config {
    Config {
        host: settings.get(&keys::webhook::HOST),
        port: settings.get(&keys::webhook::PORT),
        secret: settings.get(&keys::webhook::SECRET),
        routes,
        subscriptions: Some(subscriptions(home)),
        rate_limit: settings.get(&keys::webhook::RATE_LIMIT),
        max_body: settings.get(&keys::webhook::MAX_BODY),
        delivery_wait: settings.get(&keys::webhook::DELIVERY_WAIT).min(MAX_DELIVERY_WAIT),
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
            .next(format!("known tools are {known}"))
    };
    named.into_iter().map(problem).collect()
}

/// Signatures authenticate the sender but do not hide the content.
fn plain_http(settings: &Settings, host: &str) -> Option<Problem> {
    let what = format!("webhooks on {host} are reachable from other machines and use plain HTTP");
    let problem = Problem::warning(settings.origin(&keys::webhook::HOST).to_string(), what);
    (!is_loopback(host)).then(|| problem.next("put an HTTPS proxy in front, and listen on 127.0.0.1"))
}
