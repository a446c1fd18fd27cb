//! One route: its authentication, filter, text and delivery target, validated when it is parsed.

use std::collections::BTreeSet;

use petasos_core::message::Delivery;
use petasos_core::{Platform, Route, Secret};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::filter::PayloadFilter;
use super::template::{fill, fill_all, raw};
use crate::webhook::send;

/// As a secret: no authentication, on loopback only.
const NO_AUTH: &str = "INSECURE_NO_AUTH";
/// Names are part of a URL.
const MAX_NAME: usize = 64;

/// The configured platforms.
#[derive(Debug, Clone, Default)]
pub struct Targets(pub BTreeSet<Platform>);

#[derive(Debug, Clone)]
pub(in crate::webhook) struct RouteDefaults {
    pub(in crate::webhook) secret: Option<Secret>,
    /// Only programs on this machine can connect.
    pub(in crate::webhook) loopback: bool,
    pub(in crate::webhook) targets: Targets,
    pub(in crate::webhook) github: bool,
}

#[derive(Debug)]
pub(in crate::webhook) struct WebhookRoute {
    pub(in crate::webhook) auth: RouteAuth,
    pub(in crate::webhook) enabled: bool,
    /// All, if empty.
    pub(in crate::webhook) events: Vec<String>,
    pub(in crate::webhook) filter: PayloadFilter,
    /// Defaults to the whole payload.
    prompt: Option<String>,
    target: DeliveryTarget,
    /// Deliver the text without a turn.
    pub(in crate::webhook) deliver_only: bool,
}

#[derive(Debug)]
pub(in crate::webhook) enum RouteAuth {
    Secret(Secret),
    /// Every program on this machine may call.
    Open,
    /// No secret is set, so every call is refused.
    Missing,
}

#[derive(Debug)]
enum DeliveryTarget {
    /// The transcript only.
    Log,
    GitHubComment {
        repo: String,
        number: String,
    },
    Chat {
        platform: Platform,
        /// Chat and thread; defaults to the platform's home channel.
        chat: Option<(String, Option<String>)>,
    },
}

/// The format of the settings, with the unsupported keys of older files; other keys are errors.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRoute {
    #[serde(default)]
    secret: Option<String>,
    #[serde(default = "enabled_by_default")]
    enabled: bool,
    #[serde(default)]
    events: EventList,
    #[serde(default)]
    filters: Option<Value>,
    #[serde(default)]
    prompt: Option<String>,
    #[serde(default)]
    deliver: Option<String>,
    #[serde(default)]
    deliver_extra: Option<Map<String, Value>>,
    #[serde(default)]
    deliver_only: bool,
    #[serde(default, rename = "description")]
    _description: Option<Value>,
    #[serde(default, rename = "created_at")]
    _created_at: Option<Value>,
    #[serde(default)]
    skills: Option<Vec<Value>>,
    #[serde(default)]
    script: Option<Value>,
    #[serde(default)]
    cron_job: Option<Value>,
    #[serde(default)]
    coalesce: Option<Value>,
    #[serde(default)]
    profile: Option<Value>,
    #[serde(default)]
    toolsets: Option<Value>,
}

fn enabled_by_default() -> bool {
    true
}

#[derive(Debug, Default, Deserialize)]
#[serde(untagged, expecting = "events is a list of names, or one text with commas")]
enum EventList {
    #[default]
    None,
    One(String),
    Many(Vec<String>),
}

impl WebhookRoute {
    pub(in crate::webhook) fn parse(
        name: &str,
        written: &Value,
        defaults: &RouteDefaults,
    ) -> Result<Self, String> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(plain) {
            return Err(format!("a name has up to {MAX_NAME} letters, digits, '-', '_' and '.'"));
        }
        // Checked first: the parser's message would quote the secret.
        if written.get("secret").is_some_and(|secret| !secret.is_string() && !secret.is_null()) {
            return Err("its secret is not a text; put it in quotes".into());
        }
        let mut raw = RawRoute::deserialize(written).map_err(|error| error.to_string())?;
        refuse_unsupported(&raw)?;
        let target = DeliveryTarget::parse(&mut raw, defaults)?;
        if raw.deliver_only && matches!(target, DeliveryTarget::Log) {
            return Err(
                "deliver_only sends the text to a chat, so deliver must say where to (not log)".into()
            );
        }
        Ok(Self {
            auth: parse_auth(raw.secret, defaults)?,
            enabled: raw.enabled,
            events: match raw.events {
                EventList::None => vec![],
                EventList::One(names) => petasos_core::access::parse_list(&names),
                EventList::Many(names) => names,
            },
            filter: raw.filters.as_ref().map_or(Ok(PayloadFilter::All(vec![])), PayloadFilter::parse)?,
            prompt: raw.prompt.filter(|prompt| !prompt.trim().is_empty()),
            target,
            deliver_only: raw.deliver_only,
        })
    }

    pub(in crate::webhook) fn text(&self, payload: &Value) -> String {
        self.prompt.as_ref().map_or_else(|| raw(payload), |prompt| fill(prompt, payload))
    }

    /// `own_chat`: the chat of the delivery. `None`: the payload lacks a value that the target needs.
    pub(in crate::webhook) fn target(
        &self,
        payload: &Value,
        platform: Platform,
        own_chat: &str,
    ) -> Option<Route> {
        let route = |platform, chat_id, thread_id| Route {
            platform,
            chat_id,
            thread_id,
            reply_to: None,
            delivery: Delivery::Push,
        };
        Some(match &self.target {
            DeliveryTarget::Log => {
                Route { delivery: Delivery::Pull, ..route(platform, own_chat.to_owned(), None) }
            }
            DeliveryTarget::GitHubComment { repo, number } => {
                let issue = send::Issue::new(&fill_all(repo, payload)?, &fill_all(number, payload)?)?;
                route(platform, issue.to_string(), None)
            }
            DeliveryTarget::Chat { platform, chat: Some((chat, thread)) } => {
                // Without its thread, the message must not go to the chat.
                let thread = match thread {
                    Some(thread) => Some(fill_all(thread, payload)?),
                    None => None,
                };
                route(*platform, fill_all(chat, payload)?, thread)
            }
            DeliveryTarget::Chat { platform, chat: None } => Route::to_home(*platform),
        })
    }
}

