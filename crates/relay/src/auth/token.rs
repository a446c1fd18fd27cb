//! Bearer tokens: `base64url(payload ":" exp ":" hex(hmac_sha256(secret, payload ":" exp)))`. The payload is the gateway
//! id; the secret is used as text even if it looks like hex.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use petasos_core::text::{hex, unhex};

/// Validity of a fresh token, in seconds.
pub const LIFETIME: u64 = 300;
pub const LEEWAY: u64 = 60;
/// Longest validity accepted for an upgrade.
pub const LONGEST_LIFE: u64 = 900;
const LONGEST_TOKEN: usize = 4096;

/// `exp` 0: no expiry. `sign(secret, message)` is HMAC-SHA256.
pub fn mint(payload: &str, secret: &str, exp: u64, sign: impl Fn(&[u8], &[u8]) -> Vec<u8>) -> String {
    let signed = format!("{payload}:{exp}");
    let signature = hex(&sign(secret.as_bytes(), signed.as_bytes()));
    URL_SAFE_NO_PAD.encode(format!("{signed}:{signature}"))
}

/// A parsed, unverified token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Use only to look up secrets.
    pub payload: String,
    pub exp: u64,
    signature: [u8; 32],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Unknown, wrong or revoked; the caller does not learn which.
    Unauthorized,
    /// Valid signature, expired.
    Expired,
}

impl Claim {
    pub fn read(token: &str) -> Option<Self> {
        if token.len() > LONGEST_TOKEN {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        let (signed, signature) = text.rsplit_once(':')?;
        let (payload, exp) = signed.rsplit_once(':')?;
        let digits = !exp.is_empty() && exp.bytes().all(|byte| byte.is_ascii_digit());
        let exp = exp.parse().ok().filter(|_| digits)?;
        let signature = unhex(signature)?.try_into().ok()?;
        (!payload.is_empty()).then(|| Self { payload: payload.to_string(), exp, signature })
    }

    /// Verifies against every current secret; a rotation has two. `check(secret, message, signature)` compares in
    /// constant time.
    pub fn verify<'a>(
        &self,
        now: u64,
        secrets: impl IntoIterator<Item = &'a str>,
        check: impl Fn(&[u8], &[u8], &[u8]) -> bool,
    ) -> Result<(), Refused> {
        let signed = format!("{}:{}", self.payload, self.exp);
        let mut good = false;
        for secret in secrets.into_iter().filter(|secret| !secret.is_empty()) {
            good |= check(secret.as_bytes(), signed.as_bytes(), &self.signature);
        }
        if !good {
            return Err(Refused::Unauthorized);
        }
        if self.exp != 0 && now > self.exp {
            return Err(Refused::Expired);
        }
        Ok(())
    }

    /// Like `admit`, and limits the validity.
    pub fn admit<'a>(
        &self,
        now: u64,
        secrets: impl IntoIterator<Item = &'a str>,
        check: impl Fn(&[u8], &[u8], &[u8]) -> bool,
    ) -> Result<(), Refused> {
        self.verify(now.saturating_sub(LEEWAY), secrets, check)?;
        let lasting = self.exp == 0 || self.exp > now.saturating_add(LONGEST_LIFE);
        if lasting { Err(Refused::Unauthorized) } else { Ok(()) }
    }
}

/// The token of `Authorization: Bearer …`.
pub fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
}

#[cfg(test)]
#[path = "token_tests.rs"]
mod tests;
