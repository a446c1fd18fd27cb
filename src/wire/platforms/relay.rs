//! Builds the relay: one adapter for each platform that a connector fronts.

use std::time::Duration;

use petasos_config::choices::SleepAction;
use petasos_config::keys::{self, any};
use petasos_config::{Problem, Settings};
use petasos_core::access::Bots;
use petasos_core::link::reconnect;
use petasos_core::{GatewayId, InstanceId, Platform};
use petasos_gateway::{IdleSettings, SuspendMethod};
use petasos_platforms::relay::{self, Config, Credentials, Grant, Identity, Policy, Provision};
use petasos_platforms::{Adapter, Secret};
use petasos_relay::ChannelPolicy;
use serde_json::Value;

use super::BuiltAdapter;
use super::credential::{self, Enabled};
use crate::wire::access;

const MAX_RECONNECT_WAIT: Duration = Duration::from_secs(30);

/// `others`: platforms with a native adapter, which are not fronted.
pub(super) fn build(
    settings: &Settings,
    others: &[BuiltAdapter],
    problems: &mut Vec<Problem>,
) -> Vec<BuiltAdapter> {
    let enabled = credential::enabled(settings, &keys::relay::ENABLED);
    if enabled == Enabled::No {
        return Vec::new();
    }
    let Some(url) = url(settings) else {
        if enabled == Enabled::Yes {
            let place = settings.origin(&keys::relay::ENABLED).to_string();
            let problem =
                Problem::error(place, "platforms.relay is enabled, but no connector address is set");
            problems.push(problem.next("set GATEWAY_RELAY_URL in .env"));
        }
        return Vec::new();
    };
    let Some(identities) = identities(settings, others, problems) else { return Vec::new() };
    let provision = provision(settings, problems);
    let config = config(settings, url, identities, provision);
    let id = config.credentials.as_ref().map(|credentials| Secret::new(credentials.gateway_id.as_str()));
    match relay::adapters(config) {
        Ok(relays) => {
            // Two gateways with one id would disconnect each other endlessly.
            let mut bot_lock = id.map(|identity| ("relay-gateway-id", identity));
            let built = |relay| BuiltAdapter { adapter: Adapter::Relay(relay), bot_lock: bot_lock.take() };
            relays.into_iter().map(built).collect()
        }
        Err(invalid) => {
            let problem = Problem::error(settings.origin(&keys::relay::URL).to_string(), invalid.to_string());
            problems.push(
                problem.next("set GATEWAY_RELAY_URL to an address such as https://connector.example.org"),
            );
            Vec::new()
        }
    }
}

pub(crate) fn url(settings: &Settings) -> Option<String> {
    let url = settings.get(&keys::relay::URL)?.trim().trim_end_matches('/').to_owned();
    (!url.is_empty()).then_some(url)
}

/// The platforms to front. `None` if platforms were named and none of them can be fronted; empty to accept
/// every platform of the connector.
fn identities(
    settings: &Settings,
    others: &[BuiltAdapter],
    problems: &mut Vec<Problem>,
) -> Option<Vec<Identity>> {
    let names = settings.get(&keys::relay::PLATFORMS);
    let bots = bot_ids(settings, problems);
    let place = settings.origin(&keys::relay::PLATFORMS).to_string();
    let mut identities: Vec<Identity> = Vec::new();
    for name in names.iter().map(|name| name.trim()).filter(|name| !name.is_empty()) {
        let Some(platform) = Platform::parse(name) else {
            problems
                .push(Problem::warning(place.clone(), format!("{name} is not a platform; it is ignored")));
            continue;
        };
        if others.iter().any(|other| other.adapter.platform() == platform) {
            let what = format!("{name} has its own credentials, so it does not use the relay");
            problems.push(Problem::warning(place.clone(), what));
            continue;
        }
        if identities.iter().all(|known| known.platform != platform) {
            let bot_id = bots.get(platform.as_str()).and_then(|bot| text(bot, "botId")).unwrap_or_default();
            identities.push(Identity { platform, bot_id });
        }
    }
    let some = names.iter().any(|name| !name.trim().is_empty());
    (!some || !identities.is_empty()).then_some(identities)
}

/// An unreadable table counts as empty; the connector then supplies the bot ids.
fn bot_ids(settings: &Settings, problems: &mut Vec<Problem>) -> Value {
    let read = match settings.get(&keys::relay::BOT_IDS) {
        Some(Value::String(written)) => serde_json::from_str(&written).unwrap_or_default(),
        Some(table) => table,
        None => return Value::Null,
    };
    if !read.is_object() {
        let what = "gateway.relay_bot_ids is not a table of platforms; it is ignored";
        problems.push(Problem::warning(settings.origin(&keys::relay::BOT_IDS).to_string(), what));
    }
    read
}

fn text(table: &Value, name: &str) -> Option<String> {
    match table.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _other => None,
    }
}

