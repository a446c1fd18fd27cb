//! One route: who may call it, what it is about, and where the answer goes. What was typed becomes what it means
//! here; nobody checks again.

use std::collections::BTreeSet;

use petasos_core::message::Delivery;
use petasos_core::{Platform, Route, Secret};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::filter::Filter;
use super::send;
use super::template::{fill, fill_all, raw};

/// What a secret must not be, unless only this machine can call.
const NO_AUTH: &str = "INSECURE_NO_AUTH";
/// Names of routes are part of an address.
const LONGEST_NAME: usize = 64;

/// Where answers may go: the platforms that this gateway speaks.
#[derive(Debug, Clone, Default)]
pub struct Targets(pub BTreeSet<Platform>);

/// What every route shares.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) secret: Option<Secret>,
    /// Only programs on this machine can call.
    pub(super) loopback: bool,
    pub(super) targets: Targets,
    /// There is a token for comments on GitHub.
    pub(super) github: bool,
}

#[derive(Debug)]
pub(super) struct Hook {
    pub(super) key: Key,
    pub(super) enabled: bool,
    /// Any, if empty.
    pub(super) events: Vec<String>,
    pub(super) filter: Filter,
    /// The whole payload, if there is none.
    prompt: Option<String>,
    deliver: Deliver,
    /// The text is passed on as it is, without a turn.
    pub(super) deliver_only: bool,
}

/// How a caller shows that it may.
#[derive(Debug)]
pub(super) enum Key {
    Secret(Secret),
    /// Anybody on this machine may.
    Open,
    /// Nobody may: there is no secret.
    Missing,
}

#[derive(Debug)]
enum Deliver {
    /// Nowhere but into the transcript.
    Log,
    GitHubComment {
        repo: String,
        number: String,
    },
    Chat {
        platform: Platform,
        /// The platform's home, if there is none.
        chat: Option<(String, Option<String>)>,
    },
}

/// As it stands in a file. Keys that older files hold and that mean nothing here are named, so that a slip is seen.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(default)]
    secret: Option<String>,
    #[serde(default = "yes")]
    enabled: bool,
    #[serde(default)]
    events: Words,
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

fn yes() -> bool {
    true
}

#[derive(Debug, Default, Deserialize)]
#[serde(untagged, expecting = "events is a list of names, or one text with commas")]
enum Words {
    #[default]
    None,
    One(String),
    Many(Vec<String>),
}

impl Hook {
    pub(super) fn parse(name: &str, written: &Value, terms: &Terms) -> Result<Self, String> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(plain) {
            return Err(format!("a name has up to {LONGEST_NAME} letters, digits, '-', '_' and '.'"));
        }
        // Said here, because the words of a reader that meets a number quote it.
        if written.get("secret").is_some_and(|secret| !secret.is_string() && !secret.is_null()) {
            return Err("its secret is no text; put it in quotes".into());
        }
        let mut raw = Raw::deserialize(written).map_err(|error| error.to_string())?;
        not_here(&raw)?;
        let deliver = Deliver::parse(&mut raw, terms)?;
        if raw.deliver_only && matches!(deliver, Deliver::Log) {
            return Err("deliver_only passes messages on, so deliver must say where to (not log)".into());
        }
        Ok(Self {
            key: key(raw.secret, terms)?,
            enabled: raw.enabled,
            events: match raw.events {
                Words::None => vec![],
                Words::One(words) => petasos_core::access::list(&words),
                Words::Many(words) => words,
            },
            filter: raw.filters.as_ref().map_or(Ok(Filter::All(vec![])), Filter::parse)?,
            prompt: raw.prompt.filter(|prompt| !prompt.trim().is_empty()),
            deliver,
            deliver_only: raw.deliver_only,
        })
    }

    /// What the agent, or the chat, is to read.
    pub(super) fn text(&self, payload: &Value) -> String {
        self.prompt.as_ref().map_or_else(|| raw(payload), |prompt| fill(prompt, payload))
    }

    /// Where the answer to this payload goes; `here` names the delivery. `None`: the payload does not say.
    pub(super) fn target(&self, payload: &Value, platform: Platform, here: &str) -> Option<Route> {
        let route = |platform, chat_id, thread_id| Route {
            platform,
            chat_id,
            thread_id,
            reply_to: None,
            delivery: Delivery::Push,
        };
        Some(match &self.deliver {
            Deliver::Log => Route { delivery: Delivery::Pull, ..route(platform, here.to_owned(), None) },
            Deliver::GitHubComment { repo, number } => {
                let issue = send::Issue::new(&fill_all(repo, payload)?, &fill_all(number, payload)?)?;
                route(platform, issue.to_string(), None)
            }
            Deliver::Chat { platform, chat: Some((chat, thread)) } => {
                // A thread that the payload does not name is not the chat itself.
                let thread = match thread {
                    Some(thread) => Some(fill_all(thread, payload)?),
                    None => None,
                };
                route(*platform, fill_all(chat, payload)?, thread)
            }
            Deliver::Chat { platform, chat: None } => Route::to_home(*platform),
        })
    }
}

