//! Workspaces that no longer accept the app, found by signing in or by a refused message. Pure.
//!
//! Every link starts with none: tokens may have been replaced. Results of requests from before the link are
//! ignored.

use petasos_core::link::PartialOutage;

use super::WorkspaceBot;
use crate::slack::Error;

#[derive(Debug, Default)]
pub(in crate::slack) struct WorkspaceOutages {
    /// Fencing number of the link.
    link: u64,
    /// At most one per token.
    lost: Vec<WorkspaceOutage>,
}

#[derive(Debug)]
struct WorkspaceOutage {
    /// `None`: the token was refused before the workspace was known.
    team: Option<String>,
    part: String,
    error: Error,
}

impl WorkspaceOutages {
    pub(in crate::slack) fn start_link(&mut self) {
        *self = Self { link: self.link + 1, lost: Vec::new() };
    }

    pub(in crate::slack) fn link(&self) -> u64 {
        self.link
    }

    /// Tokens refused at sign-in, by their index in the settings.
    pub(super) fn set_refused_tokens(&mut self, refused: Vec<(usize, Error)>) {
        self.lost.retain(|lost| lost.team.is_some());
        let outage = |(index, error)| {
            let part = format!("the workspace of bot token {}", index + 1);
            WorkspaceOutage { team: None, part, error }
        };
        self.lost.extend(refused.into_iter().map(outage));
    }

    /// Returns whether the outage is new.
    pub(super) fn record(&mut self, link: u64, bot: &WorkspaceBot, error: &Error) -> bool {
        if link != self.link || self.contains(&bot.team) {
            return false;
        }
        let part = match &bot.name {
            Some(name) => format!("workspace {name} ({})", bot.team),
            None => format!("workspace {}", bot.team),
        };
        self.lost.push(WorkspaceOutage { team: Some(bot.team.clone()), part, error: error.clone() });
        true
    }

    /// Returns whether there was an outage.
    pub(super) fn clear(&mut self, team: &str) -> bool {
        let before = self.lost.len();
        self.lost.retain(|lost| lost.team.as_deref() != Some(team));
        self.lost.len() < before
    }

    /// The last error if all these workspaces are lost.
    pub(in crate::slack) fn error_if_all_lost(&self, bots: &[WorkspaceBot]) -> Option<Error> {
        let all = !bots.is_empty() && bots.iter().all(|bot| self.contains(&bot.team));
        self.lost.last().filter(|_| all).map(|lost| lost.error.clone())
    }

    pub(in crate::slack) fn partial_outages(&self) -> Vec<PartialOutage> {
        let outage = |lost: &WorkspaceOutage| PartialOutage {
            part: lost.part.clone(),
            code: lost.error.code().to_owned(),
            reason: lost.error.to_string(),
        };
        self.lost.iter().map(outage).collect()
    }

    fn contains(&self, team: &str) -> bool {
        self.lost.iter().any(|lost| lost.team.as_deref() == Some(team))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Secret;
    use crate::slack::rest::api::{Token, TokenKind};

    fn bot(number: u32) -> WorkspaceBot {
        let token = Token { secret: Secret::new("xoxb"), kind: TokenKind::Bot };
        let team = format!("T{number}");
        WorkspaceBot { team, name: Some("Acme".into()), bot_user: "U".into(), bot_id: None, token }
    }

    fn revoked() -> Error {
        Error::Answered { error: "token_revoked".into(), needed: None, token: TokenKind::Bot }
    }

    #[test]
    fn reports_an_error_only_when_all_workspaces_are_lost() {
        let mut outages = WorkspaceOutages::default();
        let bots = [bot(1), bot(2)];
        assert!(outages.record(0, &bots[0], &revoked()) && !outages.record(0, &bots[0], &revoked()), "once");
        assert_eq!(outages.error_if_all_lost(&bots), None);
        assert_eq!(outages.partial_outages()[0].part, "workspace Acme (T1)");
        assert!(outages.record(0, &bots[1], &revoked()));
        assert_eq!(outages.error_if_all_lost(&bots), Some(revoked()));
        assert!(outages.clear("T1") && !outages.clear("T1"));
        assert_eq!((outages.error_if_all_lost(&bots), outages.partial_outages().len()), (None, 1));
        assert_eq!(WorkspaceOutages::default().error_if_all_lost(&[]), None);
    }

    #[test]
    fn ignores_results_from_before_the_link() {
        let mut outages = WorkspaceOutages::default();
        let earlier = outages.link();
        outages.set_refused_tokens(vec![(1, revoked())]);
        outages.start_link();
        assert!(!outages.record(earlier, &bot(1), &revoked()) && outages.partial_outages().is_empty());
        outages.set_refused_tokens(vec![(1, revoked())]);
        outages.set_refused_tokens(vec![(1, revoked())]);
        let reported = outages.partial_outages();
        assert_eq!((reported.len(), reported[0].part.as_str()), (1, "the workspace of bot token 2"));
    }
}
