//! Webhook routes: the strength of their secrets, and what their turns may do.

use std::collections::BTreeMap;

use petasos_config::keys::webhook;
use petasos_config::{Home, Settings};
use serde_json::{Map, Value};

use super::{Check, Weakness};
use crate::wire::{is_placeholder, webhook_subscriptions};

/// A guess per millisecond finds a shorter random secret of letters and digits within years.
const MIN_SECRET: usize = 16;
/// Tools with which the text of a delivery can do harm.
const STRONG_TOOLS: [&str; 6] = ["terminal", "process", "write_file", "patch", "send_message", "cronjob"];
const GUESSED: &str = "An attacker who guesses the secret can start turns with any text.";
const OPEN: &str = "Every program on this machine can start turns.";
const SHARED: &str = "A sender that knows the secret of another can imitate it.";
const STRANGERS: &str = "The text of a delivery may come from a stranger, for example a comment.";

pub(super) fn weaknesses(home: &Home, settings: &Settings) -> Vec<Weakness> {
    let mut routes: BTreeMap<String, Option<String>> = BTreeMap::new();
    let configured = match settings.get(&webhook::ROUTES) {
        Some(Value::Object(routes)) => routes,
        Some(_) | None => Map::new(),
    };
    for (name, route) in configured.into_iter().chain(subscribed(home)) {
        let off = route["enabled"] == Value::Bool(false);
        let secret = route["secret"].as_str().map(str::to_owned);
        if !off {
            routes.insert(name, secret);
        }
    }
    if routes.is_empty() {
        return vec![];
    }
    let common = settings.get(&webhook::SECRET).map(|secret| secret.expose().to_owned());
    let mut found: Vec<_> =
        routes.iter().filter_map(|(name, own)| secret(name, own.as_ref().or(common.as_ref())?)).collect();
    found.extend(shared(&routes));
    let tools = settings.get(&webhook::TOOLS);
    found.extend(tools.iter().filter(|tool| STRONG_TOOLS.contains(&tool.as_str())).map(|tool| {
        let what = format!("turns of webhooks may use {tool}");
        Weakness::moderate(Check::Webhooks, what, STRANGERS, format!("remove {tool} from {}", webhook::TOOLS))
    }));
    found
}

/// Routes that were added at run time; an unreadable file has none.
fn subscribed(home: &Home) -> Map<String, Value> {
    let text = std::fs::read(webhook_subscriptions(home)).unwrap_or_default();
    match serde_json::from_slice(&text) {
        Ok(Value::Object(routes)) => routes,
        Ok(_) | Err(_) => Map::new(),
    }
}

fn secret(route: &str, secret: &str) -> Option<Weakness> {
    let fix =
        format!("openssl rand -hex 32 prints a good one; set it as the secret of {route} and of its sender");
    if secret == "INSECURE_NO_AUTH" {
        return Some(Weakness::moderate(
            Check::Webhooks,
            format!("the route {route} has no secret"),
            OPEN,
            fix,
        ));
    }
    let weak = secret.chars().count() < MIN_SECRET || is_placeholder(secret);
    weak.then(|| {
        Weakness::serious(Check::Webhooks, format!("the secret of the route {route} is weak"), GUESSED, fix)
    })
}

fn shared(routes: &BTreeMap<String, Option<String>>) -> Option<Weakness> {
    let (first, second) = routes.iter().enumerate().find_map(|(at, (name, secret))| {
        let other = routes.iter().skip(at + 1).find(|(_, other)| *other == secret);
        other.map(|(other, _)| (name, other))
    })?;
    let what = format!("the routes {first} and {second} have the same secret");
    Some(Weakness::moderate(Check::Webhooks, what, SHARED, "give each route a secret of its own"))
}
