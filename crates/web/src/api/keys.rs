//! Who may use the API: named keys, what each may do, and how often.
//!
//! Owns the count of recent requests per key, in memory: a restart forgets it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::{constant_time, digest};
use axum::http::HeaderMap;
use petasos_core::Secret;

use crate::error::ApiError;
use crate::token::bearer;

/// A key as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    pub name: String,
    pub secret: Secret,
    pub scopes: Vec<Scope>,
    /// Requests a minute; `None`: as many as there may be.
    pub per_minute: Option<u32>,
}

/// What a key may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Looking: models, capabilities, conversations, runs.
    Read,
    /// Putting the agent to work, and stopping it.
    Agent,
    /// Changing conversations and jobs.
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

/// Whose key a request showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) name: String,
    scopes: Vec<Scope>,
}

impl Owner {
    pub(crate) fn may(&self, scope: Scope) -> Result<(), ApiError> {
        if self.scopes.contains(&scope) { Ok(()) } else { Err(ApiError::out_of_scope(scope.as_str())) }
    }
}

pub(crate) struct Keys(Vec<Key>);

struct Key {
    owner: Owner,
    digest: digest::Digest,
    pace: Option<Pace>,
}

/// A bucket that fills at a steady rate: a minute's worth may be used at once.
struct Pace {
    per_minute: u32,
    left: Mutex<(f64, Instant)>,
}

impl Keys {
    pub(crate) fn cut(keys: &[ApiKey]) -> Self {
        let key = |key: &ApiKey| Key {
            owner: Owner { name: key.name.clone(), scopes: key.scopes.clone() },
            digest: hash(key.secret.expose().trim().as_bytes()),
            pace: key.per_minute.map(Pace::new),
        };
        Self(keys.iter().map(key).collect())
    }

    /// Whoever shows the key is its owner, as long as they do not come too often. Every key is compared, whichever
    /// fits.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> Result<Owner, ApiError> {
        let shown = hash(bearer(headers).unwrap_or_default().trim_ascii());
        let fits =
            |key: &&Key| constant_time::verify_slices_are_equal(key.digest.as_ref(), shown.as_ref()).is_ok();
        let mut found = None;
        for key in self.0.iter().filter(fits) {
            found = Some(key);
        }
        let key = found.ok_or_else(ApiError::invalid_key)?;
        if let Some(wait) = key.pace.as_ref().and_then(|pace| pace.take(Instant::now())) {
            return Err(ApiError::busy("Too many requests with this key", wait.as_secs() + 1));
        }
        Ok(key.owner.clone())
    }
}

impl Pace {
    fn new(per_minute: u32) -> Self {
        Self { per_minute, left: Mutex::new((f64::from(per_minute), Instant::now())) }
    }

    /// How long to wait; `None`: go ahead.
    fn take(&self, now: Instant) -> Option<Duration> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let rate = f64::from(self.per_minute) / 60.0;
        let filled = left.0 + now.duration_since(left.1).as_secs_f64() * rate;
        *left = (filled.min(f64::from(self.per_minute)), now);
        if left.0 >= 1.0 {
            left.0 -= 1.0;
            return None;
        }
        Some(Duration::from_secs_f64(((1.0 - left.0) / rate).min(60.0)))
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
    fn only_a_whole_key_opens_and_it_opens_what_it_is_for() {
        let keys = Keys::cut(&[key("a", "first-secret", None), key("b", "second-secret", None)]);
        for (header, want) in [
            ("Bearer first-secret", Some("a")),
            ("bearer  second-secret ", Some("b")),
            ("Bearer first-secre", None),
            ("Bearer ", None),
            ("Basic first-secret", None),
            ("first-secret", None),
        ] {
            assert_eq!(keys.admit(&showing(header)).ok().map(|it| it.name).as_deref(), want, "{header}");
        }
        assert!(keys.admit(&HeaderMap::new()).is_err());
        let owner = keys.admit(&showing("Bearer first-secret")).unwrap();
        assert!(owner.may(Scope::Read).is_ok() && owner.may(Scope::Agent).is_err());
    }

    #[test]
    fn a_key_that_is_used_too_often_waits_for_its_bucket_to_fill() {
        let pace = Pace::new(2);
        let start = Instant::now();
        assert_eq!((pace.take(start), pace.take(start)), (None, None));
        assert!(pace.take(start).is_some_and(|wait| wait > Duration::from_secs(20)));
        assert_eq!(pace.take(start + Duration::from_secs(31)), None);
        assert!(pace.take(start + Duration::from_secs(32)).is_some());
    }
}
