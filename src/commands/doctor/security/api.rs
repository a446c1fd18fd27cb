//! Keys of the API, their scopes, and CORS.

use petasos_config::Settings;
use petasos_config::keys::web;
use serde_json::Value;

use super::listeners::is_plain;
use super::{Check, Weakness};

const SCOPES: &str = "A thief of the key can answer approvals, read every conversation and stop the gateway.";
const ORIGINS: &str = "A web page of that origin, in a browser that has a key, can use the agent.";

pub(super) fn weaknesses(settings: &Settings) -> Vec<Weakness> {
    unlimited_keys(settings).into_iter().chain(origins(settings)).collect()
}

fn unlimited_keys(settings: &Settings) -> Vec<Weakness> {
    let weakness = |name: &str| {
        let fix = format!("give the key only the scopes that its program needs: {name}.scopes: [agent]");
        Weakness::moderate(Check::Api, format!("the API key {name} has every scope"), SCOPES, fix)
    };
    let named = match settings.get(&web::API_KEYS) {
        Some(Value::Object(named)) => named,
        Some(_) | None => serde_json::Map::new(),
    };
    let unlimited = named.iter().filter(|(_, key)| key["scopes"].is_null());
    unlimited.map(|(name, _)| weakness(&format!("{}.{name}", web::API_KEYS))).collect()
}

fn origins(settings: &Settings) -> Vec<Weakness> {
    let weakness = |origin: String| {
        let fix = format!("list exact https:// origins in {}", web::API_ORIGINS);
        if origin == "*" {
            let what = format!("{} allows every web page", web::API_ORIGINS);
            return Some(Weakness::serious(Check::Api, what, ORIGINS, fix));
        }
        let what = format!("{} allows {origin}, which others on the network can imitate", web::API_ORIGINS);
        is_plain(&origin).then(|| Weakness::moderate(Check::Api, what, ORIGINS, fix))
    };
    settings.get(&web::API_ORIGINS).into_iter().filter_map(weakness).collect()
}