/// Settings of older files that would change the meaning of the route if they were ignored.
fn refuse_unsupported(raw: &RawRoute) -> Result<(), String> {
    let unsupported = [
        ("script", raw.script.is_some(), "use filters instead"),
        ("cron_job", raw.cron_job.is_some(), "there are no scheduled jobs"),
        ("coalesce", raw.coalesce.is_some(), "every event starts its own turn"),
        ("profile", raw.profile.is_some(), "there is one profile"),
        ("toolsets", raw.toolsets.is_some(), "every turn has the same tools"),
    ];
    match unsupported.iter().find(|(_, set, _)| *set) {
        Some((name, _, why)) => Err(format!("{name} is not supported: {why}")),
        None => Ok(()),
    }
}

fn parse_auth(own: Option<String>, defaults: &RouteDefaults) -> Result<RouteAuth, String> {
    let secret = own.map(Secret::new).or_else(|| defaults.secret.clone());
    let secret = secret.filter(|secret| !secret.expose().trim().is_empty());
    match secret {
        None => Ok(RouteAuth::Missing),
        Some(secret) if secret.expose() != NO_AUTH => Ok(RouteAuth::Secret(secret)),
        Some(_) if defaults.loopback => Ok(RouteAuth::Open),
        Some(_) => Err(format!(
            "{NO_AUTH} works only for listeners on 127.0.0.1: on this host, strangers could start turns"
        )),
    }
}

impl DeliveryTarget {
    fn parse(raw: &mut RawRoute, defaults: &RouteDefaults) -> Result<Self, String> {
        let mut extra = raw.deliver_extra.take().unwrap_or_default();
        let mut take = |name: &str| match extra.remove(name) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text),
            Some(other) => Some(other.to_string()),
        };
        let name = raw.deliver.as_deref().unwrap_or("log");
        let target = match name {
            "log" => Self::Log,
            "github_comment" => {
                let repo = take("repo").ok_or("github_comment needs deliver_extra.repo (owner/name)")?;
                let number = take("pr_number").or_else(|| take("issue_number"));
                let number = number.ok_or("github_comment needs deliver_extra.pr_number")?;
                if !defaults.github {
                    return Err("github_comment needs a token: set GITHUB_TOKEN in .env".into());
                }
                Self::GitHubComment { repo, number }
            }
            name => {
                let platform = Platform::parse(name).filter(|it| it.as_str() == name);
                let Some(platform) = platform.filter(|platform| defaults.targets.0.contains(platform)) else {
                    return Err(format!("deliver: {name} is not a platform of this gateway"));
                };
                let thread = take("message_thread_id").or_else(|| take("thread_id"));
                Self::Chat { platform, chat: take("chat_id").map(|chat| (chat, thread)) }
            }
        };
        match extra.keys().next() {
            Some(unknown) => Err(format!("deliver_extra.{unknown} has no effect for {name}")),
            None => Ok(target),
        }
    }
}

/// The platform to whose home channel answers go, if any.
pub fn home_platform(written: &Value) -> Option<Platform> {
    let raw = RawRoute::deserialize(written).ok()?;
    let named = raw.deliver_extra.is_some_and(|extra| extra.get("chat_id").is_some_and(|it| !it.is_null()));
    raw.deliver.as_deref().and_then(Platform::parse).filter(|_| !named)
}

/// A setting of the route that has no effect, if any.
pub fn ineffective_setting(written: &Value) -> Option<&'static str> {
    let skills = RawRoute::deserialize(written).ok().and_then(|raw| raw.skills);
    skills.filter(|skills| !skills.is_empty()).map(|_| "skills")
}

#[cfg(test)]
#[path = "route_tests.rs"]
mod tests;
