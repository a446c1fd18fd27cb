//! Workspaces that take us no more: found out by signing in, or by a message that was refused. Pure.
//!
//! Every link begins a new round, for the tokens may have been mended since. What was asked in an earlier round says
//! nothing about this one.

use petasos_core::link::Lack;

use super::Error;
use super::team::Me;

#[derive(Debug, Default)]
pub(super) struct Losses {
    round: u64,
    /// No more than there are tokens.
    lost: Vec<Lost>,
}

#[derive(Debug)]
struct Lost {
    /// `None`: it refused our token before it told its name.
    team: Option<String>,
    what: String,
    why: Error,
}

impl Losses {
    pub(super) fn begin(&mut self) {
        *self = Self { round: self.round + 1, lost: Vec::new() };
    }

    pub(super) fn round(&self) -> u64 {
        self.round
    }

    /// Tokens that were refused at the door, by their place in the list.
    pub(super) fn unknown(&mut self, refused: Vec<(usize, Error)>) {
        self.lost.retain(|lost| lost.team.is_some());
        let lost =
            |(at, why)| Lost { team: None, what: format!("the workspace of bot token {}", at + 1), why };
        self.lost.extend(refused.into_iter().map(lost));
    }

    /// Whether that is news.
    pub(super) fn add(&mut self, round: u64, me: &Me, why: &Error) -> bool {
        if round != self.round || self.has(&me.team) {
            return false;
        }
        let what = match &me.name {
            Some(name) => format!("workspace {name} ({})", me.team),
            None => format!("workspace {}", me.team),
        };
        self.lost.push(Lost { team: Some(me.team.clone()), what, why: why.clone() });
        true
    }

    /// It takes us again. Whether that is news.
    pub(super) fn remove(&mut self, team: &str) -> bool {
        let before = self.lost.len();
        self.lost.retain(|lost| lost.team.as_deref() != Some(team));
        self.lost.len() < before
    }

    /// Why nobody is left of these, if nobody is.
    pub(super) fn of_all(&self, teams: &[Me]) -> Option<Error> {
        let all = !teams.is_empty() && teams.iter().all(|me| self.has(&me.team));
        self.lost.last().filter(|_| all).map(|lost| lost.why.clone())
    }

    pub(super) fn told(&self) -> Vec<Lack> {
        let lack = |lost: &Lost| Lack {
            what: lost.what.clone(),
            code: lost.why.code().to_owned(),
            reason: lost.why.to_string(),
        };
        self.lost.iter().map(lack).collect()
    }

    fn has(&self, team: &str) -> bool {
        self.lost.iter().any(|lost| lost.team.as_deref() == Some(team))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Secret;
    use crate::slack::api::{Sort, Token};

    fn me(number: u32) -> Me {
        let token = Token { secret: Secret::new("xoxb"), sort: Sort::Bot };
        let (team, bot_user) = (format!("T{number}"), "U".to_owned());
        Me { team, name: Some("Acme".into()), bot_user, bot_id: None, token }
    }

    fn revoked() -> Error {
        Error::Answered { error: "token_revoked".into(), needed: None, token: Sort::Bot }
    }

    #[test]
    fn only_when_nobody_is_left_is_everything_lost() {
        let (mut losses, teams) = (Losses::default(), [me(1), me(2)]);
        assert!(losses.add(0, &teams[0], &revoked()) && !losses.add(0, &teams[0], &revoked()), "once");
        assert_eq!(losses.of_all(&teams), None);
        assert_eq!(losses.told()[0].what, "workspace Acme (T1)");
        assert!(losses.add(0, &teams[1], &revoked()));
        assert_eq!(losses.of_all(&teams), Some(revoked()));
        assert!(losses.remove("T1") && !losses.remove("T1"));
        assert_eq!((losses.of_all(&teams), losses.told().len()), (None, 1));
        assert_eq!(Losses::default().of_all(&[]), None);
    }

    #[test]
    fn what_was_asked_before_the_link_began_anew_says_nothing() {
        let mut losses = Losses::default();
        let asked = losses.round();
        losses.unknown(vec![(1, revoked())]);
        losses.begin();
        assert!(!losses.add(asked, &me(1), &revoked()) && losses.told().is_empty());
        losses.unknown(vec![(1, revoked())]);
        losses.unknown(vec![(1, revoked())]);
        let told = losses.told();
        assert_eq!((told.len(), told[0].what.as_str()), (1, "the workspace of bot token 2"));
    }
}
