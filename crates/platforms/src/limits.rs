//! Rate limits of one adapter: requests that a platform wants later are not sent.
//!
//! Owns the penalties in force (`petasos_core::rate_limit`). `Adapter` checks the chat before every request that names a
//! route and records the wait of a refusal; the clients of the single platforms do the same for the whole platform and
//! for methods that name no chat. Answers to Discord's interactions are exempt: Discord does not count them.
//! The gateway stores what is recorded here, and restores it before anything is sent. A crash loses what was not stored.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use petasos_core::rate_limit::{Penalties, Penalty, Scope};
use petasos_core::{Fault, Millis, Platform, Route};
use petasos_runtime::clock;
use tokio::sync::Notify;

use crate::{Adapter, Error};

/// The method that reactions are counted under where a platform counts them apart from messages.
pub(crate) const REACT: &str = "react";

#[derive(Debug, Clone)]
pub struct Limits {
    platform: Platform,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    penalties: Penalties,
    /// Recorded, and not stored yet.
    unsaved: Vec<(Platform, Scope)>,
    clock: fn() -> Millis,
}

/// A request that was not sent, because the platform does not want it yet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not sent: the platform wants us to wait {} s more ({reason})", after.as_secs_f64().ceil())]
pub struct Held {
    pub after: Duration,
    pub reason: String,
}

impl Limits {
    pub fn new(platform: Platform) -> Self {
        let state = State { penalties: Penalties::default(), unsaved: Vec::new(), clock: clock::now };
        Self { platform, shared: Arc::new(Shared { state: Mutex::new(state), changed: Notify::new() }) }
    }

    pub fn platform(&self) -> Platform {
        self.platform
    }

    /// From here on times are those of `clock`, and these penalties are in force.
    pub fn restore(&self, clock: fn() -> Millis, penalties: impl IntoIterator<Item = Penalty>) {
        let mut state = self.state();
        state.clock = clock;
        let now = clock();
        for penalty in penalties {
            state.penalties.add(penalty, now);
        }
    }

    /// When a request of this scope may leave; at `now` if nothing holds it back.
    pub fn free_at(&self, platform: Platform, scope: &Scope, now: Millis) -> Millis {
        self.state().penalties.free_at(platform, scope, now)
    }

    /// Errors while a penalty holds requests of this scope back.
    pub fn check(&self, platform: Platform, scope: &Scope) -> Result<(), Held> {
        let mut state = self.state();
        let now = (state.clock)();
        match state.penalties.holding(platform, scope, now).max_by_key(|penalty| penalty.until) {
            Some(Penalty { until, reason, .. }) => {
                Err(Held { after: until.since(now), reason: reason.clone() })
            }
            None => Ok(()),
        }
    }

    /// The same for a request that names no chat.
    pub(crate) fn check_method(&self, method: &str) -> Result<(), Held> {
        self.check(self.platform, &Scope::Method(method.to_owned()))
    }

