//! Whose messages go where: authors, scopes, the codes that bind an author, and what instances want to hear.

use petasos_core::{Millis, Platform};
use rusqlite::{OptionalExtension, params};

use crate::error::{Error, Result};
use crate::group::{Reads, Tx};
use crate::logins::{hash, random_hex};
use crate::value::{at, json, parse};

/// What an instance wants to hear where others talk as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Only what is addressed to it.
    pub require_address: bool,
    /// Chats and scopes in which everything is.
    pub free_scopes: Vec<String>,
    pub other_bots: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self { require_address: true, free_scopes: vec![], other_bots: false }
    }
}

impl Reads {
    pub fn instance_of_author(&self, platform: Platform, user: &str) -> Result<Option<String>> {
        let mut read = self.sql("SELECT instance FROM authors WHERE platform = ?1 AND user_id = ?2")?;
        Ok(read.query_row([platform.as_str(), user], |row| row.get(0)).optional()?)
    }

    /// The same for what they say to the bot alone.
    pub fn instance_of_direct(&self, platform: Platform, user: &str) -> Result<Option<String>> {
        let mut read =
            self.sql("SELECT coalesce(direct, instance) FROM authors WHERE platform = ?1 AND user_id = ?2")?;
        Ok(read.query_row([platform.as_str(), user], |row| row.get(0)).optional()?)
    }

    /// What was said of somebody; `None`: nothing, and the policy counts.
    pub fn principal(&self, instance: &str, platform: Platform, user: &str) -> Result<Option<bool>> {
        let mut read = self
            .sql("SELECT allowed FROM principals WHERE instance = ?1 AND platform = ?2 AND user_id = ?3")?;
        Ok(read.query_row([instance, platform.as_str(), user], |row| row.get(0)).optional()?)
    }

    pub fn instance_of_scope(&self, platform: Platform, scope: &str) -> Result<Option<String>> {
        let mut read = self.sql("SELECT instance FROM scopes WHERE platform = ?1 AND scope_id = ?2")?;
        Ok(read.query_row([platform.as_str(), scope], |row| row.get(0)).optional()?)
    }

