//! Credentials that a program shows in a header, and who it is because of them.
//!
//! The drain secret opens one route and nothing else, and while there is one, that route has no other key: whoever
//! deploys gateways may drain them, and a signed-in browser is not in the way of it. The session token stands in for
//! the cookie. Neither is ever sent by a browser of its own accord, so no other site can make use of them.

use std::convert::Infallible;
use std::sync::Arc;

use aws_lc_rs::{constant_time, digest};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderName, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use petasos_core::Secret;
use petasos_core::lifecycle::strength;
use tracing::{debug, warn};

use crate::error::ApiError;

/// The route that the drain secret opens.
pub(crate) const DRAIN: &str = "/api/gateway/drain";

const SESSION_TOKEN: HeaderName = HeaderName::from_static("x-hermes-session-token");

/// What programs may show at the public door. The default is nothing at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doors {
    /// Opens the drain route, if it is strong enough; a weak one opens nothing.
    pub drain_secret: Option<Secret>,
    /// What the drain secret is good for, in the words of whoever gave it out. Only logged.
    pub drain_scope: String,
    /// The fewest characters that make a strong secret.
    pub min_secret_chars: usize,
    /// Opens what the cookie opens.
    pub session_token: Option<Secret>,
}

impl Default for Doors {
    fn default() -> Self {
        Self {
            drain_secret: None,
            drain_scope: "drain".to_owned(),
            min_secret_chars: strength::MIN_CHARS,
            session_token: None,
        }
    }
}

/// Who makes a request, as far as the door knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Whoever can reach us.
    Anyone,
    /// A signed-in browser, or a program with the session token.
    Dashboard,
    /// Whoever holds the drain secret; seen on its one route only.
    DrainControl,
    /// On the control socket.
    Owner,
}

impl Caller {
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get().copied().unwrap_or(Self::Anyone)
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.extensions))
    }
}

/// The credentials that count.
pub(crate) struct Keys {
    drain: Option<Key>,
    session: Option<Key>,
    scope: String,
}

/// What a request's headers amount to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// Nothing of ours: a cookie may still do.
    Nothing,
    Key(Caller),
    /// Not what this route wants, and there is no other way in.
    Wrong,
}

impl Keys {
    pub(crate) fn cut(doors: &Doors) -> Self {
        let strong = |secret: &&Secret| match strength::check(&trimmed(secret), doors.min_secret_chars) {
            Ok(()) => true,
            Err(weak) => {
                warn!(%weak, "the drain secret is too weak and opens nothing");
                false
            }
        };
        Self {
            drain: doors.drain_secret.as_ref().filter(strong).and_then(Key::new),
            session: doors.session_token.as_ref().and_then(Key::new),
            scope: doors.drain_scope.clone(),
        }
    }

    /// Whether what these headers show is for the page and its API.
    pub(crate) fn knows(&self, method: &Method, path: &str, headers: &HeaderMap) -> bool {
        self.judge(method, path, headers) != Shown::Nothing
    }

    fn judge(&self, method: &Method, path: &str, headers: &HeaderMap) -> Shown {
        let bearer = bearer(headers);
        // Looking at the drain shows whose conversations are at work: that is not for the secret.
        let looks = matches!(*method, Method::GET | Method::HEAD);
        if let Some(key) = self.drain.as_ref().filter(|_| path == DRAIN && !looks) {
            return match bearer.is_some_and(|shown| key.fits(shown)) {
                true => Shown::Key(Caller::DrainControl),
                false => Shown::Wrong,
            };
        }
        let Some(key) = &self.session else { return Shown::Nothing };
        let header = headers.get(SESSION_TOKEN).map(|value| value.as_bytes());
        match header.into_iter().chain(bearer).any(|shown| key.fits(shown)) {
            true => Shown::Key(Caller::Dashboard),
            false => Shown::Nothing,
        }
    }
}

/// Notes who has shown a token; turns away whoever shows a wrong one where only a token counts.
pub(crate) async fn admit(State(keys): State<Arc<Keys>>, mut request: Request, next: Next) -> Response {
    match keys.judge(request.method(), request.uri().path(), request.headers()) {
        Shown::Nothing => {}
        Shown::Key(caller) => {
            debug!(?caller, scope = keys.scope, "token accepted");
            request.extensions_mut().insert(caller);
        }
        Shown::Wrong => {
            warn!(path = request.uri().path(), "request without the right token");
            return ApiError::wrong_secret().into_response();
        }
    }
    next.run(request).await
}

/// A secret as its digest: comparing two of them tells nothing about the secret, not even its length.
struct Key(digest::Digest);

impl Key {
    /// `None`: there is nothing in it, and nothing must not open anything.
    fn new(secret: &Secret) -> Option<Self> {
        let secret = trimmed(secret);
        (!secret.expose().is_empty()).then(|| Self(hash(secret.expose().as_bytes())))
    }

    fn fits(&self, shown: &[u8]) -> bool {
        let shown = hash(shown.trim_ascii());
        constant_time::verify_slices_are_equal(self.0.as_ref(), shown.as_ref()).is_ok()
    }
}

/// Headers lose the space around their value on the way.
fn trimmed(secret: &Secret) -> Secret {
    Secret::new(secret.expose().trim())
}

fn hash(bytes: &[u8]) -> digest::Digest {
    digest::digest(&digest::SHA256, bytes)
}

/// What follows `Bearer`, in whatever case that is written.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, rest) = value.split_at_checked("bearer".len())?;
    (scheme.eq_ignore_ascii_case(b"bearer") && rest.starts_with(b" ")).then_some(rest)
}

#[cfg(test)]
#[path = "token_tests.rs"]
mod tests;
