//! What Slack leaves out of an event: what people are called, and what was said before. Best effort, and
//! never for long: a message matters more than a name.

use std::time::Duration;

use futures_util::future::join_all;
use petasos_core::Inbound;
use tokio::time::timeout;

use super::Slack;
use super::wire::{Person, Profiled};

/// Slack waits for our acknowledgement meanwhile.
const PATIENCE: Duration = Duration::from_millis(800);
/// Names asked for at once.
const AT_ONCE: usize = 8;

impl Slack {
    pub(super) async fn complete(&self, events: &mut [Inbound]) {
        let ((), earlier) = tokio::join!(self.learn_names(events), self.earlier(events));
        let memory = self.memory();
        for (event, earlier) in events.iter_mut().zip(earlier) {
            event.quoted = earlier;
            let source = &mut event.source;
            if let (None, Some(team), Some(user)) = (&source.user_name, &source.scope_id, &source.user_id) {
                source.user_name = memory.names.get(&key(team, user)).cloned().flatten();
            }
        }
    }

    async fn learn_names(&self, events: &[Inbound]) {
        let mut unknown: Vec<(String, String)> = Vec::new();
        for event in events.iter().filter(|event| event.source.user_name.is_none()) {
            if let (Some(team), Some(user)) = (&event.source.scope_id, &event.source.user_id) {
                let who = (team.clone(), user.clone());
                if !unknown.contains(&who) && self.memory().names.get(&key(team, user)).is_none() {
                    unknown.push(who);
                }
            }
        }
        unknown.truncate(AT_ONCE);
        let asked = join_all(unknown.iter().map(|(team, user)| self.ask_name(team, user)));
        let _too_slow = timeout(PATIENCE, asked).await;
    }

    async fn ask_name(&self, team: &str, user: &str) {
        let Some(token) = self.memory().teams.get(team).map(|me| me.token.clone()) else { return };
        let answer = self.api.get::<Person>(&token, "users.info", &[("user", user)]).await;
        let name = answer.ok().and_then(|person| name(person.user));
        self.memory().names.put(key(team, user), name);
    }
}

/// As people see it: the name they chose, else their real one, else their login.
fn name(person: Profiled) -> Option<String> {
    let chosen = person.profile.and_then(|profile| profile.display_name);
    let names = [chosen, person.real_name, person.name];
    names.into_iter().flatten().find(|name| !name.trim().is_empty())
}

fn key(team: &str, user: &str) -> String {
    format!("{team}/{user}")
}