/// What would change the meaning of a route if it were passed over.
fn not_here(raw: &Raw) -> Result<(), String> {
    let unknown = [
        ("script", raw.script.is_some(), "filters may say the same"),
        ("cron_job", raw.cron_job.is_some(), "there are no scheduled jobs"),
        ("coalesce", raw.coalesce.is_some(), "every event is a turn of its own"),
        ("profile", raw.profile.is_some(), "there is one profile"),
        ("toolsets", raw.toolsets.is_some(), "every turn has the same tools"),
    ];
    match unknown.iter().find(|(_, set, _)| *set) {
        Some((name, _, why)) => Err(format!("{name} is not known here: {why}")),
        None => Ok(()),
    }
}

fn key(own: Option<String>, terms: &Terms) -> Result<Key, String> {
    let secret = own.map(Secret::new).or_else(|| terms.secret.clone());
    let secret = secret.filter(|secret| !secret.expose().trim().is_empty());
    match secret {
        None => Ok(Key::Missing),
        Some(secret) if secret.expose() != NO_AUTH => Ok(Key::Secret(secret)),
        Some(_) if terms.loopback => Ok(Key::Open),
        Some(_) => Err(format!("{NO_AUTH} is for listeners on 127.0.0.1: here anybody could start turns")),
    }
}

impl Deliver {
    fn parse(raw: &mut Raw, terms: &Terms) -> Result<Self, String> {
        let mut extra = raw.deliver_extra.take().unwrap_or_default();
        let mut take = |name: &str| match extra.remove(name) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text),
            Some(other) => Some(other.to_string()),
        };
        let name = raw.deliver.as_deref().unwrap_or("log");
        let deliver = match name {
            "log" => Self::Log,
            "github_comment" => {
                let repo = take("repo").ok_or("github_comment needs deliver_extra.repo (owner/name)")?;
                let number = take("pr_number").or_else(|| take("issue_number"));
                let number = number.ok_or("github_comment needs deliver_extra.pr_number")?;
                if !terms.github {
                    return Err("github_comment needs a token: set GITHUB_TOKEN in .env".into());
                }
                Self::GitHubComment { repo, number }
            }
            name => {
                let platform = Platform::parse(name).filter(|it| it.as_str() == name);
                let Some(platform) = platform.filter(|platform| terms.targets.0.contains(platform)) else {
                    return Err(format!("deliver: {name} is not a platform that this gateway speaks"));
                };
                let thread = take("message_thread_id").or_else(|| take("thread_id"));
                Self::Chat { platform, chat: take("chat_id").map(|chat| (chat, thread)) }
            }
        };
        match extra.keys().next() {
            Some(unknown) => Err(format!("deliver_extra.{unknown} means nothing for {name}")),
            None => Ok(deliver),
        }
    }
}

/// The platform whose home answers go to, if that is where they go.
pub fn wants_home(written: &Value) -> Option<Platform> {
    let raw = Raw::deserialize(written).ok()?;
    let named = raw.deliver_extra.is_some_and(|extra| extra.get("chat_id").is_some_and(|it| !it.is_null()));
    raw.deliver.as_deref().and_then(Platform::parse).filter(|_| !named)
}

/// Whether there is something in a route that was understood and has no effect.
pub fn idle(written: &Value) -> Option<&'static str> {
    let skills = Raw::deserialize(written).ok().and_then(|raw| raw.skills);
    skills.filter(|skills| !skills.is_empty()).map(|_| "skills")
}

#[cfg(test)]
#[path = "hook_tests.rs"]
mod tests;