fn provision(settings: &Settings, problems: &mut Vec<Problem>) -> Option<Provision> {
    let token_url = settings.get(&keys::relay::IDP_TOKEN_URL)?;
    let id = settings.get(&keys::relay::IDP_CLIENT_ID);
    let secret = settings.get(&keys::relay::IDP_CLIENT_SECRET);
    let (Some(client_id), Some(client_secret)) = (id, secret) else {
        let what = "gateway.idp.token_url is set, but the client id or secret is missing";
        let problem = Problem::warning(settings.origin(&keys::relay::IDP_TOKEN_URL).to_string(), what);
        problems.push(
            problem.next("set GATEWAY_RELAY_IDP_CLIENT_ID and GATEWAY_RELAY_IDP_CLIENT_SECRET in .env"),
        );
        return None;
    };
    let scope = settings.get(&keys::relay::IDP_SCOPE);
    Some(Provision {
        gateway_id: gateway_id(settings),
        route_keys: settings.get(&keys::relay::ROUTE_KEYS),
        instance_id: settings.get(&keys::relay::INSTANCE_ID).map(InstanceId),
        wake_url: settings.get(&keys::relay::WAKE_URL),
        grant: Grant { token_url, client_id, client_secret, scope },
    })
}

/// As configured, or derived from the host name. If the id is taken, the connector assigns another one.
pub(crate) fn gateway_id(settings: &Settings) -> GatewayId {
    GatewayId(settings.get(&keys::relay::ID).unwrap_or_else(default_id))
}

fn default_id() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    let host: String = host.trim().chars().filter(plain).take(64).collect();
    format!("gw-{}", if host.is_empty() { "petasos" } else { &host })
}

pub(crate) fn grant(settings: &Settings) -> Option<Grant> {
    provision(settings, &mut Vec::new()).map(|provision| provision.grant)
}

fn config(
    settings: &Settings,
    url: String,
    identities: Vec<Identity>,
    provision: Option<Provision>,
) -> Config {
    let credentials = settings.get(&keys::relay::ID).zip(settings.get(&keys::relay::SECRET));
    let policy = |identity: &Identity| policy(settings, identity.platform);
    Config {
        policies: identities.iter().map(policy).collect(),
        identities,
        credentials: credentials.map(|(id, secret)| Credentials { gateway_id: GatewayId(id), secret }),
        provision,
        wake_url: settings.get(&keys::relay::WAKE_URL),
        terms: ChannelPolicy { redial: reconnect_policy(settings), ..ChannelPolicy::default() },
        answer_timeout: settings.get(&keys::relay::ANSWER_TIMEOUT),
        ..Config::new(url)
    }
}

fn reconnect_policy(settings: &Settings) -> reconnect::ReconnectPolicy {
    let base = settings.get(&keys::relay::RECONNECT_BASE).min(MAX_RECONNECT_WAIT);
    let policy = reconnect::ReconnectPolicy::relay(base, MAX_RECONNECT_WAIT);
    if settings.get(&keys::relay::RETRY_DENIAL) { policy } else { policy.without_retry_of_denial() }
}

/// Idle settings. A sleep delay of zero means the default.
pub(crate) fn idle_settings(settings: &Settings) -> IdleSettings {
    let default = IdleSettings::default();
    let minutes = settings.get(&keys::relay::SLEEP_AFTER_MINUTES);
    let after = Duration::try_from_secs_f64(minutes * 60.0).ok().filter(|it| !it.is_zero());
    IdleSettings {
        wanted: settings.get(&keys::relay::SLEEP),
        wake_url: settings.get(&keys::relay::WAKE_URL).is_some_and(|url| !url.trim().is_empty()),
        after: after.unwrap_or(default.after),
        method: match (settings.get(&keys::relay::SLEEP_ACTION), settings.get(&keys::relay::SLEEP_COMMAND)) {
            (SleepAction::Exit, _) => SuspendMethod::Exit,
            (SleepAction::Command, Some(command)) => SuspendMethod::Command(command),
            (SleepAction::Command, None) | (SleepAction::None, _) => SuspendMethod::None,
        },
        tick: settings.get(&keys::relay::SLEEP_TICK).max(Duration::from_millis(10)),
    }
}

fn policy(settings: &Settings, platform: Platform) -> Policy {
    // The platform's setting, else the setting for all platforms, else the platform's default.
    let of_platform = settings.on(platform, &any::REQUIRE_MENTION);
    let for_all = settings.get(&keys::relay::REQUIRE_MENTION);
    let for_all = for_all.filter(|_| !settings.is_set_on(platform, &any::REQUIRE_MENTION));
    Policy {
        platform,
        require_address: for_all.unwrap_or(of_platform),
        free_response_scopes: settings.on(platform, &any::FREE_CHANNELS),
        allow_other_bots: access::bots(settings, platform) != Bots::None,
    }
}
