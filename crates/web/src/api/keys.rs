//! API keys: authentication, scopes and rate limits.
//!
//! Owns the rate limit state per key, in memory only.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::{constant_time, digest};
use axum::http::HeaderMap;
use petasos_core::Secret;
use petasos_runtime::clock;
use tokio::time::Instant;

use crate::error::ApiError;
use crate::security::credentials::bearer;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    pub name: String,
    pub secret: Secret,
    pub scopes: Vec<Scope>,
    /// Requests per minute; `None`: unlimited.
    pub per_minute: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Reads models, capabilities, conversations and runs.
    Read,
    /// Starts and stops runs.
    Agent,
    /// Changes conversations and jobs.
    Admin,
}

impl Scope {
    pub const ALL: [Self; 3] = [Self::Read, Self::Agent, Self::Admin];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Agent => "agent",
            Self::Admin => "admin",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiClient {
    pub(crate) name: String,
    scopes: Vec<Scope>,
}

impl ApiClient {
    pub(crate) fn require(&self, scope: Scope) -> Result<(), ApiError> {
        if self.scopes.contains(&scope) { Ok(()) } else { Err(ApiError::out_of_scope(scope.as_str())) }
    }
}

pub(crate) struct ApiKeys(Vec<RegisteredKey>);

struct RegisteredKey {
    owner: ApiClient,
    digest: digest::Digest,
    rate_limiter: Option<RateLimiter>,
}

/// A token bucket that holds the requests of one minute.
struct RateLimiter {
    per_minute: u32,
    tokens: Mutex<(f64, Instant)>,
}

impl ApiKeys {
    pub(crate) fn new(keys: &[ApiKey]) -> Self {
        let key = |key: &ApiKey| RegisteredKey {
            owner: ApiClient { name: key.name.clone(), scopes: key.scopes.clone() },
            digest: hash(key.secret.expose().trim().as_bytes()),
            rate_limiter: key.per_minute.map(RateLimiter::new),
        };
        Self(keys.iter().map(key).collect())
    }

    /// Authenticates a request and applies the rate limit. Compares all keys, so that the time does not depend on the
    /// match.
    pub(crate) fn authenticate(&self, headers: &HeaderMap) -> Result<ApiClient, ApiError> {
        let presented = hash(bearer(headers).unwrap_or_default().trim_ascii());
        let fits = |key: &&RegisteredKey| {
            constant_time::verify_slices_are_equal(key.digest.as_ref(), presented.as_ref()).is_ok()
        };
        let mut matching = None;
        for key in self.0.iter().filter(fits) {
            matching = Some(key);
        }
        let key = matching.ok_or_else(ApiError::invalid_key)?;
        if let Some(wait) =
            key.rate_limiter.as_ref().and_then(|rate_limiter| rate_limiter.acquire(clock::monotonic()))
        {
            return Err(ApiError::rate_limited("Too many requests with this key", wait.as_secs() + 1));
        }
        Ok(key.owner.clone())
    }
}

impl RateLimiter {
    fn new(per_minute: u32) -> Self {
        Self { per_minute, tokens: Mutex::new((f64::from(per_minute), clock::monotonic())) }
    }

    /// The time to wait; `None`: proceed.
    fn acquire(&self, now: Instant) -> Option<Duration> {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let rate = f64::from(self.per_minute) / 60.0;
        let filled = tokens.0 + now.duration_since(tokens.1).as_secs_f64() * rate;
        *tokens = (filled.min(f64::from(self.per_minute)), now);
        if tokens.0 >= 1.0 {
            tokens.0 -= 1.0;
            return None;
        }
        Some(Duration::from_secs_f64(((1.0 - tokens.0) / rate).min(60.0)))
    }
}

fn hash(bytes: &[u8]) -> digest::Digest {
    digest::digest(&digest::SHA256, bytes)
}

#[cfg(test)]
mod tests {
    use axum::http::header;

    use super::*;

    fn key(name: &str, secret: &str, per_minute: Option<u32>) -> ApiKey {
        ApiKey { name: name.into(), secret: Secret::new(secret), scopes: vec![Scope::Read], per_minute }
    }

    fn showing(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())])
    }

    #[test]
    fn authenticates_exact_keys_with_their_scopes() {
        let keys = ApiKeys::new(&[key("a", "first-secret", None), key("b", "second-secret", None)]);
        for (header, want) in [
            ("Bearer first-secret", Some("a")),
            ("bearer  second-secret ", Some("b")),
            ("Bearer first-secre", None),
            ("Bearer ", None),
            ("Basic first-secret", None),
            ("first-secret", None),
        ] {
            assert_eq!(
                keys.authenticate(&showing(header)).ok().map(|it| it.name).as_deref(),
                want,
                "{header}"
            );
        }
        assert!(keys.authenticate(&HeaderMap::new()).is_err());
        let owner = keys.authenticate(&showing("Bearer first-secret")).unwrap();
        assert!(owner.require(Scope::Read).is_ok() && owner.require(Scope::Agent).is_err());
    }

    #[test]
    fn rate_limit_waits_until_bucket_refills() {
        let rate_limiter = RateLimiter::new(2);
        let start = clock::monotonic();
        assert_eq!((rate_limiter.acquire(start), rate_limiter.acquire(start)), (None, None));
        assert!(rate_limiter.acquire(start).is_some_and(|wait| wait > Duration::from_secs(20)));
        assert_eq!(rate_limiter.acquire(start + Duration::from_secs(31)), None);
        assert!(rate_limiter.acquire(start + Duration::from_secs(32)).is_some());
    }
}
