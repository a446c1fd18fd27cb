//! Authentication of programs by tokens in a header.
//!
//! The drain secret authorises one route, and while it is configured, that route accepts nothing else. The session
//! token replaces the cookie. A browser sends neither by itself, so other sites cannot use them.

use std::convert::Infallible;
use std::sync::Arc;

use aws_lc_rs::{constant_time, digest};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderName, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use petasos_core::Secret;
use petasos_core::lifecycle::secret_strength;
use tracing::{debug, warn};

use crate::error::ApiError;

/// The route that the drain secret authorises.
pub(crate) const DRAIN: &str = "/api/gateway/drain";

const SESSION_TOKEN: HeaderName = HeaderName::from_static("x-hermes-session-token");

/// Secrets that programs may present to the public listener. None by default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessCredentials {
    /// Authorises the drain route; a weak secret is ignored.
    pub drain_secret: Option<Secret>,
    /// A label of the drain secret for the log.
    pub drain_scope: String,
    pub min_secret_chars: usize,
    /// Authorises what the cookie authorises.
    pub session_token: Option<Secret>,
}

impl Default for AccessCredentials {
    fn default() -> Self {
        Self {
            drain_secret: None,
            drain_scope: "drain".to_owned(),
            min_secret_chars: secret_strength::MIN_CHARS,
            session_token: None,
        }
    }
}

/// The authenticated identity behind a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    Anonymous,
    /// A signed-in browser, or a program with the session token.
    Dashboard,
    /// Holder of the drain secret, on its route only.
    DrainControl,
    /// Client of the control socket.
    Owner,
}

impl Caller {
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get().copied().unwrap_or(Self::Anonymous)
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.extensions))
    }
}

pub(crate) struct AcceptedCredentials {
    drain: Option<SecretDigest>,
    session: Option<SecretDigest>,
    scope: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CredentialCheck {
    /// No credentials; a cookie may still authenticate the request.
    Absent,
    Valid(Caller),
    /// The route requires a credential that is missing or wrong.
    Invalid,
}

impl AcceptedCredentials {
    pub(crate) fn new(credentials: &AccessCredentials) -> Self {
        let strong =
            |secret: &&Secret| match secret_strength::check(&trimmed(secret), credentials.min_secret_chars) {
                Ok(()) => true,
                Err(weak) => {
                    warn!(%weak, "drain secret is too weak and is ignored");
                    false
                }
            };
        Self {
            drain: credentials.drain_secret.as_ref().filter(strong).and_then(SecretDigest::new),
            session: credentials.session_token.as_ref().and_then(SecretDigest::new),
            scope: credentials.drain_scope.clone(),
        }
    }

    /// Whether the headers contain a credential for the page's API, or lack a required one.
    pub(crate) fn recognises(&self, method: &Method, path: &str, headers: &HeaderMap) -> bool {
        self.check(method, path, headers) != CredentialCheck::Absent
    }

    fn check(&self, method: &Method, path: &str, headers: &HeaderMap) -> CredentialCheck {
        let bearer = bearer(headers);
        // The status lists active conversations, which the drain secret must not reveal.
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        if let Some(key) = self.drain.as_ref().filter(|_| path == DRAIN && !is_read) {
            if bearer.is_some_and(|presented| key.matches(presented)) {
                return CredentialCheck::Valid(Caller::DrainControl);
            }
            return CredentialCheck::Invalid;
        }
        let Some(key) = &self.session else { return CredentialCheck::Absent };
        let header = headers.get(SESSION_TOKEN).map(|value| value.as_bytes());
        if header.into_iter().chain(bearer).any(|presented| key.matches(presented)) {
            return CredentialCheck::Valid(Caller::Dashboard);
        }
        CredentialCheck::Absent
    }
}

/// Adds the [`Caller`] of a valid token to the request; rejects a missing or wrong token on a route that requires one.
pub(crate) async fn authenticate(
    State(accepted): State<Arc<AcceptedCredentials>>,
    mut request: Request,
    next: Next,
) -> Response {
    match accepted.check(request.method(), request.uri().path(), request.headers()) {
        CredentialCheck::Absent => {}
        CredentialCheck::Valid(caller) => {
            debug!(?caller, scope = accepted.scope, "token accepted");
            request.extensions_mut().insert(caller);
        }
        CredentialCheck::Invalid => {
            warn!(path = request.uri().path(), "rejected request without a valid token");
            return ApiError::wrong_secret().into_response();
        }
    }
    next.run(request).await
}

/// SHA-256 digest of a secret; comparing digests reveals nothing about the secret, not even its length.
struct SecretDigest(digest::Digest);

impl SecretDigest {
    /// `None` for an empty secret, which must not authenticate.
    fn new(secret: &Secret) -> Option<Self> {
        let secret = trimmed(secret);
        (!secret.expose().is_empty()).then(|| Self(hash(secret.expose().as_bytes())))
    }

    fn matches(&self, presented: &[u8]) -> bool {
        let presented = hash(presented.trim_ascii());
        constant_time::verify_slices_are_equal(self.0.as_ref(), presented.as_ref()).is_ok()
    }
}

/// HTTP strips space around header values.
fn trimmed(secret: &Secret) -> Secret {
    Secret::new(secret.expose().trim())
}

fn hash(bytes: &[u8]) -> digest::Digest {
    digest::digest(&digest::SHA256, bytes)
}

/// The value after `Bearer`, which is case-insensitive.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, rest) = value.split_at_checked("bearer".len())?;
    (scheme.eq_ignore_ascii_case(b"bearer") && rest.starts_with(b" ")).then_some(rest)
}

#[cfg(test)]
mod tests;
