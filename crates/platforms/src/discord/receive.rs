//! The link: two futures that live and end together (see `session.rs` and `digest.rs`), and what a new
//! session does once.

use std::convert::Infallible;
use std::future;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tracing::debug;

use super::digest::{Digest, Ends};
use super::place::Place;
use super::session::{Kept, Sockets};
use super::{Discord, Error, MenuCommand};
use crate::intake::{Health, Intake};

/// Events that may wait to be kept. What finds no room comes again: the link ends and resumes.
const QUEUE: usize = 4096;
const TELLINGS: usize = 16;

impl Discord {
    pub async fn receive(
        &self,
        cursor: Option<String>,
        intake: &Intake,
        health: &mut (dyn FnMut(Health) + Send),
    ) -> Error {
        health(Health::Connecting);
        let place = Place::read(cursor.as_deref());
        let (told, mut tellings) = mpsc::channel(TELLINGS);
        let (arrive, arrived) = mpsc::channel(QUEUE);
        let session = place.session.as_ref();
        let start = session.map(|it| Kept { session: it.id.clone(), sequence: it.sequence });
        let (keep, kept) = watch::channel(start);
        let (greeted, application) = watch::channel(None);
        let sockets = Sockets::new(self, session, arrive, kept, told.clone());
        let digest = Digest::new(self, place, intake, Ends { arrived, kept: keep, greeted, told });
        let link = async {
            tokio::select! {
                error = sockets.run() => error,
                error = digest.run() => error,
                never = self.publish_menu(application) => match never {},
            }
        };
        tokio::pin!(link);
        let error = loop {
            tokio::select! {
                biased;
                Some(state) = tellings.recv() => health(state),
                error = &mut link => break error,
            }
        };
        while let Ok(state) = tellings.try_recv() {
            health(state);
        }
        error
    }

    /// Best effort, once for every new session: typed commands work without a menu. Never returns, so that it
    /// ends with the link.
    async fn publish_menu(&self, mut application: watch::Receiver<Option<u64>>) -> Infallible {
        let commands = menu(&self.config.menu);
        while !commands.is_empty() && application.changed().await.is_ok() {
            let Some(id) = *application.borrow_and_update() else { continue };
            let path = format!("/applications/{id}/commands");
            let body = Value::Array(commands.clone());
            if let Err(error) = self.api.call::<Value>(Method::PUT, &path, Some(&body)).await {
                debug!(platform = "discord", %error, "command menu not published");
            }
        }
        future::pending().await
    }
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

    #[test]
    fn one_impossible_name_does_not_spoil_the_menu() {
        let entry = |name: &str, text: &str| MenuCommand { command: name.into(), description: text.into() };
        let list = menu(&[entry("new", "Start anew"), entry("No Way", "x"), entry("stop", "")]);
        let shown: Vec<_> = list.iter().map(|it| (it["name"].as_str(), it["description"].as_str())).collect();
        assert_eq!(shown, [(Some("new"), Some("Start anew")), (Some("stop"), Some("stop"))]);
    }
}
