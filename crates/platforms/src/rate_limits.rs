//! Rate limits of one adapter: while a penalty is in force, requests of its scope are not sent.
//!
//! Owns the penalties (`petasos_core::rate_limit`). `Adapter` checks and records those of chats; the API
//! clients do the same for the whole platform and for methods without a chat. Responses to Discord
//! interactions are exempt. The gateway stores new penalties and restores them at start; a crash loses those
//! not stored yet.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use petasos_core::rate_limit::{Penalties, Penalty, PenaltyScope};
use petasos_core::{Fault, Millis, Platform, Route};
use petasos_runtime::clock;
use tokio::sync::Notify;

use crate::{Adapter, Error};

/// Scope name of reactions on platforms that count them apart from messages.
pub(crate) const REACT: &str = "react";

#[derive(Debug, Clone)]
pub struct RateLimits {
    platform: Platform,
    shared: Arc<SharedLimits>,
}

#[derive(Debug)]
struct SharedLimits {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    penalties: Penalties,
    /// Recorded and not stored yet.
    unsaved: Vec<(Platform, PenaltyScope)>,
    clock: fn() -> Millis,
}

/// The request was not sent because a penalty is in force.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not sent: rate limited by the platform for another {} s ({reason})", after.as_secs_f64().ceil())]
pub struct Penalized {
    pub after: Duration,
    pub reason: String,
}

impl RateLimits {
    pub fn new(platform: Platform) -> Self {
        let state = State { penalties: Penalties::default(), unsaved: Vec::new(), clock: clock::now };
        Self { platform, shared: Arc::new(SharedLimits { state: Mutex::new(state), changed: Notify::new() }) }
    }

    pub fn platform(&self) -> Platform {
        self.platform
    }

    /// Sets the clock and restores stored penalties.
    pub fn restore(&self, clock: fn() -> Millis, penalties: impl IntoIterator<Item = Penalty>) {
        let mut state = self.state();
        state.clock = clock;
        let now = clock();
        for penalty in penalties {
            state.penalties.add(penalty, now);
        }
    }

    /// When a request of this scope may be sent; `now` if no penalty applies.
    pub fn free_at(&self, platform: Platform, scope: &PenaltyScope, now: Millis) -> Millis {
        self.state().penalties.free_at(platform, scope, now)
    }

    /// Errors while a penalty of this scope is in force.
    pub fn check(&self, platform: Platform, scope: &PenaltyScope) -> Result<(), Penalized> {
        let mut state = self.state();
        let now = (state.clock)();
        match state.penalties.holding(platform, scope, now).max_by_key(|penalty| penalty.until) {
            Some(Penalty { until, reason, .. }) => {
                Err(Penalized { after: until.since(now), reason: reason.clone() })
            }
            None => Ok(()),
        }
    }

    /// For a request without a chat.
    pub(crate) fn check_method(&self, method: &str) -> Result<(), Penalized> {
        self.check(self.platform, &PenaltyScope::Method(method.to_owned()))
    }

    pub fn record(&self, platform: Platform, scope: PenaltyScope, wait: Duration, reason: &str) {
        let mut state = self.state();
        let now = (state.clock)();
        let penalty = Penalty::new(platform, scope.clone(), wait, reason, now);
        tracing::warn!(limit = %penalty, seconds = wait.as_secs_f64(), reason, "rate limited by the platform");
        if state.penalties.add(penalty, now) {
            state.unsaved.retain(|known| *known != (platform, scope.clone()));
            state.unsaved.push((platform, scope));
            self.shared.changed.notify_one();
        }
    }

    pub(crate) fn record_method(&self, method: &str, fault: Fault, reason: &str) {
        if let Fault::Later { after: Some(wait) } = fault {
            self.record(self.platform, PenaltyScope::Method(method.to_owned()), wait, reason);
        }
    }

    pub(crate) fn record_platform(&self, wait: Duration, reason: &str) {
        self.record(self.platform, PenaltyScope::Platform, wait, reason);
    }

    pub fn for_chat(&self, platform: Platform, chat: &str) -> Vec<Penalty> {
        let mut state = self.state();
        let now = (state.clock)();
        state.penalties.holding(platform, &PenaltyScope::Chat(chat.to_owned()), now).cloned().collect()
    }

    pub fn all(&self) -> Vec<Penalty> {
        let mut state = self.state();
        let now = (state.clock)();
        state.penalties.expire(now);
        state.penalties.all()
    }

    pub async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    pub fn unsaved(&self) -> Vec<Penalty> {
        let state = self.state();
        let known =
            |(platform, scope): &(Platform, PenaltyScope)| state.penalties.get(*platform, scope).cloned();
        state.unsaved.iter().filter_map(known).collect()
    }

