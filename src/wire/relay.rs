//! The relay, if there is to be one: an adapter for each platform that a connector fronts for us.

use std::time::Duration;

use petasos_core::Platform;
use petasos_core::access::Bots;
use petasos_core::link::redial;
use petasos_core::relay::Terms;
use petasos_gateway::{Doze, Lever};
use petasos_platforms::relay::{self, Config, Credentials, Grant, Identity, Policy, Provision};
use petasos_platforms::{Adapter, Secret};
use serde_json::Value;

use super::credential::{self, Wanted};
use super::{Spoken, access, seconds};
use crate::config::{Problem, Settings};

const URL: &str = "gateway.relay_url";
const PLATFORMS: &str = "gateway.relay_platforms";
const TOKEN_URL: &str = "gateway.idp.token_url";
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// `others`: what we speak ourselves is not fronted.
pub(super) fn spoken(settings: &Settings, others: &[Spoken], problems: &mut Vec<Problem>) -> Vec<Spoken> {
    let wanted = credential::wanted(settings, "relay");
    if wanted == Wanted::No {
        return Vec::new();
    }
    let Some(url) = url(settings) else {
        if wanted == Wanted::Yes {
            let place = settings.origin("platforms.relay.enabled").to_string();
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
            let problem = Problem::error(settings.origin(URL).to_string(), invalid.to_string());
            problems.push(problem.next("GATEWAY_RELAY_URL looks like https://connector.example.org"));
            Vec::new()
        }
    }
}

pub(crate) fn url(settings: &Settings) -> Option<String> {
    let url = settings.text(URL)?.trim().trim_end_matches('/').to_owned();
    (!url.is_empty()).then_some(url)
}

/// `None`: there were some, and none of them can be fronted. Empty: whatever the connector has for us.
fn identities(settings: &Settings, others: &[Spoken], problems: &mut Vec<Problem>) -> Option<Vec<Identity>> {
    let names = settings.list(PLATFORMS);
    let bots = bot_ids(settings, problems);
    let place = settings.origin(PLATFORMS).to_string();
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
    let path = "gateway.relay_bot_ids";
    let read = match settings.value(path) {
        Some(Value::String(written)) => serde_json::from_str(&written).unwrap_or_default(),
        Some(table) => table,
        None => return Value::Null,
    };
    if !read.is_object() {
        let what = "gateway.relay_bot_ids is no table of platforms; it is left out";
        problems.push(Problem::warning(settings.origin(path).to_string(), what));
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
    let token_url = settings.text(TOKEN_URL)?;
    let (id, secret) = (settings.text("gateway.idp.client_id"), settings.text("gateway.idp.client_secret"));
    let (Some(client_id), Some(client_secret)) = (id, secret) else {
        let what = "gateway.idp.token_url is set, but not who we are there";
        let problem = Problem::warning(settings.origin(TOKEN_URL).to_string(), what);
        problems.push(
            problem.next("set GATEWAY_RELAY_IDP_CLIENT_ID and GATEWAY_RELAY_IDP_CLIENT_SECRET in .env"),
        );
        return None;
    };
    let scope = settings.text("gateway.idp.scope");
    Some(Provision {
        gateway_id: settings.text("gateway.relay_id").unwrap_or_else(default_id),
        route_keys: settings.list("gateway.relay_route_keys"),
        instance_id: settings.text("gateway.relay_instance_id"),
        wake_url: settings.text("gateway.relay_wake_url"),
        grant: Grant { token_url, client_id, client_secret: Secret::new(client_secret), scope },
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
    let credentials = settings.text("gateway.relay_id").zip(settings.text("gateway.relay_secret"));
    let policy = |identity: &Identity| policy(settings, identity.platform);
    Config {
        policies: identities.iter().map(policy).collect(),
        identities,
        credentials: credentials
            .map(|(gateway_id, secret)| Credentials { gateway_id, secret: Secret::new(secret) }),
        provision,
        wake_url: settings.text("gateway.relay_wake_url"),
        terms: Terms { redial: redial(settings), ..Terms::default() },
        answer_timeout: seconds(settings, "gateway.relay_answer_timeout"),
        ..Config::new(url)
    }
}

fn redial(settings: &Settings) -> redial::Policy {
    let base = seconds(settings, "gateway.relay_reconnect_base").min(LONGEST_WAIT);
    let policy = redial::Policy::relay(base, LONGEST_WAIT);
    match settings.flag("gateway.relay_auth_retry_once") {
        true => policy,
        false => policy.without_retry_of_denial(),
    }
}

/// When and how we sleep. Only a wait that means something counts.
pub(super) fn doze(settings: &Settings) -> Doze {
    let path = |name: &str| format!("gateway.scale_to_zero.{name}");
    let usual = Doze::default();
    let minutes = settings.number(&path("idle_timeout_minutes"));
    let after = Duration::try_from_secs_f64(minutes * 60.0).ok().filter(|it| !it.is_zero());
    Doze {
        wanted: settings.flag(&path("enabled")),
        wake_url: settings.text("gateway.relay_wake_url").is_some_and(|url| !url.trim().is_empty()),
        after: after.unwrap_or(usual.after),
        lever: match (settings.text(&path("action")).as_deref(), settings.text(&path("command"))) {
            (Some("exit"), _) => Lever::Exit,
            (Some("command"), Some(command)) => Lever::Command(command),
            (_none, _) => Lever::None,
        },
        tick: seconds(settings, &path("tick_seconds")).max(Duration::from_millis(10)),
    }
}

fn policy(settings: &Settings, platform: Platform) -> Policy {
    let path = |name: &str| format!("platforms.{platform}.{name}");
    // Of this platform, else of all of them, else as it is usual there.
    let of_platform = path("require_mention");
    let for_all = settings.is_set("require_mention") && !settings.is_set(&of_platform);
    let require_mention = if for_all { "require_mention" } else { &of_platform };
    Policy {
        platform,
        require_address: settings.flag(require_mention),
        free_response_scopes: settings.list(&path("free_response_channels")),
        allow_other_bots: access::bots(settings, platform.as_str()) != Bots::None,
    }
}
