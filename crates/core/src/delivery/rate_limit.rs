//! Rate limits that platforms impose: which requests wait, and until when.
//!
//! A penalty is a wait that a platform named in a refusal (HTTP 429, flood control). It covers a chat, one method that
//! names no chat, or the whole platform. Penalties are stored (`rate_limits`) and survive a restart. Times are those of
//! the wall clock: when it is set back, a penalty lasts its own length from then, never longer.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::message::{Platform, Route};
use crate::time::Millis;

/// Maximum penalty. Real ones last seconds or minutes; a longer one may be a mistake and must not silence a chat. After
/// an hour one more request does little harm.
pub const MAX_WAIT: Duration = Duration::from_secs(3600);
/// Longest stored reason, in characters.
const LONGEST_REASON: usize = 200;

/// Which requests to a platform a penalty holds back.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "scope", content = "name", rename_all = "snake_case")]
pub enum PenaltyScope {
    /// Every request.
    Platform,
    /// Requests for one chat.
    Chat(String),
    /// One method: requests that name no chat (the command menu, reading lists), and what a platform counts apart from
    /// messages (reactions in one chat).
    Method(String),
}

impl PenaltyScope {
    pub fn chat_of(route: &Route) -> Self {
        Self::Chat(route.chat_id.clone())
    }

    /// Stored kind and name; `parse` reads them back.
    pub fn parts(&self) -> (&'static str, &str) {
        match self {
            Self::Platform => ("platform", ""),
            Self::Chat(chat) => ("chat", chat),
            Self::Method(method) => ("method", method),
        }
    }