    /// Marks these penalties as stored.
    pub fn saved(&self, stored: &[Penalty]) {
        let mut state = self.state();
        let State { penalties, unsaved, .. } = &mut *state;
        unsaved.retain(|(platform, scope)| {
            penalties.get(*platform, scope).is_some_and(|known| !stored.contains(known))
        });
    }

    pub fn next_end(&self) -> Option<Millis> {
        let mut state = self.state();
        let now = (state.clock)();
        state.penalties.expire(now);
        state.penalties.next_end()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Adapter {
    /// Sends the request unless a penalty is in force, and records the wait named by a refusal.
    pub(crate) async fn limited<T>(
        &self,
        to: &Route,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        self.limited_by(to, PenaltyScope::chat_of(to), request).await
    }

    /// For typing indicators and reactions. Discord and Slack count them per method, so a refusal delays no
    /// message; Telegram counts all requests of a chat together.
    pub(crate) async fn limited_mark(
        &self,
        to: &Route,
        method: &str,
        request: impl Future<Output = Result<(), Error>>,
    ) -> Result<(), Error> {
        self.limits().check(to.platform, &PenaltyScope::chat_of(to))?;
        self.limited_by(to, self.mark_scope(to, method), request).await
    }

    fn mark_scope(&self, to: &Route, method: &str) -> PenaltyScope {
        match self {
            Self::Discord(_) | Self::Slack(_) => PenaltyScope::Method(format!("{method} {}", to.chat_id)),
            Self::Telegram(_) | Self::Webhook(_) | Self::Relay(_) => PenaltyScope::chat_of(to),
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => PenaltyScope::chat_of(to),
        }
    }

    /// When a status reaction may be sent; `now` if no penalty applies.
    pub fn reaction_free_at(&self, to: &Route, now: Millis) -> Millis {
        let free_at = |scope| self.limits().free_at(to.platform, &scope, now);
        free_at(PenaltyScope::chat_of(to)).max(free_at(self.mark_scope(to, REACT)))
    }

    /// Errors while a penalty delays the acknowledgement of a button in this chat.
    pub fn check_callback(&self, to: &Route) -> Result<(), Penalized> {
        match self {
            // Discord does not count responses to interactions.
            Self::Discord(_) => Ok(()),
            Self::Telegram(_) | Self::Slack(_) | Self::Webhook(_) | Self::Relay(_) => {
                self.limits().check(to.platform, &PenaltyScope::chat_of(to))
            }
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => Ok(()),
        }
    }

    async fn limited_by<T>(
        &self,
        to: &Route,
        scope: PenaltyScope,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        self.limits().check(to.platform, &scope)?;
        let result = request.await;
        if let Err(error) = &result
            && !error.is_penalized()
            && let Fault::Later { after: Some(wait) } = error.fault()
        {
            self.limits().record(to.platform, scope, wait, &error.to_string());
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn penalized_request_names_wait_and_reason() {
        let platform = Platform::parse("telegram").expect("known");
        let limits = RateLimits::new(platform);
        let chat = PenaltyScope::Chat("7".into());
        assert_eq!(limits.check(platform, &chat), Ok(()));
        limits.record(platform, chat.clone(), Duration::from_secs(30), "slow down");
        let held = limits.check(platform, &chat).expect_err("held");
        assert!(held.after > Duration::from_secs(25) && held.after <= Duration::from_secs(30), "{held:?}");
        assert_eq!(held.reason, "slow down");
        assert_eq!(limits.check_method("getMe"), Ok(()));
    }

    #[test]
    fn keeps_a_penalty_unsaved_until_that_version_is_stored() {
        let platform = Platform::parse("telegram").expect("known");
        let limits = RateLimits::new(platform);
        limits.record(platform, PenaltyScope::Platform, Duration::from_secs(30), "slow down");
        let first = limits.unsaved();
        assert_eq!(first.len(), 1);
        limits.record(platform, PenaltyScope::Platform, Duration::from_secs(60), "slower");
        limits.saved(&first);
        let second = limits.unsaved();
        assert_eq!(second.len(), 1, "it was made longer meanwhile");
        limits.saved(&second);
        assert_eq!(limits.unsaved(), []);
        assert_eq!(limits.all(), second);
    }

    #[test]
    fn next_end_ignores_expired_penalties() {
        static NOW: AtomicU64 = AtomicU64::new(1_000);
        let platform = Platform::parse("telegram").expect("known");
        let limits = RateLimits::new(platform);
        limits.restore(|| Millis(NOW.load(Ordering::Relaxed)), []);
        limits.record(platform, PenaltyScope::Platform, Duration::from_millis(500), "slow down");
        assert_eq!(limits.next_end(), Some(Millis(1_500)));
        NOW.store(1_500, Ordering::Relaxed);
        assert_eq!(limits.next_end(), None);
    }
}
