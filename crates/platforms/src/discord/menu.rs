//! The menu of commands that clients show at `/`. Best effort: typed commands work without it.
//!
//! What is registered is asked for first, and overwritten only where it differs: Discord counts how often that is done.
//! Once it is right it is left alone for as long as we run. A wait that Discord names is kept by the next link, too.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future;
use std::sync::Mutex;
use std::time::Duration;

use petasos_core::Fault;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use super::{Discord, Error};

/// Longest wait for a service that named none.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MenuCommand {
    pub command: String,
    pub description: String,
}

/// When the menu is registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MenuPolicy {
    /// When it differs from what is registered.
    #[default]
    Safe,
    /// At the first session, whatever is registered.
    Bulk,
    /// Never: it is somebody else's.
    Off,
}

/// How far we are with it.
#[derive(Debug, Default)]
pub(super) struct Registration(Mutex<State>);

#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// It is as it should be, or never will be.
    settled: bool,
    /// No request before then.
    not_before: Option<Instant>,
}

impl Registration {
    fn look(&self) -> State {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn note(&self, state: State) {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = state;
    }
}

/// What of a command is ours to set; the rest is Discord's.
#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Command {
    #[serde(rename = "type", default = "chat_input")]
    kind: u8,
    #[serde(default)]
    description: String,
    #[serde(default)]
    options: Vec<Choice>,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Choice {
    #[serde(rename = "type")]
    kind: u8,
    name: String,
    #[serde(default)]
    description: String,
    /// Left out where it is false.
    #[serde(default)]
    required: bool,
}

#[derive(Deserialize)]
struct Named {
    name: String,
    #[serde(flatten)]
    command: Command,
}

const fn chat_input() -> u8 {
    1
}

impl Discord {
    /// Never returns, so that it ends with the link.
    pub(super) async fn publish_menu(&self, mut application: watch::Receiver<Option<u64>>) -> Infallible {
        let commands = menu(&self.config.menu);
        let wanted = self.config.menu_policy != MenuPolicy::Off && !commands.is_empty();
        while wanted && application.changed().await.is_ok() {
            let id = *application.borrow_and_update();
            if let Some(id) = id.filter(|_| !self.registration.look().settled) {
                self.register(id, &Value::Array(commands.clone())).await;
            }
        }
        future::pending().await
    }

    async fn register(&self, application: u64, commands: &Value) {
        let path = format!("/applications/{application}/commands");
        let mut wait = self.config.reconnect_base;
        loop {
            if let Some(at) = self.registration.look().not_before {
                sleep_until(at).await;
            }
            let Err(error) = self.register_once(&path, commands).await else { break };
            let Fault::Later { after } = error.fault() else {
                warn!(
                    platform = "discord",
                    %error,
                    "the command menu cannot be registered; typed commands work. See that the bot was invited with the \
                     scope applications.commands, or set platforms.discord.command_sync_policy to off"
                );
                break;
            };
            let span = after.unwrap_or(wait);
            warn!(platform = "discord", %error, wait = ?span, "the command menu is registered later");
            self.registration.note(State { settled: false, not_before: Some(Instant::now() + span) });
            wait = (wait * 2).min(LONGEST_WAIT);
        }
        self.registration.note(State { settled: true, not_before: None });
    }

    async fn register_once(&self, path: &str, commands: &Value) -> Result<(), Error> {
        if self.config.menu_policy == MenuPolicy::Safe {
            let registered = self.api.get::<Value>(path).await?;
            if same(&registered, commands) {
                debug!(platform = "discord", "the command menu is registered already");
                return Ok(());
            }
        }
        self.api.call::<Value>(Method::PUT, path, Some(commands)).await?;
        info!(platform = "discord", "command menu registered");
        Ok(())
    }
}

/// In any order. What cannot be read is not the same.
fn same(registered: &Value, commands: &Value) -> bool {
    let read = |list: &Value| -> Option<BTreeMap<String, Command>> {
        let list = Vec::<Named>::deserialize(list).ok()?;
        Some(list.into_iter().map(|it| (it.name, it.command)).collect())
    };
    read(registered).is_some_and(|registered| read(commands).as_ref() == Some(&registered))
}

/// A name that Discord would refuse is left out, or it would refuse them all.
fn menu(entries: &[MenuCommand]) -> Vec<Value> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    let named = |name: &str| !name.is_empty() && name.len() <= 32 && name.chars().all(fits);
    let known = entries.iter().filter(|entry| named(&entry.command));
    known.map(entry).take(100).collect()
}

fn entry(entry: &MenuCommand) -> Value {
    let description: String = entry.description.chars().take(100).collect();
    let description = if description.is_empty() { entry.command.clone() } else { description };
    json!({ "name": entry.command, "description": description, "type": 1, "options": [
        { "type": 3, "name": "args", "description": "What follows the command", "required": false },
    ] })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, text: &str) -> MenuCommand {
        MenuCommand { command: name.into(), description: text.into() }
    }

    #[test]
    fn one_impossible_name_does_not_spoil_the_menu() {
        let list = menu(&[entry("new", "Start anew"), entry("No Way", "x"), entry("stop", "")]);
        let shown: Vec<_> = list.iter().map(|it| (it["name"].as_str(), it["description"].as_str())).collect();
        assert_eq!(shown, [(Some("new"), Some("Start anew")), (Some("stop"), Some("stop"))]);
    }

    #[test]
    fn what_discord_adds_to_a_command_makes_no_difference() {
        let ours = Value::Array(menu(&[entry("new", "Start anew"), entry("stop", "Stop")]));
        let option = json!({ "type": 3, "name": "args", "description": "What follows the command" });
        let told = |name: &str, text: &str| {
            json!({ "id": "7", "application_id": "1", "version": "2", "nsfw": false, "contexts": null,
                "name": name, "description": text, "type": 1, "options": [option] })
        };
        let (new, stop) = (told("new", "Start anew"), told("stop", "Stop"));
        assert!(same(&json!([stop, new]), &ours));
        for other in [
            json!([new]),
            json!([new, stop, told("old", "Gone")]),
            json!([new, told("stop", "Halt")]),
            json!([new, { "name": "stop", "description": "Stop", "type": 1 }]),
            json!([{ "name": 5 }]),
            Value::Null,
        ] {
            assert!(!same(&other, &ours), "{other}");
        }
    }
}
