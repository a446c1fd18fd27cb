//! Command menu that clients show at `/`. Best effort: typed commands work without it.
//!
//! The registered menu is fetched first and overwritten only if it differs, since Discord limits overwrites.
//! After success it is left alone while the process runs. Waits named by Discord carry over to the next link.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future;
use std::sync::Mutex;
use std::time::Duration;

use petasos_core::Fault;
use petasos_runtime::clock;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use crate::discord::{Discord, Error};

/// Maximum backoff if the service names no wait.
const MAX_WAIT: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MenuCommand {
    pub command: String,
    pub description: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MenuPolicy {
    /// If it differs from the registered one.
    #[default]
    Safe,
    /// At the first session, without comparing.
    Bulk,
    /// Never: the menu is managed elsewhere.
    Off,
}

/// Progress of the registration.
#[derive(Debug, Default)]
pub(in crate::discord) struct MenuRegistration(Mutex<State>);

#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// Registered, or refused for good.
    settled: bool,
    not_before: Option<Instant>,
}

impl MenuRegistration {
    fn get(&self) -> State {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn set(&self, state: State) {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = state;
    }
}

/// The fields that we set; Discord adds others.
#[derive(Debug, PartialEq, Eq, Deserialize)]
struct CommandDefinition {
    #[serde(rename = "type", default = "chat_input")]
    kind: u8,
    #[serde(default)]
    description: String,
    #[serde(default)]
    options: Vec<OptionDefinition>,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct OptionDefinition {
    #[serde(rename = "type")]
    kind: u8,
    name: String,
    #[serde(default)]
    description: String,
    /// Omitted by Discord if false.
    #[serde(default)]
    required: bool,
}

#[derive(Deserialize)]
struct RegisteredCommand {
    name: String,
    #[serde(flatten)]
    command: CommandDefinition,
}

const fn chat_input() -> u8 {
    1
}

impl Discord {
    /// Never returns, so it ends with the link.
    pub(in crate::discord) async fn publish_menu(
        &self,
        mut application: watch::Receiver<Option<u64>>,
    ) -> Infallible {
        let commands = menu(&self.config.menu);
        let wanted = self.config.menu_policy != MenuPolicy::Off && !commands.is_empty();
        while wanted && application.changed().await.is_ok() {
            let id = *application.borrow_and_update();
            if let Some(id) = id.filter(|_| !self.registration.get().settled) {
                self.register(id, &Value::Array(commands.clone())).await;
            }
        }
        future::pending().await
    }

    async fn register(&self, application: u64, commands: &Value) {
        let path = format!("/applications/{application}/commands");
        let mut wait = self.config.reconnect_base;
        loop {
            if let Some(at) = self.registration.get().not_before {
                sleep_until(at).await;
            }
            let Err(error) = self.register_once(&path, commands).await else { break };
            let Fault::Later { after } = error.fault() else {
                warn!(
                    platform = "discord",
                    %error,
                    "cannot register the command menu; typed commands still work. Check that the bot was invited with the \
                     scope applications.commands, or set platforms.discord.command_sync_policy to off"
                );
                break;
            };
            let span = after.unwrap_or(wait);
            warn!(platform = "discord", %error, wait = ?span, "command menu registration deferred");
            self.registration.set(State { settled: false, not_before: Some(clock::monotonic() + span) });
            wait = (wait * 2).min(MAX_WAIT);
        }
        self.registration.set(State { settled: true, not_before: None });
    }

    async fn register_once(&self, path: &str, commands: &Value) -> Result<(), Error> {
        if self.config.menu_policy == MenuPolicy::Safe {
            let registered = self.api.get::<Value>(path).await?;
            if same(&registered, commands) {
                debug!(platform = "discord", "command menu is up to date");
                return Ok(());
            }
        }
        self.api.call::<Value>(Method::PUT, path, Some(commands)).await?;
        info!(platform = "discord", "command menu registered");
        Ok(())
    }
}

/// Ignores the order. Unreadable entries count as different.
fn same(registered: &Value, commands: &Value) -> bool {
    let read = |list: &Value| -> Option<BTreeMap<String, CommandDefinition>> {
        let list = Vec::<RegisteredCommand>::deserialize(list).ok()?;
        Some(list.into_iter().map(|it| (it.name, it.command)).collect())
    };
    read(registered).is_some_and(|registered| read(commands).as_ref() == Some(&registered))
}

/// Invalid names are left out, since Discord would refuse the whole menu.
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
    fn leaves_invalid_names_out_of_the_menu() {
        let list = menu(&[entry("new", "Start anew"), entry("No Way", "x"), entry("stop", "")]);
        let shown: Vec<_> = list.iter().map(|it| (it["name"].as_str(), it["description"].as_str())).collect();
        assert_eq!(shown, [(Some("new"), Some("Start anew")), (Some("stop"), Some("stop"))]);
    }

    #[test]
    fn ignores_fields_added_by_discord_when_comparing_menus() {
        let ours = Value::Array(menu(&[entry("new", "Start anew"), entry("stop", "Stop")]));
        let option = json!({ "type": 3, "name": "args", "description": "What follows the command" });
        let registered_command = |name: &str, text: &str| {
            json!({ "id": "7", "application_id": "1", "version": "2", "nsfw": false, "contexts": null,
                "name": name, "description": text, "type": 1, "options": [option] })
        };
        let new = registered_command("new", "Start anew");
        let stop = registered_command("stop", "Stop");
        assert!(same(&json!([stop, new]), &ours));
        for other in [
            json!([new]),
            json!([new, stop, registered_command("old", "Gone")]),
            json!([new, registered_command("stop", "Halt")]),
            json!([new, { "name": "stop", "description": "Stop", "type": 1 }]),
            json!([{ "name": 5 }]),
            Value::Null,
        ] {
            assert!(!same(&other, &ours), "{other}");
        }
    }
}
