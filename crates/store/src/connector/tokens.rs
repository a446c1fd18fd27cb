//! Enrollment and installer tokens. Only their SHA-256 is stored.

use petasos_core::{GatewayId, Millis, TenantId};
use rusqlite::{OptionalExtension, params};

use crate::access::logins::{hash, random_hex};
use crate::connection::{Reads, Tx};
use crate::error::Result;
use crate::value::at;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnrollmentOutcome {
    /// The token was valid, and is now used.
    Accepted { tenant: TenantId },
    /// Unknown, used or expired; the caller must not distinguish these.
    Refused,
}

impl Reads {
    /// Tenant of an installer token.
    pub fn identity(&self, token: &str) -> Result<Option<TenantId>> {
        let mut read = self.sql("SELECT tenant FROM identities WHERE token_hash = ?1")?;
        Ok(read.query_row([hash(token)], |row| row.get(0).map(TenantId)).optional()?)
    }
}

impl Tx<'_> {
    pub fn add_identity(&self, tenant: &TenantId, now: Millis) -> Result<String> {
        let token = random_hex::<32>()?;
        self.sql("INSERT INTO identities (token_hash, tenant, created_at) VALUES (?1, ?2, ?3)")?
            .execute(params![hash(&token), tenant.as_str(), at(now)])?;
        Ok(token)
    }

    pub fn add_enrollment(&self, tenant: &TenantId, until: Millis) -> Result<String> {
        let token = random_hex::<32>()?;
        self.sql("INSERT INTO enrollments (token_hash, tenant, expires_at) VALUES (?1, ?2, ?3)")?
            .execute(params![hash(&token), tenant.as_str(), at(until)])?;
        Ok(token)
    }

    /// Deletes expired enrollment tokens and link codes.
    pub fn drop_tokens_before(&self, now: Millis) -> Result<()> {
        self.sql("DELETE FROM enrollments WHERE expires_at <= ?1")?.execute([at(now)])?;
        self.sql("DELETE FROM links WHERE expires_at <= ?1")?.execute([at(now)])?;
        Ok(())
    }

    /// Consumes the token for this gateway; of two concurrent calls one succeeds.
    pub fn redeem(&self, token: &str, gateway: &GatewayId, now: Millis) -> Result<EnrollmentOutcome> {
        let mut redeem = self.sql(
            "UPDATE enrollments SET used_by = ?2
             WHERE token_hash = ?1 AND used_by IS NULL AND expires_at > ?3 RETURNING tenant",
        )?;
        let row = params![hash(token), gateway.as_str(), at(now)];
        let tenant = redeem.query_row(row, |row| row.get(0).map(TenantId)).optional()?;
        Ok(tenant.map_or(EnrollmentOutcome::Refused, |tenant| EnrollmentOutcome::Accepted { tenant }))
    }
}