    /// What was last said, or the default.
    pub fn policy(&self, instance: &str, platform: Platform) -> Result<Policy> {
        let mut read = self.sql(
            "SELECT require_address, free_scopes, other_bots FROM policies WHERE instance = ?1 AND platform = ?2",
        )?;
        let found: Option<(bool, String, bool)> = read
            .query_row([instance, platform.as_str()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        let Some((require_address, scopes, other_bots)) = found else { return Ok(Policy::default()) };
        Ok(Policy { require_address, free_scopes: parse(&scopes, "policy")?, other_bots })
    }
}

impl Tx<'_> {
    /// From now on this author speaks to that instance, and to no other.
    pub fn bind_author(&self, platform: Platform, user: &str, instance: &str) -> Result<()> {
        self.known(instance)?;
        self.sql(
            "INSERT INTO authors (platform, user_id, instance) VALUES (?1, ?2, ?3)
             ON CONFLICT (platform, user_id) DO UPDATE SET instance = excluded.instance, direct = NULL",
        )?
        .execute([platform.as_str(), user, instance])?;
        Ok(())
    }

    /// This instance gets the direct messages of an author of the same tenant. `false`: they are not one.
    pub fn take_direct(&self, platform: Platform, user: &str, instance: &str) -> Result<bool> {
        let mut take = self.sql(
            "UPDATE authors SET direct = ?3 WHERE platform = ?1 AND user_id = ?2
             AND (SELECT tenant FROM instances WHERE id = authors.instance)
                 = (SELECT tenant FROM instances WHERE id = ?3)",
        )?;
        Ok(take.execute([platform.as_str(), user, instance])? > 0)
    }

    /// `None`: nothing is said of them any more.
    pub fn put_principal(
        &self,
        instance: &str,
        platform: Platform,
        user: &str,
        allowed: Option<bool>,
    ) -> Result<()> {
        let Some(allowed) = allowed else {
            self.sql("DELETE FROM principals WHERE instance = ?1 AND platform = ?2 AND user_id = ?3")?
                .execute([instance, platform.as_str(), user])?;
            return Ok(());
        };
        self.known(instance)?;
        self.sql(
            "INSERT INTO principals (instance, platform, user_id, allowed) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (instance, platform, user_id) DO UPDATE SET allowed = excluded.allowed",
        )?
        .execute(params![instance, platform.as_str(), user, allowed])?;
        Ok(())
    }

    /// A scope that another instance has stays with it.
    pub fn grant_scope(&self, platform: Platform, scope: &str, instance: &str) -> Result<()> {
        self.known(instance)?;
        self.sql(
            "INSERT INTO scopes (platform, scope_id, instance) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
        )?
        .execute([platform.as_str(), scope, instance])?;
        match self.instance_of_scope(platform, scope)? {
            Some(owner) if owner == instance => Ok(()),
            Some(_) | None => Err(Error::Conflict("the scope belongs to another instance")),
        }
    }

    /// Operator command: assigns the scope to this instance, taking it from its holder.
    pub fn assign_scope(&self, platform: Platform, scope: &str, instance: &str) -> Result<()> {
        self.known(instance)?;
        if self.instance_of_scope(platform, scope)?.is_some_and(|had| had != instance) {
            self.revoke_scope(platform, scope)?;
        }
        self.grant_scope(platform, scope, instance)
    }

    /// Operator command: revokes the scope. Its holder can neither write there nor claim it by earlier messages.
    /// `false`: the scope had no holder.
    pub fn revoke_scope(&self, platform: Platform, scope: &str) -> Result<bool> {
        let Some(had) = self.instance_of_scope(platform, scope)? else { return Ok(false) };
        self.sql(
            "DELETE FROM chats WHERE instance = ?1 AND platform = ?2 AND (scope_id = ?3 OR chat_id = ?3)",
        )?
        .execute([had.as_str(), platform.as_str(), scope])?;
        self.release_scope(platform, scope, &had)
    }

    /// `false`: there was no binding.
    pub fn unbind_author(&self, platform: Platform, user: &str) -> Result<bool> {
        let mut unbind = self.sql("DELETE FROM authors WHERE platform = ?1 AND user_id = ?2")?;
        Ok(unbind.execute([platform.as_str(), user])? > 0)
    }

    /// `false`: it was not this instance's.
    pub fn release_scope(&self, platform: Platform, scope: &str, instance: &str) -> Result<bool> {
        let mut release =
            self.sql("DELETE FROM scopes WHERE platform = ?1 AND scope_id = ?2 AND instance = ?3")?;
        Ok(release.execute([platform.as_str(), scope, instance])? > 0)
    }

    /// A code that binds whoever sends it in a direct message.
    pub fn add_link_code(&self, instance: &str, until: Millis) -> Result<String> {
        self.known(instance)?;
        let code = random_hex::<8>()?;
        self.sql("INSERT INTO links (code_hash, instance, expires_at) VALUES (?1, ?2, ?3)")?
            .execute(params![hash(&code), instance, at(until)])?;
        Ok(code)
    }

    /// The instance that the code led to; it leads nowhere any more.
    pub fn use_link_code(&self, code: &str, now: Millis) -> Result<Option<String>> {
        let mut take =
            self.sql("DELETE FROM links WHERE code_hash = ?1 AND expires_at > ?2 RETURNING instance")?;
        Ok(take.query_row(params![hash(code), at(now)], |row| row.get(0)).optional()?)
    }

    /// In place of whatever was said before.
    pub fn put_policy(&self, instance: &str, platform: Platform, policy: &Policy) -> Result<()> {
        self.sql(
            "INSERT INTO policies (instance, platform, require_address, free_scopes, other_bots)
             VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (instance, platform) DO UPDATE SET
             require_address = excluded.require_address, free_scopes = excluded.free_scopes,
             other_bots = excluded.other_bots",
        )?
        .execute(params![
            instance,
            platform.as_str(),
            policy.require_address,
            json(&policy.free_scopes)?,
            policy.other_bots
        ])?;
        Ok(())
    }

    fn known(&self, instance: &str) -> Result<()> {
        self.instance(instance)?.map(drop).ok_or(Error::Missing("instance"))
    }
}
