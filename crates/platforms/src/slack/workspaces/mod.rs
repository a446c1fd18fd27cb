//! The workspaces in which the app is installed: one bot token each, identified with `auth.test`.

pub(in crate::slack) mod outages;

use futures_util::future::join_all;
use petasos_core::Fault;
use serde_json::json;
use tracing::{error, info};

use super::inbound::parse;
use super::rest::api::{Token, TokenKind};
use super::wire::{AuthTest, SocketUrl};
use super::{Error, Slack};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::slack) struct WorkspaceBot {
    pub(in crate::slack) team: String,
    pub(in crate::slack) name: Option<String>,
    pub(in crate::slack) bot_user: String,
    /// The author id of the bot's own messages, if they have no user id.
    pub(in crate::slack) bot_id: Option<String>,
    pub(in crate::slack) token: Token,
}

#[derive(Debug, Clone, Default)]
pub(in crate::slack) struct Workspaces(pub(in crate::slack) Vec<WorkspaceBot>);

impl Workspaces {
    pub(in crate::slack) fn get(&self, team: &str) -> Option<&WorkspaceBot> {
        self.0.iter().find(|bot| bot.team == team)
    }

    /// The first of these workspaces with a token. An organisation-wide installation may name only others;
    /// then the token is used if there is only one.
    pub(in crate::slack) fn resolve<'a>(
        &self,
        teams: impl IntoIterator<Item = &'a str>,
    ) -> Option<&WorkspaceBot> {
        teams.into_iter().find_map(|team| self.get(team)).or(match self.0.as_slice() {
            [only] => Some(only),
            [] | [_, _, ..] => None,
        })
    }
}

impl Slack {
    /// Identifies the bot in every workspace. One refused token does not stop the others.
    pub(super) async fn sign_in(&self) -> Result<Workspaces, Error> {
        let results = join_all(self.config.bot_tokens.iter().map(|secret| {
            let token = Token { secret: secret.clone(), kind: TokenKind::Bot };
            self.identify(token)
        }))
        .await;
        let mut workspaces = Workspaces::default();
        let mut refused = Vec::new();
        for (index, result) in results.into_iter().enumerate() {
            match result {
                Ok(bot) => workspaces.0.push(bot),
                Err(error) if error.fault() == Fault::Fatal => {
                    error!(platform = "slack", token = index + 1, code = error.code(), %error, "bot token refused");
                    refused.push((index, error));
                }
                Err(later) => return Err(later),
            }
        }
        if workspaces.0.is_empty() {
            return Err(refused.into_iter().next().map_or(Error::NoBotToken, |(_, error)| error));
        }
        info!(platform = "slack", workspaces = workspaces.0.len(), "signed in");
        let mut state = self.state();
        state.workspaces = workspaces.clone();
        state.outages.set_refused_tokens(refused);
        Ok(workspaces)
    }

    pub async fn check(&self) -> Result<String, Error> {
        parse::check_tokens(&self.config)?;
        let workspaces = self.sign_in().await?;
        let token = Token { secret: self.config.app_token.clone(), kind: TokenKind::App };
        let _url: SocketUrl = self.api.post(&token, "apps.connections.open", &json!({})).await?;
        let teams: Vec<&str> = workspaces.0.iter().map(|bot| bot.team.as_str()).collect();
        Ok(teams.join(", "))
    }

    async fn identify(&self, token: Token) -> Result<WorkspaceBot, Error> {
        let AuthTest { team_id, team, user_id, bot_id } =
            self.api.post(&token, "auth.test", &json!({})).await?;
        Ok(WorkspaceBot { team: team_id, name: team, bot_user: user_id, bot_id, token })
    }

    /// Updates the outages after a request for a message. `link`: the link during which it was sent.
    pub(super) fn record_result<T>(&self, link: u64, team: &str, result: &Result<T, Error>) {
        let mut state = self.state();
        let Some(bot) = state.workspaces.get(team).cloned() else { return };
        let changed = match result {
            Ok(_) => state.outages.clear(team),
            Err(error) if error.is_workspace_lost() => state.outages.record(link, &bot, error),
            Err(_) => false,
        };
        if changed {
            self.outages_changed.notify_one();
        }
    }
}
