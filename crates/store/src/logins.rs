//! Web logins. A token leaves this module once, when it is made; only its SHA-256 is stored, and looking
//! that up tells nothing about how close a wrong token was.

use std::fmt;
use std::time::Duration;

use aws_lc_rs::digest;
use petasos_core::Millis;
use rusqlite::{Row, params};

use crate::error::{Error, Result};
use crate::group::{Reads, Tx};
use crate::value::{at, time_at};

/// A secret of 256 bits, as 64 hex digits.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// Tells logins apart in a list; says nothing about the token.
    pub id: String,
    pub label: String,
    pub created_at: Millis,
    pub used_at: Millis,
    pub expires_at: Millis,
}

const COLUMNS: &str = "lower(hex(substr(token_hash, 1, 6))) AS id, label, created_at, used_at, expires_at";

impl Reads {
    /// The login behind a cookie, if it is still good.
    pub fn check_login(&self, token: &str, now: Millis) -> Result<Option<Login>> {
        let mut read =
            self.sql(&format!("SELECT {COLUMNS} FROM logins WHERE token_hash = ?1 AND expires_at > ?2"))?;
        read.query_and_then(params![hash(token), at(now)], login)?.next().transpose()
    }

    pub fn logins(&self, now: Millis) -> Result<Vec<Login>> {
        let mut read =
            self.sql(&format!("SELECT {COLUMNS} FROM logins WHERE expires_at > ?1 ORDER BY used_at DESC"))?;
        read.query_and_then([at(now)], login)?.collect()
    }
}

impl Tx<'_> {
    pub fn create_login(&self, label: &str, life: Duration, now: Millis) -> Result<Token> {
        let token = fresh()?;
        self.sql(
            "INSERT INTO logins (token_hash, label, created_at, used_at, expires_at) VALUES (?1, ?2, ?3, ?3, ?4)",
        )?
        .execute(params![hash(&token.0), label, at(now), at(now.after(life))])?;
        Ok(token)
    }

    /// Notes that a login was used and prolongs it.
    pub fn touch_login(&self, token: &str, life: Duration, now: Millis) -> Result<bool> {
        let mut touch = self.sql(
            "UPDATE logins SET used_at = ?2, expires_at = ?3 WHERE token_hash = ?1 AND expires_at > ?2",
        )?;
        Ok(touch.execute(params![hash(token), at(now), at(now.after(life))])? > 0)
    }

    pub fn revoke_login(&self, token: &str) -> Result<bool> {
        Ok(self.sql("DELETE FROM logins WHERE token_hash = ?1")?.execute([hash(token)])? > 0)
    }

    /// By the id of a list.
    pub fn revoke_login_id(&self, id: &str) -> Result<bool> {
        let mut revoke = self.sql("DELETE FROM logins WHERE lower(hex(substr(token_hash, 1, 6))) = ?1")?;
        Ok(revoke.execute([id])? > 0)
    }

    pub fn revoke_all_logins(&self) -> Result<usize> {
        self.sql("DELETE FROM login_links")?.execute([])?;
        Ok(self.sql("DELETE FROM logins")?.execute([])?)
    }

    /// A link that opens one login.
    pub fn create_login_link(&self, life: Duration, now: Millis) -> Result<Token> {
        let token = fresh()?;
        self.sql("INSERT INTO login_links (token_hash, expires_at) VALUES (?1, ?2)")?
            .execute(params![hash(&token.0), at(now.after(life))])?;
        Ok(token)
    }

    /// `true` exactly once, and only before it expires.
    pub fn redeem_login_link(&self, token: &str, now: Millis) -> Result<bool> {
        let mut redeem = self.sql("DELETE FROM login_links WHERE token_hash = ?1 AND expires_at > ?2")?;
        Ok(redeem.execute(params![hash(token), at(now)])? > 0)
    }
}

fn login(row: &Row<'_>) -> Result<Login> {
    Ok(Login {
        id: row.get("id")?,
        label: row.get("label")?,
        created_at: time_at(row, "created_at")?,
        used_at: time_at(row, "used_at")?,
        expires_at: time_at(row, "expires_at")?,
    })
}

fn fresh() -> Result<Token> {
    Ok(Token(random_hex::<32>()?))
}

/// `N` random bytes as hex digits.
pub(crate) fn random_hex<const N: usize>() -> Result<String> {
    let mut bytes = [0_u8; N];
    getrandom::fill(&mut bytes).map_err(|_| Error::Io("the system gives no random numbers".into()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

pub(crate) fn hash(token: &str) -> Vec<u8> {
    digest::digest(&digest::SHA256, token.as_bytes()).as_ref().to_vec()
}
