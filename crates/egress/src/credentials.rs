//! Credentials of sandboxes.
//!
//! A token is the HMAC of the sandbox's name, so nothing is stored for a sandbox, and a process that outlives the gateway is
//! known to the next one.

use std::fmt;

use aws_lc_rs::hmac::{self, HMAC_SHA256};
use petasos_core::Secret;

pub const KEY_BYTES: usize = 32;
const MAX_PART_CHARS: usize = 64;

/// A sandbox: the conversation that it belongs to, and the command that it runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SandboxId {
    session: String,
    run: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a session or run of a sandbox is named by 1 to 64 letters, digits, - and _")]
pub struct InvalidSandboxId;

impl SandboxId {
    pub fn new(session: &str, run: &str) -> Result<Self, InvalidSandboxId> {
        if !is_valid_part(session) || !is_valid_part(run) {
            return Err(InvalidSandboxId);
        }
        Ok(Self { session: session.to_owned(), run: run.to_owned() })
    }

    pub fn session(&self) -> &str {
        &self.session
    }

    pub fn run(&self) -> &str {
        &self.run
    }

    fn parse(name: &str) -> Option<Self> {
        let (session, run) = name.split_once('.')?;
        Self::new(session, run).ok()
    }
}

impl fmt::Display for SandboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.session, self.run)
    }
}

fn is_valid_part(part: &str) -> bool {
    (1..=MAX_PART_CHARS).contains(&part.len())
        && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

/// User name and password of one sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyCredential {
    pub name: String,
    pub token: Secret,
}

/// Issues and verifies credentials.
#[derive(Debug)]
pub struct CredentialIssuer(hmac::Key);

impl CredentialIssuer {
    /// The key must be secret, random and the same after a restart.
    pub fn new(key: &[u8; KEY_BYTES]) -> Self {
        Self(hmac::Key::new(HMAC_SHA256, key))
    }

    pub fn issue(&self, sandbox: &SandboxId) -> ProxyCredential {
        let name = sandbox.to_string();
        let tag = hmac::sign(&self.0, name.as_bytes());
        let token = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        ProxyCredential { name, token: Secret::new(token) }
    }

    /// The sandbox with this name, if the token is its own. Compares in constant time.
    pub fn verify(&self, name: &str, token: &str) -> Option<SandboxId> {
        let sandbox = SandboxId::parse(name)?;
        let tag = decode_hex(token)?;
        hmac::verify(&self.0, name.as_bytes(), &tag).ok().map(|()| sandbox)
    }
}

fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sandbox(session: &str, run: &str) -> SandboxId {
        SandboxId::new(session, run).unwrap()
    }

    #[test]
    fn a_token_is_valid_for_one_sandbox_only() {
        let issuer = CredentialIssuer::new(&[7; KEY_BYTES]);
        let mine = issuer.issue(&sandbox("20261115_181205_13f6a7af", "r1"));
        let other = issuer.issue(&sandbox("20261115_181205_13f6a7af", "r2"));
        assert_eq!(
            issuer.verify(&mine.name, mine.token.expose()),
            Some(sandbox("20261115_181205_13f6a7af", "r1"))
        );
        assert_eq!(issuer.verify(&mine.name, other.token.expose()), None);
        assert_eq!(issuer.verify(&other.name, mine.token.expose()), None);
        assert_eq!(CredentialIssuer::new(&[8; KEY_BYTES]).verify(&mine.name, mine.token.expose()), None);
        let restarted = CredentialIssuer::new(&[7; KEY_BYTES]);
        assert!(restarted.verify(&mine.name, mine.token.expose()).is_some(), "valid after a restart");
        assert!(!format!("{mine:?}").contains(mine.token.expose()), "{mine:?}");
    }

    #[test]
    fn names_with_separators_are_invalid() {
        for (session, run) in
            [("", "r"), ("s", ""), ("a.b", "r"), ("a", "b.c"), ("a:b", "r"), ("a b", "r"), ("é", "r")]
        {
            assert_eq!(SandboxId::new(session, run), Err(InvalidSandboxId), "{session:?} {run:?}");
        }
        assert_eq!(SandboxId::new(&"x".repeat(65), "r"), Err(InvalidSandboxId));
    }

    proptest! {
        #[test]
        fn guessed_tokens_are_invalid(name in "[ -~]{0,80}", token in "[0-9a-fA-F]{0,70}") {
            let issuer = CredentialIssuer::new(&[7; KEY_BYTES]);
            prop_assert_eq!(issuer.verify(&name, &token), None);
            prop_assert_eq!(issuer.verify("s.r", &token), None);
        }
    }
}
