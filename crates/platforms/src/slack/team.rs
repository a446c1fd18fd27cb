//! The workspaces in which the app is installed: one bot token each, found out by `auth.test`.

use futures_util::future::join_all;
use petasos_core::Fault;
use serde_json::json;
use tracing::{error, info};

use super::api::{Sort, Token};
use super::wire::{Opened, SignedIn};
use super::{Error, Slack, parse};

/// Ourselves in one workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Me {
    pub(super) team: String,
    /// What people call it.
    pub(super) name: Option<String>,
    pub(super) bot_user: String,
    /// Under which our own messages may come back.
    pub(super) bot_id: Option<String>,
    pub(super) token: Token,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Teams(pub(super) Vec<Me>);

impl Teams {
    pub(super) fn get(&self, team: &str) -> Option<&Me> {
        self.0.iter().find(|me| me.team == team)
    }

    /// The first of these that is ours. An installation for a whole organisation may name none we know:
    /// whoever has one token has no choice.
    pub(super) fn of<'a>(&self, named: impl IntoIterator<Item = &'a str>) -> Option<&Me> {
        named.into_iter().find_map(|team| self.get(team)).or(match self.0.as_slice() {
            [only] => Some(only),
            [] | [_, _, ..] => None,
        })
    }
}

impl Slack {
    /// Finds out who we are, everywhere. One workspace that has thrown us out does not silence the others.
    pub(super) async fn sign_in(&self) -> Result<Teams, Error> {
        let outcomes = join_all(self.config.bot_tokens.iter().map(|secret| {
            let token = Token { secret: secret.clone(), sort: Sort::Bot };
            self.who(token)
        }))
        .await;
        let (mut teams, mut refused) = (Teams::default(), Vec::new());
        for (at, outcome) in outcomes.into_iter().enumerate() {
            match outcome {
                Ok(me) => teams.0.push(me),
                Err(no) if no.fault() == Fault::Fatal => {
                    error!(platform = "slack", token = at + 1, code = no.code(), error = %no, "no workspace for a bot token");
                    refused.push((at, no));
                }
                Err(later) => return Err(later),
            }
        }
        if teams.0.is_empty() {
            return Err(refused.into_iter().next().map_or(Error::NoBotToken, |(_, error)| error));
        }
        info!(platform = "slack", workspaces = teams.0.len(), "signed in");
        let mut memory = self.memory();
        memory.teams = teams.clone();
        memory.losses.unknown(refused);
        Ok(teams)
    }

    /// Both kinds of token: the bot's speak, the app's listens.
    pub async fn check(&self) -> Result<String, Error> {
        parse::check_tokens(&self.config)?;
        let teams = self.sign_in().await?;
        let token = Token { secret: self.config.app_token.clone(), sort: Sort::App };
        let _address: Opened = self.api.post(&token, "apps.connections.open", &json!({})).await?;
        let names: Vec<&str> = teams.0.iter().map(|me| me.team.as_str()).collect();
        Ok(names.join(", "))
    }

    async fn who(&self, token: Token) -> Result<Me, Error> {
        let SignedIn { team_id, team, user_id, bot_id } =
            self.api.post(&token, "auth.test", &json!({})).await?;
        Ok(Me { team: team_id, name: team, bot_user: user_id, bot_id, token })
    }

    /// What the answer to a message says about its workspace; the question was asked in this round.
    pub(super) fn heed<T>(&self, round: u64, team: &str, answer: &Result<T, Error>) {
        let mut memory = self.memory();
        let Some(me) = memory.teams.get(team).cloned() else { return };
        let news = match answer {
            Ok(_) => memory.losses.remove(team),
            Err(error) if error.bars_us() => memory.losses.add(round, &me, error),
            Err(_) => false,
        };
        if news {
            self.workspaces.notify_one();
        }
    }
}
