//! The relay, if there is to be one: an adapter for each platform that a connector fronts for us.

use std::time::Duration;

use petasos_config::choices::SleepAction;
use petasos_config::keys::{self, any};
use petasos_config::{Problem, Settings};
use petasos_core::Platform;
use petasos_core::access::Bots;
use petasos_core::link::redial;
use petasos_gateway::{Doze, Lever};
use petasos_platforms::relay::{self, Config, Credentials, Grant, Identity, Policy, Provision};
use petasos_platforms::{Adapter, Secret};
use petasos_relay::Terms;
use serde_json::Value;

use super::credential::{self, Wanted};
use super::{Spoken, access};

const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// `others`: what we speak ourselves is not fronted.
pub(super) fn spoken(settings: &Settings, others: &[Spoken], problems: &mut Vec<Problem>) -> Vec<Spoken> {
    let wanted = credential::wanted(settings, &keys::relay::ENABLED);
    if wanted == Wanted::No {
        return Vec::new();
    }
    let Some(url) = url(settings) else {
        if wanted == Wanted::Yes {
            let place = settings.origin(&keys::relay::ENABLED).to_string();
            let problem =
                Problem::error(place, "platforms.relay is enabled, but there is no address of a connector");
            problems.push(problem.next("set GATEWAY_RELAY_URL in .env"));
        }
        return Vec::new();
    };
    let Some(identities) = identities(settings, others, problems) else { return Vec::new() };
    let provision = provision(settings, problems);
    let config = config(settings, url, identities, provision);
    let id = config.credentials.as_ref().map(|credentials| Secret::new(credentials.gateway_id.clone()));
    match relay::adapters(config) {
        Ok(relays) => {
            // Two gateways of one name would take the connection from each other, for ever.
            let mut sole = id.map(|identity| ("relay-gateway-id", identity));
            let spoken = |relay| Spoken { adapter: Adapter::Relay(relay), sole: sole.take() };
            relays.into_iter().map(spoken).collect()
        }
        Err(invalid) => {
            let problem = Problem::error(settings.origin(&keys::relay::URL).to_string(), invalid.to_string());
            problems.push(problem.next("GATEWAY_RELAY_URL looks like https://connector.example.org"));
            Vec::new()
        }
    }
}

pub(crate) fn url(settings: &Settings) -> Option<String> {
    let url = settings.get(&keys::relay::URL)?.trim().trim_end_matches('/').to_owned();
    (!url.is_empty()).then_some(url)
}

/// `None`: there were some, and none of them can be fronted. Empty: whatever the connector has for us.
fn identities(settings: &Settings, others: &[Spoken], problems: &mut Vec<Problem>) -> Option<Vec<Identity>> {
    let names = settings.get(&keys::relay::PLATFORMS);
    let bots = bot_ids(settings, problems);
    let place = settings.origin(&keys::relay::PLATFORMS).to_string();
    let mut identities: Vec<Identity> = Vec::new();
    for name in names.iter().map(|name| name.trim()).filter(|name| !name.is_empty()) {
        let Some(platform) = Platform::parse(name) else {
            problems.push(Problem::warning(place.clone(), format!("{name} is no platform; it is left out")));
            continue;
        };
        if others.iter().any(|other| other.adapter.platform() == platform) {
            let what = format!("{name} has credentials here, so it does not come over the relay");
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

/// What cannot be read is none: the connector then says who we are.
fn bot_ids(settings: &Settings, problems: &mut Vec<Problem>) -> Value {
    let read = match settings.get(&keys::relay::BOT_IDS) {
        Some(Value::String(written)) => serde_json::from_str(&written).unwrap_or_default(),
        Some(table) => table,
        None => return Value::Null,
    };
    if !read.is_object() {
        let what = "gateway.relay_bot_ids is no table of platforms; it is left out";
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
    let (id, secret) =
        (settings.get(&keys::relay::IDP_CLIENT_ID), settings.get(&keys::relay::IDP_CLIENT_SECRET));
    let (Some(client_id), Some(client_secret)) = (id, secret) else {
        let what = "gateway.idp.token_url is set, but not who we are there";
        let problem = Problem::warning(settings.origin(&keys::relay::IDP_TOKEN_URL).to_string(), what);
        problems.push(
            problem.next("set GATEWAY_RELAY_IDP_CLIENT_ID and GATEWAY_RELAY_IDP_CLIENT_SECRET in .env"),
        );
        return None;
    };
    let scope = settings.get(&keys::relay::IDP_SCOPE);
    Some(Provision {
        gateway_id: settings.get(&keys::relay::ID).unwrap_or_else(default_id),
        route_keys: settings.get(&keys::relay::ROUTE_KEYS),
        instance_id: settings.get(&keys::relay::INSTANCE_ID),
        wake_url: settings.get(&keys::relay::WAKE_URL),
        grant: Grant { token_url, client_id, client_secret, scope },
    })
}

/// The machine's name. It may belong to somebody else at the connector, which then gives us another one.
pub(crate) fn default_id() -> String {
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
        credentials: credentials.map(|(gateway_id, secret)| Credentials { gateway_id, secret }),
        provision,
        wake_url: settings.get(&keys::relay::WAKE_URL),
        terms: Terms { redial: redial(settings), ..Terms::default() },
        answer_timeout: settings.get(&keys::relay::ANSWER_TIMEOUT),
        ..Config::new(url)
    }
}

fn redial(settings: &Settings) -> redial::Policy {
    let base = settings.get(&keys::relay::RECONNECT_BASE).min(LONGEST_WAIT);
    let policy = redial::Policy::relay(base, LONGEST_WAIT);
    match settings.get(&keys::relay::RETRY_DENIAL) {
        true => policy,
        false => policy.without_retry_of_denial(),
    }
}

/// When and how we sleep. Only a wait that means something counts.
pub(super) fn doze(settings: &Settings) -> Doze {
    let usual = Doze::default();
    let minutes = settings.get(&keys::relay::SLEEP_AFTER_MINUTES);
    let after = Duration::try_from_secs_f64(minutes * 60.0).ok().filter(|it| !it.is_zero());
    Doze {
        wanted: settings.get(&keys::relay::SLEEP),
        wake_url: settings.get(&keys::relay::WAKE_URL).is_some_and(|url| !url.trim().is_empty()),
        after: after.unwrap_or(usual.after),
        lever: match (settings.get(&keys::relay::SLEEP_ACTION), settings.get(&keys::relay::SLEEP_COMMAND)) {
            (SleepAction::Exit, _) => Lever::Exit,
            (SleepAction::Command, Some(command)) => Lever::Command(command),
            (SleepAction::Command, None) | (SleepAction::None, _) => Lever::None,
        },
        tick: settings.get(&keys::relay::SLEEP_TICK).max(Duration::from_millis(10)),
    }
}

fn policy(settings: &Settings, platform: Platform) -> Policy {
    // Of this platform, else of all of them, else as it is usual there.
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