    pub fn parse(kind: &str, name: &str) -> Option<Self> {
        match kind {
            "platform" => Some(Self::Platform),
            "chat" => Some(Self::Chat(name.to_owned())),
            "method" => Some(Self::Method(name.to_owned())),
            _unknown => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Penalty {
    pub platform: Platform,
    #[serde(flatten)]
    pub scope: PenaltyScope,
    pub set_at: Millis,
    pub until: Millis,
    /// The platform's error text. Never message text.
    pub reason: String,
}

impl Penalty {
    pub fn new(platform: Platform, scope: PenaltyScope, wait: Duration, reason: &str, now: Millis) -> Self {
        let until = now.after(wait.min(MAX_WAIT));
        let reason = reason.chars().take(LONGEST_REASON).collect();
        Self { platform, scope, set_at: now, until, reason }
    }

    /// `None`: it is over. A penalty that was set in the future is from before the clock was set back: it begins anew.
    #[must_use]
    pub fn as_of(mut self, now: Millis) -> Option<Self> {
        let length = self.until.since(self.set_at).min(MAX_WAIT);
        self.set_at = self.set_at.min(now);
        self.until = self.set_at.after(length);
        (self.until > now).then_some(self)
    }
}

/// `telegram:7`, `discord`, `slack (users.info)`.
impl fmt::Display for Penalty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.scope {
            PenaltyScope::Platform => write!(f, "{}", self.platform),
            PenaltyScope::Chat(chat) => write!(f, "{}:{chat}", self.platform),
            PenaltyScope::Method(method) => write!(f, "{} ({method})", self.platform),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Penalties(BTreeMap<(Platform, PenaltyScope), Penalty>);

impl Penalties {
    /// Adds a penalty, or replaces one of the same scope that ends earlier. `false`: one that ends later is in force.
    pub fn add(&mut self, penalty: Penalty, now: Millis) -> bool {
        self.expire(now);
        let key = (penalty.platform, penalty.scope.clone());
        if self.0.get(&key).is_some_and(|known| known.until >= penalty.until) {
            return false;
        }
        self.0.insert(key, penalty);
        true
    }

    /// When a request of this scope may be sent; `now` if there is no penalty.
    pub fn free_at(&mut self, platform: Platform, scope: &PenaltyScope, now: Millis) -> Millis {
        self.holding(platform, scope, now).map(|penalty| penalty.until).max().unwrap_or(now)
    }

    /// The penalties that hold back a request of this scope.
    pub fn holding(
        &mut self,
        platform: Platform,
        scope: &PenaltyScope,
        now: Millis,
    ) -> impl Iterator<Item = &Penalty> {
        self.expire(now);
        let own = self.0.get(&(platform, scope.clone()));
        let of_all = (*scope != PenaltyScope::Platform)
            .then(|| self.0.get(&(platform, PenaltyScope::Platform)))
            .flatten();
        own.into_iter().chain(of_all)
    }

    pub fn get(&self, platform: Platform, scope: &PenaltyScope) -> Option<&Penalty> {
        self.0.get(&(platform, scope.clone()))
    }

    pub fn expire(&mut self, now: Millis) {
        let all = core::mem::take(&mut self.0);
        self.0 = all.into_iter().filter_map(|(key, penalty)| Some((key, penalty.as_of(now)?))).collect();
    }

    /// When the next one ends.
    pub fn next_end(&self) -> Option<Millis> {
        self.0.values().map(|penalty| penalty.until).min()
    }

    pub fn all(&self) -> Vec<Penalty> {
        self.0.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = Millis(1_000_000);

    fn platform(name: &str) -> Platform {
        Platform::parse(name).expect("known")
    }

    fn chat(name: &str) -> PenaltyScope {
        PenaltyScope::Chat(name.into())
    }

    fn penalty(scope: PenaltyScope, seconds: u64) -> Penalty {
        Penalty::new(platform("telegram"), scope, Duration::from_secs(seconds), "slow down", NOW)
    }

    fn later(seconds: u64) -> Millis {
        NOW.after(Duration::from_secs(seconds))
    }

    #[track_caller]
    fn check(penalties: &mut Penalties, of: &str, scope: &PenaltyScope, now: Millis, want: Millis) {
        assert_eq!(penalties.free_at(platform(of), scope, now), want, "{of} {scope:?} at {now:?}");
    }

    #[test]
    fn chat_penalty_holds_back_that_chat_alone() {
        let mut penalties = Penalties::default();
        assert!(penalties.add(penalty(chat("7"), 30), NOW));
        check(&mut penalties, "telegram", &chat("7"), NOW, later(30));
        check(&mut penalties, "telegram", &chat("8"), NOW, NOW);
        check(&mut penalties, "discord", &chat("7"), NOW, NOW);
        check(&mut penalties, "telegram", &PenaltyScope::Platform, NOW, NOW);
        check(&mut penalties, "telegram", &PenaltyScope::Method("setMyCommands".into()), NOW, NOW);
    }

    #[test]
    fn platform_penalty_holds_back_every_request_of_the_platform() {
        let mut penalties = Penalties::default();
        assert!(penalties.add(penalty(PenaltyScope::Platform, 30), NOW));
        for scope in [chat("7"), chat("8"), PenaltyScope::Platform, PenaltyScope::Method("getMe".into())] {
            check(&mut penalties, "telegram", &scope, NOW, later(30));
        }
        check(&mut penalties, "discord", &chat("7"), NOW, NOW);
    }

    #[test]
    fn longer_penalty_wins_and_shorter_one_changes_nothing() {
        let mut penalties = Penalties::default();
        assert!(penalties.add(penalty(chat("7"), 30), NOW));
        assert!(!penalties.add(penalty(chat("7"), 5), NOW));
        check(&mut penalties, "telegram", &chat("7"), NOW, later(30));
        assert!(penalties.add(penalty(chat("7"), 60), NOW));
        check(&mut penalties, "telegram", &chat("7"), NOW, later(60));
    }

    #[test]
    fn penalty_ends_by_itself_and_is_forgotten() {
        let mut penalties = Penalties::default();
        penalties.add(penalty(chat("7"), 30), NOW);
        assert_eq!(penalties.next_end(), Some(later(30)));
        assert_eq!(penalties.get(platform("telegram"), &chat("7")), Some(&penalty(chat("7"), 30)));
        assert_eq!(penalties.get(platform("telegram"), &chat("8")), None);
        check(&mut penalties, "telegram", &chat("7"), later(29), later(30));
        check(&mut penalties, "telegram", &chat("7"), later(30), later(30));
        assert!(penalties.all().is_empty());
    }

    #[test]
    fn no_penalty_is_longer_than_an_hour() {
        let mut penalties = Penalties::default();
        penalties.add(penalty(chat("7"), 365 * 24 * 3600), NOW);
        check(&mut penalties, "telegram", &chat("7"), NOW, NOW.after(MAX_WAIT));
        let stored = Penalty { until: Millis(u64::MAX), ..penalty(chat("7"), 1) };
        assert_eq!(stored.as_of(NOW).expect("in force").until, NOW.after(MAX_WAIT));
    }

    #[test]
    fn clock_set_back_restarts_the_wait_once_with_its_own_length() {
        let mut penalties = Penalties::default();
        penalties.add(penalty(chat("7"), 30), NOW);
        let back = Millis(NOW.0 - 500_000);
        let end = back.after(Duration::from_secs(30));
        check(&mut penalties, "telegram", &chat("7"), back, end);
        // The wait does not move along with the clock.
        let on = back.after(Duration::from_secs(20));
        check(&mut penalties, "telegram", &chat("7"), on, end);
        check(&mut penalties, "telegram", &chat("7"), end, end);
        assert!(penalties.all().is_empty());
    }

    #[test]
    fn stored_form_reads_back() {
        for scope in [PenaltyScope::Platform, chat("-5"), PenaltyScope::Method("GET /gateway/bot".into())] {
            let (kind, name) = scope.parts();
            assert_eq!(PenaltyScope::parse(kind, name), Some(scope));
        }
        assert_eq!(PenaltyScope::parse("bot", ""), None);
    }
}
