//! Web logins. A token leaves this module only when it is created. Only its SHA-256 is stored, so a lookup leaks no
//! timing information about the token.

use std::fmt;
use std::time::Duration;

use aws_lc_rs::digest;
use petasos_core::Millis;
use petasos_core::text::hex;
use rusqlite::params;

use crate::connection::{Reads, Tx};
use crate::error::{Error, Result};
use crate::value::at;

/// 256 random bits as 64 hex digits.
#[derive(Clone, PartialEq, Eq)]
pub struct LoginToken(String);

impl LoginToken {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for LoginToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Reads {
    pub fn is_logged_in(&self, token: &str, now: Millis) -> Result<bool> {
        let mut read = self.sql("SELECT 1 FROM logins WHERE token_hash = ?1 AND expires_at > ?2")?;
        Ok(read.exists(params![hash(token), at(now)])?)
    }
}

impl Tx<'_> {
    pub fn create_login(&self, label: &str, life: Duration, now: Millis) -> Result<LoginToken> {
        let token = new_token()?;
        self.sql(
            "INSERT INTO logins (token_hash, label, created_at, used_at, expires_at) VALUES (?1, ?2, ?3, ?3, ?4)",
        )?
        .execute(params![hash(&token.0), label, at(now), at(now.after(life))])?;
        Ok(token)
    }

    pub fn revoke_login(&self, token: &str) -> Result<bool> {
        Ok(self.sql("DELETE FROM logins WHERE token_hash = ?1")?.execute([hash(token)])? > 0)
    }

    pub fn create_login_link(&self, life: Duration, now: Millis) -> Result<LoginToken> {
        let token = new_token()?;
        self.sql("INSERT INTO login_links (token_hash, expires_at) VALUES (?1, ?2)")?
            .execute(params![hash(&token.0), at(now.after(life))])?;
        Ok(token)
    }

    /// Consumes the link. `true` exactly once, and only before it expires.
    pub fn redeem_login_link(&self, token: &str, now: Millis) -> Result<bool> {
        let mut redeem = self.sql("DELETE FROM login_links WHERE token_hash = ?1 AND expires_at > ?2")?;
        Ok(redeem.execute(params![hash(token), at(now)])? > 0)
    }
}

fn new_token() -> Result<LoginToken> {
    Ok(LoginToken(random_hex::<32>()?))
}

pub(crate) fn random_hex<const N: usize>() -> Result<String> {
    let mut bytes = [0_u8; N];
    getrandom::fill(&mut bytes).map_err(|_| Error::Io("the system provides no random numbers".into()))?;
    Ok(hex(&bytes))
}

pub(crate) fn hash(token: &str) -> Vec<u8> {
    digest::digest(&digest::SHA256, token.as_bytes()).as_ref().to_vec()
}
