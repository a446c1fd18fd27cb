//! Adds user names and thread context, which events lack. Best effort within a short timeout.

use std::time::Duration;

use futures_util::future::join_all;
use petasos_core::Inbound;
use tokio::time::timeout;

use crate::slack::Slack;
use crate::slack::wire::{UserDetails, UserInfo};

/// Slack waits for the acknowledgement meanwhile.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_millis(800);
const MAX_REQUESTS: usize = 8;

impl Slack {
    pub(in crate::slack) async fn add_names_and_context(&self, events: &mut [Inbound]) {
        let ((), contexts) = tokio::join!(self.fetch_user_names(events), self.fetch_thread_contexts(events));
        let state = self.state();
        for (event, context) in events.iter_mut().zip(contexts) {
            event.quoted = context;
            let source = &mut event.source;
            if let (None, Some(team), Some(user)) = (&source.user_name, &source.scope_id, &source.user_id) {
                source.user_name = state.user_names.get(&user_key(team, user)).cloned().flatten();
            }
        }
    }

    async fn fetch_user_names(&self, events: &[Inbound]) {
        let mut unknown: Vec<(String, String)> = Vec::new();
        for event in events.iter().filter(|event| event.source.user_name.is_none()) {
            if let (Some(team), Some(user)) = (&event.source.scope_id, &event.source.user_id) {
                let id = (team.clone(), user.clone());
                if !unknown.contains(&id) && self.state().user_names.get(&user_key(team, user)).is_none() {
                    unknown.push(id);
                }
            }
        }
        unknown.truncate(MAX_REQUESTS);
        let requests = join_all(unknown.iter().map(|(team, user)| self.fetch_user_name(team, user)));
        let _too_slow = timeout(REQUEST_TIMEOUT, requests).await;
    }

    async fn fetch_user_name(&self, team: &str, user: &str) {
        let Some(token) = self.state().workspaces.get(team).map(|bot| bot.token.clone()) else { return };
        let response = self.api.get::<UserInfo>(&token, "users.info", &[("user", user)]).await;
        let name = response.ok().and_then(|info| display_name(info.user));
        self.state().user_names.insert(user_key(team, user), name);
    }
}

/// The display name, else the real name, else the login.
fn display_name(user: UserDetails) -> Option<String> {
    let chosen = user.profile.and_then(|profile| profile.display_name);
    let names = [chosen, user.real_name, user.name];
    names.into_iter().flatten().find(|name| !name.trim().is_empty())
}

fn user_key(team: &str, user: &str) -> String {
    format!("{team}/{user}")
}