    /// The platform wants no request of this scope for so long.
    pub fn record(&self, platform: Platform, scope: Scope, wait: Duration, reason: &str) {
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
            self.record(self.platform, Scope::Method(method.to_owned()), wait, reason);
        }
    }

    pub(crate) fn record_platform(&self, wait: Duration, reason: &str) {
        self.record(self.platform, Scope::Platform, wait, reason);
    }

    /// Penalties that hold back requests to this chat.
    pub fn of_chat(&self, platform: Platform, chat: &str) -> Vec<Penalty> {
        let mut state = self.state();
        let now = (state.clock)();
        state.penalties.holding(platform, &Scope::Chat(chat.to_owned()), now).cloned().collect()
    }

    pub fn all(&self) -> Vec<Penalty> {
        let mut state = self.state();
        let now = (state.clock)();
        state.penalties.expire(now);
        state.penalties.all()
    }

    /// Waits until something was recorded.
    pub async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    /// Recorded, and not stored yet.
    pub fn unsaved(&self) -> Vec<Penalty> {
        let state = self.state();
        let known = |(platform, scope): &(Platform, Scope)| state.penalties.get(*platform, scope).cloned();
        state.unsaved.iter().filter_map(known).collect()
    }

    /// These are stored.
    pub fn saved(&self, stored: &[Penalty]) {
        let mut state = self.state();
        let State { penalties, unsaved, .. } = &mut *state;
        unsaved.retain(|(platform, scope)| {
            penalties.get(*platform, scope).is_some_and(|known| !stored.contains(known))
        });
    }

    /// When the next penalty in force ends.
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
    /// Sends nothing while a penalty of the chat or of the platform lasts; records the wait that a refusal names.
    pub(crate) async fn limited<T>(
        &self,
        to: &Route,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        self.limited_by(to, Scope::chat_of(to), request).await
    }

    /// The same for a typing indicator or a reaction. Discord and Slack count these by their own method, so that a refusal
    /// holds back no message; Telegram counts all requests of a chat together.
    pub(crate) async fn limited_mark(
        &self,
        to: &Route,
        method: &str,
        request: impl Future<Output = Result<(), Error>>,
    ) -> Result<(), Error> {
        self.limits().check(to.platform, &Scope::chat_of(to))?;
        self.limited_by(to, self.mark_scope(to, method), request).await
    }

    fn mark_scope(&self, to: &Route, method: &str) -> Scope {
        match self {
            Self::Discord(_) | Self::Slack(_) => Scope::Method(format!("{method} {}", to.chat_id)),
            Self::Telegram(_) | Self::Webhook(_) | Self::Relay(_) => Scope::chat_of(to),
            #[cfg(feature = "simulation")]
            Self::Given(_) => Scope::chat_of(to),
        }
    }

    /// When a status reaction may be sent; at `now` if nothing holds it back.
    pub fn reaction_free_at(&self, to: &Route, now: Millis) -> Millis {
        let free_at = |scope| self.limits().free_at(to.platform, &scope, now);
        free_at(Scope::chat_of(to)).max(free_at(self.mark_scope(to, REACT)))
    }

    /// Errors while the rate limits of a chat hold back the acknowledgement of a button that was pressed there.
    pub fn check_callback(&self, to: &Route) -> Result<(), Held> {
        match self {
            // Discord does not count answers to interactions.
            Self::Discord(_) => Ok(()),
            Self::Telegram(_) | Self::Slack(_) | Self::Webhook(_) | Self::Relay(_) => {
                self.limits().check(to.platform, &Scope::chat_of(to))
            }
            #[cfg(feature = "simulation")]
            Self::Given(_) => Ok(()),
        }
    }

    async fn limited_by<T>(
        &self,
        to: &Route,
        scope: Scope,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        self.limits().check(to.platform, &scope)?;
        let answered = request.await;
        if let Err(error) = &answered
            && !error.is_held()
            && let Fault::Later { after: Some(wait) } = error.fault()
        {
            self.limits().record(to.platform, scope, wait, &error.to_string());
        }
        answered
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn held_request_says_how_long_and_why() {
        let platform = Platform::parse("telegram").expect("known");
        let limits = Limits::new(platform);
        let chat = Scope::Chat("7".into());
        assert_eq!(limits.check(platform, &chat), Ok(()));
        limits.record(platform, chat.clone(), Duration::from_secs(30), "slow down");
        let held = limits.check(platform, &chat).expect_err("held");
        assert!(held.after > Duration::from_secs(25) && held.after <= Duration::from_secs(30), "{held:?}");
        assert_eq!(held.reason, "slow down");
        assert_eq!(limits.check_method("getMe"), Ok(()));
    }

    #[test]
    fn penalty_counts_as_unsaved_until_the_same_one_is_stored() {
        let platform = Platform::parse("telegram").expect("known");
        let limits = Limits::new(platform);
        limits.record(platform, Scope::Platform, Duration::from_secs(30), "slow down");
        let first = limits.unsaved();
        assert_eq!(first.len(), 1);
        limits.record(platform, Scope::Platform, Duration::from_secs(60), "slower");
        limits.saved(&first);
        let second = limits.unsaved();
        assert_eq!(second.len(), 1, "it was made longer meanwhile");
        limits.saved(&second);
        assert_eq!(limits.unsaved(), []);
        assert_eq!(limits.all(), second);
    }

    #[test]
    fn next_end_ignores_penalties_that_are_over() {
        static NOW: AtomicU64 = AtomicU64::new(1_000);
        let platform = Platform::parse("telegram").expect("known");
        let limits = Limits::new(platform);
        limits.restore(|| Millis(NOW.load(Ordering::Relaxed)), []);
        limits.record(platform, Scope::Platform, Duration::from_millis(500), "slow down");
        assert_eq!(limits.next_end(), Some(Millis(1_500)));
        NOW.store(1_500, Ordering::Relaxed);
        assert_eq!(limits.next_end(), None);
    }
}
